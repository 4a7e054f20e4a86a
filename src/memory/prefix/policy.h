// SPDX-License-Identifier: Apache-2.0
//
// The policies of prefix reuse that can be chosen by name, and their parsers.
//
//   placement   default         tail, branch points, message ends, named positions, and a spare one
//                               every so many tokens while memory is plentiful
//               tail            the end of the prompt and of the turn only
//               tail+branch     and where a second request leaves a known prefix
//               dense:N         every N tokens; of the others only named positions
//   eviction    value           by tokens saved per page freed (eviction.h)
//               lru             by last use alone
//               flop            last use and operations saved per byte (as Marconi does)
//   retention   off | producer[:n] | after[:n,share] | strict
//
// Failure: kInvalidArgument with what there is. Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera {

struct PlacementSpec {
  enum class Kind : uint8_t { kDefault, kTail, kTailBranch, kDense };
  Kind kind = Kind::kDefault;
  uint32_t dense_tokens = 0;  // kDense: at least 1

  static Result<PlacementSpec> Parse(std::string_view text);
  std::string ToString() const;
};

enum class EvictionPolicy : uint8_t { kValue, kLru, kFlop };
Result<EvictionPolicy> ParseEvictionPolicy(std::string_view text);
std::string_view EvictionPolicyName(EvictionPolicy policy);

// A checkpoint that at least `wanted_by` requests asked for is kept longer: while the request that
// made it runs (producer; strict: whatever the pressure), or after that too while such checkpoints
// take no more than `share` of the state memory (after).
struct RetentionSpec {
  enum class Kind : uint8_t { kOff, kProducer, kAfter, kStrict };
  Kind kind = Kind::kOff;
  uint32_t wanted_by = 2;  // at least 1
  double share = 0.1;      // kAfter: in (0, 1]

  static Result<RetentionSpec> Parse(std::string_view text);
  std::string ToString() const;
};

}  // namespace tessera
