// SPDX-License-Identifier: Apache-2.0
#include "bench/memory_ops_bench.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/random.h"
#include "bench/crew.h"
#include "bench/prompt_forest.h"
#include "bench/reclaim_bench.h"
#include "memory/geometry/named_geometries.h"
#include "port/cgroup.h"
#include "port/clock.h"
#include "port/cpu.h"

namespace tessera {
namespace {

constexpr uint32_t kBlocksOfPrompt = PromptForest::kPromptTokens / kGroupTokens;
constexpr uint32_t kBlocksOfLeaf = PromptForest::kLeafTokens / kGroupTokens;

// What the machine has and what the control groups allow, whichever is less.
uint64_t AvailableBytes() {
  const uint64_t free = static_cast<uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) *
                        static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return std::min(free, CgroupAvailableBytes().value_or(free));
}

class OperationBench {
 public:
  OperationBench(const MemoryBenchOptions& options, uint64_t entries, PromptForest* forest,
                 MemoryBenchReport* report)
      : options_(options), entries_(entries), forest_(*forest), report_(report) {}

  void Requests(bool cold);
  void Replacements();
  void Evictions();
  Status Rates();

 private:
  void Add(OperationTime* line, uint64_t from_ns, uint64_t to_ns, uint64_t units) const {
    line->ns.Add(static_cast<double>(to_ns - from_ns) / static_cast<double>(units));
  }
  OperationTime Line(const char* name, const char* unit, bool cold) const;
  uint32_t members() const {
    return forest_.table().state_pages + (forest_.table().slot_bytes > 0 ? 1 : 0);
  }
  uint32_t Pick() { return static_cast<uint32_t>(random_.Below(forest_.prompts())); }
  double RequestsOf(Crew* crew, uint32_t requests_per_step, uint32_t steps);

