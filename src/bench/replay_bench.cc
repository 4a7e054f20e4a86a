// SPDX-License-Identifier: Apache-2.0
#include "bench/replay_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "bench/replay_capacity.h"
#include "memory/geometry/named_geometries.h"
#include "memory/store/state_store.h"
#include "port/clock.h"
#include "port/process_memory.h"
#include "trace/trace_tokens.h"

namespace tessera {
namespace {

// The most there are: two blocks are equal by chance in one of 2^31 tokens.
constexpr uint32_t kVocabulary = uint32_t{1} << 31;
// Of index and ledger for each node, in any organisation (state_store: 265 measured in S3).
constexpr uint64_t kBytesPerNode = 288;
// Beyond it tokens times bytes would overflow.
constexpr uint64_t kCapacityMax = uint64_t{1} << 40;

class Replayer {
 public:
  Replayer(const RequestTrace& trace, const ReplayOptions& options, StateStore* store)
      : trace_(trace),
        store_(*store),
        keeps_whole_blocks_(options.model.shape.recurrent_layers == 0),
        tokens_(trace, PartialBlock::kOwn, kVocabulary) {
    result_.trace = trace.name;
    result_.at_once = options.at_once;
    result_.capacity_tokens = options.capacity_tokens;
    result_.policy = options.policy;
  }

  // False when it never fits; `reason` says why.
  bool Add(const TraceRequest& request, std::string* reason);
  ReplayResult Finish();

 private:
  void Prefill(uint32_t full, SequenceState* sequence);
  void Count(const TraceRequest& request, const MatchReport& match);

