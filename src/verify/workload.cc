// SPDX-License-Identifier: Apache-2.0
#include "verify/workload.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"

namespace tessera {
namespace {

struct Length {
  uint32_t prompt;
  uint32_t decode;
};
// One ends inside a group, one fills groups exactly, one begins with a single token, two are long
// enough to be cut often.
constexpr Length kCompanions[] = {{37, 12}, {64, 16}, {1, 15}, {90, 3}, {5, 28}, {49, 1}};

Script MakeScript(const ModelShape& shape, Length length, uint64_t seed) {
  const uint32_t longest = std::max(shape.context_length, 2u);
  Script script;
  script.prompt_tokens = std::min(length.prompt, longest - 1);
  const uint32_t total = std::min(length.prompt + length.decode, longest);
  Random random(seed);
  for (uint32_t i = 0; i < total; ++i) {
    script.tokens.push_back(static_cast<TokenId>(random.Below(shape.vocab_size)));
  }
  return script;
}

}  // namespace

uint32_t Workload::longest() const {
  uint32_t longest = 0;
  for (const Script& script : scripts) longest = std::max(longest, script.size());
  return longest;
}

Workload MakeWorkload(const ModelShape& shape, const WorkloadSize& size, uint64_t seed) {
  Workload workload;
  workload.scripts.push_back(
      MakeScript(shape, {size.prompt_tokens, size.decode_tokens}, CounterRandom(seed, 0)));
  const uint32_t companions =
      std::min(size.companions, static_cast<uint32_t>(std::size(kCompanions)));
  for (uint32_t i = 0; i < companions; ++i) {
    workload.scripts.push_back(MakeScript(shape, kCompanions[i], CounterRandom(seed, i + 1)));
  }
  return workload;
}

std::vector<Role> RolesOf(Mix mix, const Workload& workload) {
  std::vector<Role> roles = {{.script = 0}};
  const uint32_t companions = static_cast<uint32_t>(workload.scripts.size()) - 1;
  if (mix == Mix::kAlone || companions == 0) return roles;
  const double share = 1.0 / companions;
  for (uint32_t i = 0; i < companions; ++i) {
    Role role = {.script = i + 1};
    switch (mix) {
      case Mix::kPrefilling:  // one after another, each overlapping the next
        role.begin = i * share;
        role.end = std::min(1.0, (i + 1.5) * share);
        break;
      case Mix::kDecoding:
        role.prompt_first = true;
        break;
      case Mix::kJoining:  // two at once at any time, of different length, some outlive the subject
        role.begin = 0.5 * i * share;
        role.end = role.begin + (i % 2 == 0 ? 0.2 : 0.6);
        break;
      case Mix::kAlone:
        break;
    }
    roles.push_back(role);
  }
  return roles;
}

}  // namespace tessera
