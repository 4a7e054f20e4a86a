// SPDX-License-Identifier: Apache-2.0
//
// `bench replay`: what a StateStore of some capacity reuses of a recorded load. It is the store of
// the engine, with its index, placement and eviction, but dry: no byte of state and no model.
//
// Requests come one after another in ReplayOrder. Only prompts are kept, not answers. Of a prompt
// the full blocks are known to be equal to others, and what is after them to none: a request is its
// full blocks and, when something follows them, one token more, so that a checkpoint may stand at
// the end of the full blocks. Every request runs its prefill in one go, cut at the boundaries that
// the store plans, and ends.
//
//   hit rate   tokens reused / tokens of all prompts, partial blocks included
//   capacity   the budget in tokens of attention state; a checkpoint takes `price` of them
//   refused    requests that the capacity never fits: they reuse nothing and leave nothing
//
// With unlimited capacity and no kept rows the placements dense:g, tail and tail+branch on grid g
// give the reference figures of bench/traces/README.md (replay_reference.h).
//
// Failure: kInvalidArgument for a shape or organisation that will not do, kNoMemory when no request
// fits or the index would take more memory than there is. Threads: one call at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/samples.h"
#include "memory/geometry/organisation.h"
#include "memory/geometry/state_shape.h"
#include "memory/prefix/match.h"
#include "memory/prefix/policy.h"
#include "trace/request_trace.h"

namespace tessera {

// Whose state it is.
struct ReplayModel {
  std::string name;
  StateShape shape;

  // A model of one attention and one recurrent layer whose checkpoint takes as much as so many
  // tokens of attention; with 0 it has attention alone. At most kMaxTraceTokens.
  static ReplayModel OfPrice(uint32_t tokens);
  // One of the named geometries.
  static Result<ReplayModel> OfGeometry(std::string_view name, StateType state);

  uint64_t token_bytes() const;  // of attention, all layers
  uint64_t price_tokens() const;
};

struct ReplayPolicy {
  PlacementSpec placement;
  EvictionPolicy eviction = EvictionPolicy::kValue;
  uint32_t grid = 1;

  std::string ToString() const;  // "tail+branch/lru@512"
};

// What the default is held against, itself last: dense, tail and tail+branch by last use,
// tail+branch by operations saved; on grids of 512 tokens, dense and tail+branch of 1,792 as well.
std::vector<ReplayPolicy> ComparedPolicies();

struct ReplayOptions {
  ReplayModel model;
  OrganisationSpec organisation;
  std::optional<uint64_t> capacity_tokens;  // none: as much as the trace can fill
  ReplayPolicy policy;
  uint32_t at_once = 0;  // as ReplayOrder
  uint64_t seed = 0;
  uint64_t memory_bytes = 0;  // for the index; 0: three quarters of what there is
};

struct ReplayResult {
  std::string trace;
  uint32_t at_once = 0;
  std::optional<uint64_t> capacity_tokens;
  ReplayPolicy policy;
  uint64_t requests = 0;
  uint64_t hits = 0;  // requests that reused anything
  uint64_t refused = 0;
  uint64_t input_tokens = 0;
  uint64_t reused_tokens = 0;
  uint64_t refused_tokens = 0;
  uint64_t computed_tokens[kComputeReasons] = {};  // by ComputeReason
  uint64_t placed_checkpoints = 0;
  uint64_t skipped_checkpoints = 0;
  uint64_t evicted_checkpoints = 0;
  uint64_t evicted_blocks = 0;
  uint64_t peak_entries = 0;      // blocks and checkpoints between requests
  uint64_t peak_checkpoints = 0;  // likewise
  uint64_t metadata_bytes = 0;
  Samples request_us;  // in the store, of admitted requests

  double rate(uint64_t tokens) const {
    return input_tokens == 0 ? 0 : static_cast<double>(tokens) / static_cast<double>(input_tokens);
  }
  double hit_rate() const { return rate(reused_tokens); }
};

Result<ReplayResult> Replay(const RequestTrace& trace, const ReplayOptions& options);

struct ReplayReport {
  ReplayModel model;
  std::string organisation;
  uint64_t seed = 0;
  bool compared = false;  // by ComparedPolicies: shown as one line for each capacity
  std::vector<ReplayResult> runs;
};

// Every trace with every capacity and policy. `progress` (may be empty) is told what runs.
struct ReplaySet {
  ReplayOptions options;  // capacity and policy are taken from the lists
  std::vector<std::optional<uint64_t>> capacities;
  std::vector<ReplayPolicy> policies;
  bool compared = false;
  std::function<void(const std::string& what)> progress;
};
Result<ReplayReport> RunReplays(const std::vector<RequestTrace>& traces, const ReplaySet& set);

// "1M" = 2^20, "512K", "96000"; "unlimited" is none. kInvalidArgument for anything else and for 0.
Result<std::optional<uint64_t>> ParseTokenCapacity(std::string_view text);
std::string TokenCapacityText(std::optional<uint64_t> tokens);

std::string ReplayText(const ReplayReport& report);
std::string ReplayJson(const ReplayReport& report);

}  // namespace tessera
