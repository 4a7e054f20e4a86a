// SPDX-License-Identifier: Apache-2.0
//
// Workload is the sequences of a matrix: scripts of seeded random tokens, the subject first and its
// companions after it. Tokens are given, not sampled, so a wrong bit early on leaves the later
// tokens as they were and every row keeps its meaning.
//
// A Role says when a script takes part. A companion's progress is tied to the subject's: it joins
// when the subject has done `begin` of its tokens and is paced to be through at `end`, so the two
// overlap in the same way whatever the subject's cut makes of the number of steps.
//
// For prefix reuse there are a second subject, short enough to be started from at each of its
// boundaries, and branches: scripts that share a subject's tokens up to a boundary and then go on
// in their own way. A HitPoint is a boundary at which a subject publishes its state, with who
// starts from it.
//
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/strong_id.h"
#include "compute/model/model_shape.h"
#include "verify/matrix.h"

namespace tessera {

// Adopted there: by another run of the same script, then by a branch. With another salt, the same
// script must find nothing.
struct HitPoint {
  static constexpr uint32_t kNoBranch = UINT32_MAX;
  uint32_t at = 0;
  bool same = false;
  uint32_t branch = kNoBranch;  // script
  bool salted = false;
};

struct Script {
  std::vector<TokenId> tokens;            // prompt, then what is "decoded" one by one
  uint32_t prompt_tokens = 0;             // at least 1
  std::vector<HitPoint> hit_points = {};  // ascending, 1 .. prompt_tokens; subjects only

  uint32_t size() const { return static_cast<uint32_t>(tokens.size()); }
  // Logits are compared after every decoded token, after the prompt, and here and there inside it.
  bool logits_at(uint32_t position) const {
    return position + 1 >= prompt_tokens || position % 61 == 0;
  }
};

enum class HitPoints : uint8_t {
  kNone,
  kFew,  // for models whose tokens are dear
  kAll,
};

struct WorkloadSize {
  uint32_t prompt_tokens = 0;  // of the subject
  uint32_t decode_tokens = 0;
  uint32_t companions = 0;
  HitPoints hits = HitPoints::kAll;
};

struct Workload {
  std::vector<Script> scripts;  // the subject, its companions, the short subject, branches
  uint32_t companions = 0;
  uint32_t short_subject = 0;

  uint32_t longest() const;
};

// Lengths are cut to what the model's context length allows.
Workload MakeWorkload(const ModelShape& shape, const WorkloadSize& size, uint64_t seed);

struct Role {
  uint32_t script = 0;
  double begin = 0;           // of the subject's tokens
  double end = 1;             // > begin
  bool prompt_first = false;  // its prompt is processed before the subject starts
};

// The subject's role is first; under hits everywhere it is the short one's.
std::vector<Role> RolesOf(Mix mix, Reuse reuse, const Workload& workload);

}  // namespace tessera