  const MemoryBenchOptions& options_;
  const uint64_t entries_;
  PromptForest& forest_;
  MemoryBenchReport* report_;
  Random random_{1};
};

OperationTime OperationBench::Line(const char* name, const char* unit, bool cold) const {
  OperationTime line;
  line.entries = entries_;
  line.blocks = forest_.groups();
  line.checkpoints = forest_.ledger().count(EntryType::kCheckpoint);
  line.name = name;
  line.unit = unit;
  line.cold = cold;
  return line;
}

// A prompt that is there, and the same with its checkpoint alone.
void OperationBench::Requests(bool cold) {
  OperationTime find = Line("find", "block", cold);
  OperationTime adopt = Line("adopt", "block or member", cold);
  OperationTime release = Line("release", "block or member", cold);
  OperationTime share = Line("adopt checkpoint", "member", cold);
  OperationTime unshare = Line("release checkpoint", "member", cold);
  // A block and a member are the same work: a record of a page.
  const uint32_t pieces = kBlocksOfPrompt + members();
  Ledger& ledger = forest_.ledger();
  for (uint32_t i = 0; i < options_.samples; ++i) {
    const std::vector<TokenId> tokens = forest_.TokensOf(cold ? Pick() : 0);
    const uint32_t other = cold ? Pick() : 0;
    LedgerLock lock(ledger);
    const uint64_t begin = NowNs();
    const Match match = forest_.index().Find(lock, {.prompt = tokens, .salt = {}});
    const uint64_t found = NowNs();
    Lease lease = forest_.index().Adopt(lock, match);
    const uint64_t adopted = NowNs();
    forest_.index().Release(lock, &lease);
    const uint64_t released = NowNs();
    TESSERA_CHECK(match.report.reused == PromptForest::kPromptTokens);
    const EntryId checkpoint = forest_.LeafCheckpoint(other);
    const uint64_t sharing = NowNs();
    ledger.RefMembers(lock, checkpoint);
    const uint64_t shared = NowNs();
    ledger.UnrefMembers(lock, checkpoint);
    const uint64_t unshared = NowNs();
    Add(&find, begin, found, kBlocksOfPrompt);
    Add(&adopt, found, adopted, pieces);
    Add(&release, adopted, released, pieces);
    Add(&share, sharing, shared, members());
    Add(&unshare, shared, unshared, members());
  }
  for (OperationTime* line : {&find, &adopt, &release, &share, &unshare}) {
    report_->operations.push_back(std::move(*line));
  }
}

// A prompt's leaf is reclaimed page by page from its end, and another published in its place.
void OperationBench::Replacements() {
  OperationTime publish = Line("publish", "block", true);
  OperationTime checkpoint = Line("publish checkpoint", "member", true);
  OperationTime reclaim = Line("reclaim", "page", true);
  OperationTime reclaim_checkpoint = Line("reclaim checkpoint", "member", true);
  const Organisation& table = forest_.table();
  Ledger& ledger = forest_.ledger();
  PrefixIndex& index = forest_.index();
  for (uint32_t i = 0; i < options_.samples; ++i) {
    const uint32_t prompt = Pick();
    const std::span<const PageId> pages = forest_.LeafPages(prompt);
    LedgerLock lock(ledger);
    const uint64_t begin = NowNs();
    TESSERA_CHECK(ledger.Reclaim(lock, forest_.LeafCheckpoint(prompt)));
    const uint64_t without = NowNs();
    for (size_t p = pages.size(); p > 0; --p) {
      TESSERA_CHECK(ledger.ReclaimPage(lock, table.attention_pool, pages[p - 1]) == 1);
    }
    const uint64_t reclaimed = NowNs();
    Add(&reclaim_checkpoint, begin, without, members());
    Add(&reclaim, without, reclaimed, pages.size());

    forest_.Renew(prompt);
    const std::vector<TokenId> tokens = forest_.TokensOf(prompt);
    Lease lease = index.Adopt(lock, index.Find(lock, {.prompt = tokens, .salt = {}}));
    const PromptForest::Written written = forest_.TakeLeaf(lock);
    PublishPath path = index.OpenPath(lock, {}, lease);
    const std::span<const TokenId> own =
        std::span(tokens).subspan(lease.position(), PromptForest::kLeafTokens);
    const uint64_t publishing = NowNs();
    forest_.PublishGroups(lock, &path, own, written.pages);
    const uint64_t published = NowNs();
    forest_.PublishCheckpoint(lock, prompt, path, written);
    const uint64_t done = NowNs();
    forest_.Remember(prompt, written);
    forest_.LetGo(lock, written);
    index.ClosePath(lock, &path);
    index.Release(lock, &lease);
    Add(&publish, publishing, published, kBlocksOfLeaf);
    Add(&checkpoint, published, done, members());
  }
  for (OperationTime* line : {&publish, &checkpoint, &reclaim, &reclaim_checkpoint}) {
    report_->operations.push_back(std::move(*line));
  }
}

// The policy takes what is worth least until so much is free; the forest is not whole afterwards.
void OperationBench::Evictions() {
  OperationTime evict = Line("evict", "page", true);
  LedgerLock lock(forest_.ledger());
  const int pool = forest_.table().attention_pool;
  const PagePool& pages = forest_.ledger().pool(pool);
  const uint32_t at_once = kBlocksOfLeaf + members();
  for (uint32_t i = 0; i < options_.samples; ++i) {
    const uint32_t before = pages.free_pages();
    const uint32_t wanted = before + at_once;
    const uint64_t begin = NowNs();
    const bool enough =
        forest_.index().MakeRoom(lock, pool, [&] { return pages.free_pages() >= wanted; });
    const uint64_t end = NowNs();
    if (!enough) break;  // nothing is left
    Add(&evict, begin, end, pages.free_pages() - before);
  }
  report_->operations.push_back(std::move(evict));
}

// Seconds that so many steps of each thread take, all at once.
double OperationBench::RequestsOf(Crew* crew, uint32_t requests_per_step, uint32_t steps) {
  PromptForest& forest = forest_;
  std::vector<std::vector<std::vector<TokenId>>> prompts(static_cast<size_t>(crew->threads()));
  for (std::vector<std::vector<TokenId>>& own : prompts) {
    for (uint32_t i = 0; i < requests_per_step * steps; ++i) own.push_back(forest.TokensOf(Pick()));
  }
  const Timing timing = crew->Run([&](int member) {
    auto next = prompts[static_cast<size_t>(member)].begin();
    for (uint32_t step = 0; step < steps; ++step) {
      LedgerLock lock(forest.ledger());
      for (uint32_t i = 0; i < requests_per_step; ++i, ++next) {
        const Match match = forest.index().Find(lock, {.prompt = *next, .salt = {}});
        Lease lease = forest.index().Adopt(lock, match);
        forest.index().CountLookup(lock, match);
        forest.index().Release(lock, &lease);
      }
    }
  });
  return timing.seconds();
}

Status OperationBench::Rates() {
  for (uint32_t threads : options_.threads) {
    TESSERA_ASSIGN_OR_RETURN(const auto crew, Crew::Create(static_cast<int>(threads)));
    for (uint32_t batch : {1u, options_.requests_per_step}) {
      const uint32_t steps = std::max(1u, options_.samples / batch);
      Samples seconds;
      for (int round = 0; round < 5; ++round) seconds.Add(RequestsOf(crew.get(), batch, steps));
      const double requests = static_cast<double>(steps) * batch * threads;
      report_->rates.push_back({entries_, threads, batch,
                                1e9 * seconds.Median() / requests / kBlocksOfPrompt,
                                requests / seconds.Median()});
      if (options_.requests_per_step == 1) break;
    }
  }
  return Status::Ok();
}

Status RunSize(const MemoryBenchOptions& options, const Organisation& table, uint64_t entries,
               MemoryBenchReport* report) {
  auto say = [&](const char* what) {
    if (options.progress) options.progress(fmt::format("{} entries: {}", entries, what));
  };
  const uint64_t needed = PromptForest::MetadataBytes(table, entries);
  const uint64_t available =
      options.memory_bytes > 0 ? options.memory_bytes : AvailableBytes() / 4 * 3;
  if (needed > available) {
    report->left_out.push_back({entries, needed, available});
    return Status::Ok();
  }
  say("filling");
  PromptForest forest(table, entries);
  OperationBench bench(options, entries, &forest, report);
  say("operations");
  bench.Requests(/*cold=*/true);
  bench.Requests(/*cold=*/false);
  bench.Replacements();
  TESSERA_RETURN_IF_ERROR(bench.Rates());
  bench.Evictions();
  LedgerLock lock(forest.ledger());
  // A number is worth nothing when what was measured is broken; the deep levels take minutes.
  return forest.ledger().Validate(lock, 1);
}

}  // namespace

Result<MemoryBenchReport> RunMemoryBench(const MemoryBenchOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const StateGeometry geometry, FindGeometry(options.geometry));
  if (geometry.shape.attention_layers == 0 || geometry.shape.recurrent_layers == 0) {
    return InvalidArgument(fmt::format(
        "--geometry {}: {} attention and {} recurrent layers; a hybrid model has both",
        options.geometry, geometry.shape.attention_layers, geometry.shape.recurrent_layers));
  }
  MemoryBenchReport report;
  report.geometry = geometry.name;
  report.cpu = CpuModelName();
  report.samples = options.samples;
  TESSERA_ASSIGN_OR_RETURN(const Organisation s3,
                           DescribeOrganisation(OrganisationSpec(), geometry.shape));
  for (uint64_t entries : options.entries) {
    TESSERA_RETURN_IF_ERROR(RunSize(options, s3, entries, &report));
  }
  uint64_t most = 0;
  for (const OperationTime& line : report.operations) most = std::max(most, line.entries);
  if (most > 0) {
    TESSERA_RETURN_IF_ERROR(RunReclaimBench(options, geometry.shape, most, &report));
  }
  return report;
}

}  // namespace tessera
