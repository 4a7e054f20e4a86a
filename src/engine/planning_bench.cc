// SPDX-License-Identifier: Apache-2.0
//
// planning_bench [STEPS]: what planning a step costs, look-ups, growth, eviction and preemption
// included, with a real state store of Falcon-H1-7B's geometry without bytes behind it. Prints a
// line for each number of running sequences and load; never asserts speed.
//
//   calm    all decode, memory for all, nobody waits
//   queue   the same, and 1,000 wait for a place
//   short   memory for two fifths of them at their full length: all the time somebody grows, is
//           preempted, evicted, admitted again or refused, and 1,000 wait
//
// Times are of the thread's CPU: what else the machine does is not planning.
// A sequence has a prompt of 64 to 512 tokens, half of it one of eight common texts, and decodes 256.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "engine/scheduler.h"
#include "memory/geometry/named_geometries.h"
#include "memory/store/state_store.h"

namespace tessera {
namespace {

constexpr uint32_t kDecodes = 256;
constexpr uint32_t kLongestPrompt = 512;

double CpuNs() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

struct Sequence {
  std::vector<TokenId> tokens;
  uint32_t prompt = 0;
  std::optional<SequenceState> state;
  bool publishes = true;
  bool preempted = false;
};

class StoreMemory final : public SchedulerMemory {
 public:
  explicit StoreMemory(StateStore* store) : store_(*store) {}

  Sequence& at(SequenceId id) { return *sequences_.at(id.index()); }
  void Add(SequenceId id, Random& random) {
    auto sequence = std::make_unique<Sequence>();
    sequence->prompt = 64 + static_cast<uint32_t>(random.Below(kLongestPrompt - 64));
    Random common(random.Below(8));
    for (uint32_t i = 0; i < sequence->prompt; ++i) {
      Random& source = i < sequence->prompt / 2 ? common : random;
      sequence->tokens.push_back(static_cast<TokenId>(source.Below(60000)));
    }
    sequence->tokens.reserve(sequence->prompt + kDecodes);
    sequences_.emplace(id.index(), std::move(sequence));
  }
  void Remove(SequenceId id) { sequences_.erase(id.index()); }

  AdmitAnswer Admit(SequenceId id, const AdmitTerms& terms) override {
    Sequence& s = at(id);
    if (terms.pinned) {
      const bool resumed = s.state->Resume(s.state->position() + 1, 0);
      return {.outcome = resumed ? AdmitAnswer::kAdmitted : AdmitAnswer::kMustWait};
    }
    SequenceRequest request;
    request.max_tokens = s.prompt + kDecodes;
    request.prompt = s.tokens;
    request.reserve_tokens =
        std::min<uint64_t>(request.max_tokens, s.tokens.size() + store_.block_tokens());
    request.plan_tokens = s.prompt;
    request.from_row = false;
    request.resumed = s.preempted;
    AdmitResult result = store_.Admit(request);
    if (result.outcome == Admission::kNeverFits) return {.outcome = AdmitAnswer::kNeverFits};
    if (result.outcome == Admission::kMustWait) return {};
    s.state = std::move(result.sequence);
    return {.outcome = AdmitAnswer::kAdmitted,
            .cached_tokens = static_cast<uint32_t>(s.state->position())};
  }
  uint32_t Grow(SequenceId id) override {
    Sequence& s = at(id);
    return s.state->Grow(s.state->position() + 1);
  }
  PreemptCost CostOf(SequenceId id) override {
    const HeldPages pages = at(id).state->held_pages();
    return {pages.unused, pages.all, static_cast<uint32_t>(at(id).state->position())};
  }
  uint32_t Preempt(SequenceId id, Preemption way) override {
    Sequence& s = at(id);
    ++preemptions;
    s.preempted = true;
    if (way == Preemption::kPin) {
      s.state->Pause();
      return 0;
    }
    if (s.publishes && s.state->position() > 0) s.state->Publish(s.tokens, {}, /*last=*/true);
    s.publishes = s.publishes && way != Preemption::kRecomputeAlone;
    s.state.reset();
    return static_cast<uint32_t>(s.tokens.size());
  }
  uint32_t TokensToCut(SequenceId id) override { return at(id).state->TokensToCut(); }