  const RequestTrace& trace_;
  StateStore& store_;
  const bool keeps_whole_blocks_;
  const TraceTokens tokens_;
  std::vector<TokenId> prompt_;
  ReplayResult result_;
};

bool Replayer::Add(const TraceRequest& request, std::string* reason) {
  ++result_.requests;
  result_.input_tokens += request.input_tokens;
  if (request.input_tokens == 0) return true;
  tokens_.Prompt(request, &prompt_);
  const uint32_t full = static_cast<uint32_t>(KnownBlocks(trace_, request) * trace_.block_tokens);
  const size_t length = std::min<size_t>(prompt_.size(), size_t{full} + 1);
  prompt_.resize(size_t{full} + 1);  // where nothing follows the blocks, the answer begins
  SequenceRequest asked{.max_tokens = prompt_.size(), .prompt = std::span(prompt_).first(length)};
  // Attention of a whole block is of use to longer prompts, also where it ends this one.
  if (keeps_whole_blocks_) asked.checkpoint_at = {&full, 1};
  const uint64_t start = NowNs();
  AdmitResult admitted = store_.Admit(asked);
  if (admitted.outcome != Admission::kAdmitted) {
    // Nobody else is there whose end would help.
    TESSERA_CHECK(admitted.outcome == Admission::kNeverFits);
    ++result_.refused;
    result_.refused_tokens += request.input_tokens;
    *reason = admitted.reason;
    return false;
  }
  const MatchReport match = admitted.sequence->match();
  Prefill(full, &*admitted.sequence);
  admitted.sequence.reset();
  result_.request_us.Add(static_cast<double>(NowNs() - start) * 1e-3);
  Count(request, match);
  return true;
}

// To the last boundary; on a grid on to after the full blocks, which are kept up to their end: it is
// no boundary itself, so that what is known of the prompt does not depend on where the grid is.
void Replayer::Prefill(uint32_t full, SequenceState* sequence) {
  const bool goes_on = (full + 1) % result_.policy.grid != 0;
  uint32_t tokens = sequence->TokensToCut();
  while (tokens != SequenceState::kNoCut) {
    sequence->BeginStep(tokens);
    sequence->EndStep();
    tokens = sequence->TokensToCut();
    const bool last = tokens == SequenceState::kNoCut && (!goes_on || sequence->position() == full);
    sequence->Publish(prompt_, {}, last);
  }
  if (!goes_on || sequence->position() >= full) return;
  sequence->BeginStep(full + 1 - static_cast<uint32_t>(sequence->position()));
  sequence->EndStep();
  sequence->Publish(prompt_, {}, /*last=*/true);
}

void Replayer::Count(const TraceRequest& request, const MatchReport& match) {
  result_.hits += match.reused > 0 ? 1 : 0;
  result_.reused_tokens += match.reused;
  for (uint32_t i = 0; i < match.computed_count; ++i) {
    const ComputedRange& range = match.computed[i];
    // What follows the full blocks is computed for the same reason as its first token.
    const bool last = i + 1 == match.computed_count;
    result_.computed_tokens[static_cast<size_t>(range.reason)] +=
        (last ? request.input_tokens : range.end) - range.begin;
  }
  const ReuseStats reuse = store_.Stats().reuse;
  result_.peak_entries = std::max(result_.peak_entries, uint64_t{reuse.blocks} + reuse.checkpoints);
  result_.peak_checkpoints = std::max<uint64_t>(result_.peak_checkpoints, reuse.checkpoints);
}

ReplayResult Replayer::Finish() {
  const StoreStats stats = store_.Stats();
  result_.placed_checkpoints = stats.reuse.published_checkpoints;
  result_.skipped_checkpoints = stats.reuse.skipped_checkpoints;
  result_.evicted_checkpoints = stats.reuse.evicted_checkpoints;
  result_.evicted_blocks = stats.reuse.evicted_blocks;
  result_.metadata_bytes = stats.metadata_bytes;
  return std::move(result_);
}

// The index has a node for every 16 tokens there is room for.
Status CheckMetadata(const Organisation& table, const ReplayOptions& options) {
  const uint64_t pages = table.pools[static_cast<size_t>(table.attention_pool)].page_count;
  const uint64_t needed = pages * table.groups_per_page * kBytesPerNode;
  const uint64_t available =
      options.memory_bytes > 0 ? options.memory_bytes : AvailableMemoryBytes() / 4 * 3;
  if (needed <= available) return Status::Ok();
  return NoMemory(fmt::format(
      "capacity {}: the index of {} pages takes {}, there are {}; expected less capacity or, where "
      "only placement counts, a lower price",
      TokenCapacityText(options.capacity_tokens), pages, FormatBytes(needed),
      FormatBytes(available)));
}

Result<StoreOptions> StoreOptionsFor(const RequestTrace& trace, const ReplayOptions& options) {
  StoreOptions store;
  store.shape = options.model.shape;
  store.organisation = options.organisation;
  store.dry = true;
  store.reuse.checkpoint_grid = options.policy.grid;
  store.reuse.placement = options.policy.placement;
  store.reuse.eviction = options.policy.eviction;
  if (options.capacity_tokens.has_value()) {
    store.budget_bytes = *options.capacity_tokens * options.model.token_bytes();
  } else {
    TESSERA_ASSIGN_OR_RETURN(store.budget_bytes, BytesForWholeTrace(trace, options));
  }
  TESSERA_ASSIGN_OR_RETURN(const Organisation table,
                           MakeOrganisation(store.organisation, store.shape, store.budget_bytes));
  TESSERA_RETURN_IF_ERROR(CheckMetadata(table, options));
  return store;
}

}  // namespace

// ---- Models.

// A token takes 64 bytes, as does a row of the image.
ReplayModel ReplayModel::OfPrice(uint32_t tokens) {
  TESSERA_CHECK(tokens <= kMaxTraceTokens);
  ReplayModel model{.name = fmt::format("price {}", tokens), .shape = {}};
  model.shape = {.attention_layers = 1, .kv_heads = 1, .head_dim = 16};
  if (tokens > 0) {
    model.shape.recurrent_layers = 1;
    model.shape.ssm_heads = tokens;
    model.shape.ssm_head_dim = 1;
    model.shape.ssm_state = 16;
  }
  return model;
}

Result<ReplayModel> ReplayModel::OfGeometry(std::string_view name, StateType state) {
  TESSERA_ASSIGN_OR_RETURN(const StateGeometry geometry, FindGeometry(name));
  ReplayModel model{
      .name = fmt::format("{}, {} state", geometry.name, StateTypeName(state)),
      .shape = geometry.shape,
  };
  model.shape.state_type = state;
  if (model.shape.attention_layers == 0) {
    return InvalidArgument(fmt::format(
        "{} has no attention layers: expected a model whose capacity can be told in tokens",
        geometry.name));
  }
  return model;
}

uint64_t ReplayModel::token_bytes() const {
  return shape.kv_bytes_per_token_layer() * shape.attention_layers;
}

uint64_t ReplayModel::price_tokens() const {
  return DivideUp(shape.ssm_bytes() + shape.conv_bytes(), token_bytes());
}

// ---- Policies.

std::string ReplayPolicy::ToString() const {
  return fmt::format("{}/{}@{}", placement.ToString(), EvictionPolicyName(eviction), grid);
}

std::vector<ReplayPolicy> ComparedPolicies() {
  using Kind = PlacementSpec::Kind;
  std::vector<ReplayPolicy> policies;
  for (const uint32_t grid : {512u, 1792u}) {
    policies.push_back({{Kind::kDense, grid}, EvictionPolicy::kLru, grid});
  }
  policies.push_back({{Kind::kTail, 0}, EvictionPolicy::kLru, 512});
  for (const uint32_t grid : {512u, 1792u}) {
    policies.push_back({{Kind::kTailBranch, 0}, EvictionPolicy::kLru, grid});
  }
  policies.push_back({{Kind::kTailBranch, 0}, EvictionPolicy::kFlop, 512});
  policies.push_back({{Kind::kDefault, 0}, EvictionPolicy::kValue, 512});
  return policies;
}

// ---- Capacities.

Result<std::optional<uint64_t>> ParseTokenCapacity(std::string_view text) {
  if (text == "unlimited") return std::optional<uint64_t>();
  uint64_t tokens = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  const uint64_t multiple = unit.empty()  ? 1
                            : unit == "K" ? kKiB
                            : unit == "M" ? kMiB
                            : unit == "G" ? kGiB
                                          : 0;
  if (error != std::errc() || multiple == 0 || tokens == 0 || tokens > kCapacityMax / multiple) {
    return InvalidArgument(fmt::format(
        "'{}' is not a number of tokens from 1 to 2^40 (like 96000, 512K or 4M, K = 1,024) nor "
        "'unlimited'",
        text));
  }
  return std::optional<uint64_t>(tokens * multiple);
}

std::string TokenCapacityText(std::optional<uint64_t> tokens) {
  if (!tokens.has_value()) return "unlimited";
  if (*tokens % kMiB == 0) return fmt::format("{}M", *tokens / kMiB);
  if (*tokens % kKiB == 0) return fmt::format("{}K", *tokens / kKiB);
  return fmt::format("{}", *tokens);
}

// ---- Replaying.

Result<ReplayResult> Replay(const RequestTrace& trace, const ReplayOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const StoreOptions store_options, StoreOptionsFor(trace, options));
  TESSERA_ASSIGN_OR_RETURN(const std::unique_ptr<StateStore> store,
                           StateStore::Create(store_options));
  Replayer replayer(trace, options, store.get());
  bool any_fits = trace.requests.empty();
  std::string reason;
  for (const uint32_t i : ReplayOrder(trace, options.at_once, options.seed)) {
    any_fits = replayer.Add(trace.requests[i], &reason) || any_fits;
  }
  if (!any_fits) {
    return NoMemory(fmt::format("capacity {}: no request of {} fits; of the last, {}",
                                TokenCapacityText(options.capacity_tokens), trace.name, reason));
  }
  return replayer.Finish();
}

Result<ReplayReport> RunReplays(const std::vector<RequestTrace>& traces, const ReplaySet& set) {
  ReplayReport report{.model = set.options.model,
                      .organisation = set.options.organisation.ToString(),
                      .seed = set.options.seed,
                      .compared = set.compared,
                      .runs = {}};
  for (const RequestTrace& trace : traces) {
    for (const std::optional<uint64_t>& capacity : set.capacities) {
      for (const ReplayPolicy& policy : set.policies) {
        if (set.progress) {
          set.progress(fmt::format("{}, {}, {}", trace.name, TokenCapacityText(capacity),
                                   policy.ToString()));
        }
        ReplayOptions options = set.options;
        options.capacity_tokens = capacity;
        options.policy = policy;
        TESSERA_ASSIGN_OR_RETURN(ReplayResult result, Replay(trace, options));
        report.runs.push_back(std::move(result));
      }
    }
  }
  return report;
}

}  // namespace tessera
