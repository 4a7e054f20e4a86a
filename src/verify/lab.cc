// SPDX-License-Identifier: Apache-2.0
#include "verify/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "compute/model/forward.h"
#include "port/process_memory.h"
#include "verify/cell_run.h"
#include "verify/cell_store.h"
#include "verify/hostile_float_environment.h"

namespace tessera {
namespace {

bool HasHits(const CellSettings& cell) {
  return cell.reuse == Reuse::kHitsEverywhere || cell.reuse == Reuse::kHitsAtEdges;
}

// Prompt tokens that an adopter computes, at most.
uint32_t LongestTail(const Script& lead, const Workload& workload) {
  uint32_t longest = 0;
  for (const HitPoint& point : lead.hit_points) {
    if (point.salted) longest = lead.prompt_tokens;
    if (point.same) longest = std::max(longest, lead.prompt_tokens - point.at);
    if (point.branch == HitPoint::kNoBranch) continue;
    longest = std::max(longest, workload.scripts[point.branch].prompt_tokens - point.at);
  }
  return longest;
}

// The longest step: every prompt at once, or where sequences are preempted, all of each.
ForwardLimits LimitsOf(const CellSettings& cell, const std::vector<Role>& roles,
                       const Workload& workload) {
  ForwardLimits limits{.rows = 0,
                       .sequences = static_cast<uint32_t>(roles.size()),
                       .head_rows = CellRun::kHeadRows,
                       .context_length = workload.longest()};
  const bool again = cell.reuse == Reuse::kPreempted || cell.reuse == Reuse::kEvicted;
  for (const Role& role : roles) {
    const Script& script = workload.scripts[role.script];
    limits.rows += again ? script.size() : script.prompt_tokens;
  }
  if (HasHits(cell)) {
    limits.sequences += kAdoptersMax;
    limits.rows += kAdoptersMax * LongestTail(workload.scripts[roles[0].script], workload);
  }
  limits.rows += limits.sequences;
  return limits;
}

}  // namespace

Lab::Lab(const Model& model, Workload workload, StateType state_type)
    : model_(model), workload_(std::move(workload)), state_type_(state_type) {}

Lab::~Lab() = default;

Result<ThreadPool*> Lab::Threads(int count) {
  std::unique_ptr<ThreadPool>& pool = threads_[count];
  if (pool == nullptr) {
    // Workers inherit the caller's float environment and must not keep it.
    const HostileFloatEnvironment hostile(&kTowardZero);
    TESSERA_ASSIGN_OR_RETURN(pool, ThreadPool::Create(count));
  }
  return pool.get();
}

Status Lab::Run(const CellSettings& cell, Fault fault, EvidenceSink* sink) {
  return RunRoles(cell, fault, RolesOf(cell.mix, cell.reuse, workload_), sink);
}

Status Lab::RunReference(const CellSettings& reference, ReferenceRecorder* recorder) {
  for (uint32_t script = 0; script < workload_.scripts.size(); ++script) {
    TESSERA_RETURN_IF_ERROR(RunRoles(reference, Fault::kNone, {{.script = script}}, recorder));
  }
  return Status::Ok();
}

Status Lab::RunRoles(const CellSettings& cell, Fault fault, const std::vector<Role>& roles,
                     EvidenceSink* sink) {
  const ForwardLimits limits = LimitsOf(cell, roles, workload_);
  const uint64_t activations = Forward::ActivationBytes(model_.shape(), limits, cell.threads);
  if (activations > AvailableMemoryBytes()) {
    return NoMemory(
        fmt::format("a cell of the matrix needs {} of activations", FormatBytes(activations)));
  }
  TESSERA_ASSIGN_OR_RETURN(auto store, MakeCellStore(model_, state_type_, cell, roles, workload_));
  const KernelTable broken = fault == Fault::kNone ? *cell.kernels : BrokenKernels(fault);
  TESSERA_ASSIGN_OR_RETURN(ThreadPool * threads, Threads(cell.threads));
  std::optional<Forward> forward;
  {
    const HostileFloatEnvironment hostile(cell.float_mode);
    forward.emplace(model_, state_type_, broken, *threads, limits);
  }
  CellRun(model_, workload_, cell, fault, roles, store.get(), &*forward, sink).Run();
  return Status::Ok();
}

}  // namespace tessera