  uint64_t preemptions = 0;

 private:
  StateStore& store_;
  std::unordered_map<uint64_t, std::unique_ptr<Sequence>> sequences_;
};

struct Case {
  const char* name;
  uint32_t running;
  uint32_t waiting;
  double memory;  // of all that run, at their full length
};

class Loaded {
 public:
  explicit Loaded(const Case& load) : load_(load) {
    StoreOptions options;
    options.shape = FindGeometry("falcon-h1-7b")->shape;
    options.dry = true;
    const uint64_t all = *StateStore::BudgetForSequences(options.shape, options.organisation,
                                                         load.running, kLongestPrompt + kDecodes);
    options.budget_bytes = static_cast<uint64_t>(load.memory * static_cast<double>(all));
    store_ = *StateStore::Create(options);
    memory_ = std::make_unique<StoreMemory>(store_.get());
    limits_.max_running = load.running;
    limits_.chunk_tokens = std::max(256u, 2 * load.running);
  }

  // Nanoseconds of planning.
  double OneStep() {
    while (state_.running() + state_.waiting() < load_.running + load_.waiting) {
      const SequenceId id(next_id_++);
      memory_->Add(id, random_);
      state_.Add(id, memory_->at(id).prompt, static_cast<int32_t>(id.index() % 3));
    }
    const double began = CpuNs();
    const Plan plan = Step(state_, limits_, *memory_);
    const double took = CpuNs() - began;
    TESSERA_CHECK(plan.refused.empty());
    std::vector<PlanItem> items(plan.items.begin(), plan.items.end());
    state_.EndStep();
    for (const PlanItem& item : items) Execute(item);
    return took;
  }
  uint32_t running() const { return state_.running(); }
  uint64_t preemptions() const { return memory_->preemptions; }

 private:
  void Execute(const PlanItem& item) {
    Sequence& s = memory_->at(item.id);
    const bool at_cut = s.state->TokensToCut() == item.tokens;
    s.state->BeginStep(item.tokens);
    s.state->EndStep();
    if (at_cut && s.publishes) s.state->Publish(s.tokens, {}, false);
    if (!item.completes_row) return;
    s.tokens.push_back(static_cast<TokenId>(random_.Below(60000)));
    if (s.tokens.size() < s.prompt + kDecodes) return;
    state_.Remove(item.id);
    memory_->Remove(item.id);
  }

  const Case load_;
  std::unique_ptr<StateStore> store_;
  std::unique_ptr<StoreMemory> memory_;
  SchedulerState state_;
  SchedulerLimits limits_;
  Random random_{1};
  uint64_t next_id_ = 1;
};

void Measure(const Case& load, int steps) {
  Loaded loaded(load);
  // Until the first have ended and others take their places.
  for (uint32_t i = 0; i < 2 * kDecodes + load.running; ++i) loaded.OneStep();
  const uint64_t before = loaded.preemptions();
  std::vector<double> ns;
  double running = 0;
  for (int i = 0; i < steps; ++i) {
    ns.push_back(loaded.OneStep());
    running += loaded.running();
  }
  std::sort(ns.begin(), ns.end());
  double sum = 0;
  for (double value : ns) sum += value;
  const auto count = static_cast<double>(steps);
  std::printf("%-6s %8u %9.1f %8u %11.2f %9.1f %9.1f %9.1f %9.1f\n", load.name, load.running,
              running / count, load.waiting,
              static_cast<double>(loaded.preemptions() - before) / count, ns[ns.size() / 2] / 1000,
              sum / count / 1000, ns[ns.size() * 99 / 100] / 1000, ns.back() / 1000);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2000;
  std::printf("planning a step, us\n%-6s %8s %9s %8s %11s %9s %9s %9s %9s\n", "load", "at most",
              "running", "waiting", "preempted", "median", "mean", "p99", "highest");
  for (uint32_t running : {16u, 64u, 256u}) {
    tessera::Measure({"calm", running, 0, 1.2}, steps);
    tessera::Measure({"queue", running, 1000, 1.2}, steps);
    tessera::Measure({"short", running, 1000, 0.4}, steps);
  }
  return 0;
}
