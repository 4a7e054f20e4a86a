// SPDX-License-Identifier: Apache-2.0
#include "verify/workload.h"

#include <algorithm>
#include <utility>

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

// Two whole groups and three tokens; one and two.
constexpr Length kShortSubject = {35, 2};
constexpr Length kShortestSubject = {18, 2};
constexpr uint32_t kBranchDecodes = 2;
// Both sides of the blocks' edges (32 and 64 tokens) and of a split's.
constexpr uint32_t kEdges[] = {16, 31, 33, 64, 65, 256};

uint32_t Longest(const ModelShape& shape) { return std::max(shape.context_length, 2u); }

Script MakeScript(const ModelShape& shape, Length length, uint64_t seed) {
  const uint32_t longest = Longest(shape);
  Script script;
  script.prompt_tokens = std::min(length.prompt, longest - 1);
  const uint32_t total = std::min(length.prompt + length.decode, longest);
  Random random(seed);
  for (uint32_t i = 0; i < total; ++i) {
    script.tokens.push_back(static_cast<TokenId>(random.Below(shape.vocab_size)));
  }
  return script;
}

// Adds a script that leaves the subject's tokens at `at`; false when the context has no room.
bool AddBranch(const ModelShape& shape, uint32_t subject, uint32_t at, uint64_t seed,
               Workload* workload) {
  if (at + 2 > Longest(shape)) return false;
  const uint32_t own_prompt = 1 + at % 3;
  Script own = MakeScript(shape, {own_prompt, kBranchDecodes},
                          CounterRandom(seed, workload->scripts.size()));
  const std::vector<TokenId>& tokens = workload->scripts[subject].tokens;
  if (own.tokens[0] == tokens[at]) {
    own.tokens[0] =
        static_cast<TokenId>((static_cast<uint32_t>(tokens[at]) + 1) % shape.vocab_size);
  }
  Script branch;
  branch.tokens.assign(tokens.begin(), tokens.begin() + at);
  branch.tokens.insert(branch.tokens.end(), own.tokens.begin(), own.tokens.end());
  branch.tokens.resize(std::min<size_t>(branch.tokens.size(), Longest(shape)));
  branch.prompt_tokens = std::min(at + own_prompt, branch.size() - 1);
  workload->scripts.push_back(std::move(branch));
  return true;
}

void AddHitPoint(const ModelShape& shape, uint32_t subject, HitPoint point, bool branch,
                 uint64_t seed, Workload* workload) {
  if (branch && AddBranch(shape, subject, point.at, seed, workload)) {
    point.branch = static_cast<uint32_t>(workload->scripts.size()) - 1;
  }
  workload->scripts[subject].hit_points.push_back(point);
}

// The same script starts at each point, so that its tails are all there are; with few points, at
// those around the edge of a group, and a branch leaves only at some.
void AddShortSubject(const ModelShape& shape, HitPoints hits, uint64_t seed, Workload* workload) {
  const bool few = hits == HitPoints::kFew;
  const auto subject = static_cast<uint32_t>(workload->scripts.size());
  workload->short_subject = subject;
  workload->scripts.push_back(
      MakeScript(shape, few ? kShortestSubject : kShortSubject, CounterRandom(seed, subject)));
  const uint32_t prompt = workload->scripts[subject].prompt_tokens;
  bool salted = false;
  for (uint32_t at = 1; at <= prompt; ++at) {
    const bool near_edge = at <= 2 || (at + 1) % kGroupTokens <= 2 || at == prompt;
    if (few && !near_edge) continue;
    const HitPoint point{.at = at, .same = true, .salted = !salted && at >= prompt / 2};
    salted = salted || point.salted;
    AddHitPoint(shape, subject, point, !few || at % kGroupTokens <= 1, seed, workload);
  }
}

// Whole runs of a long script are dear: the same one starts only at the last points, where its
// tails are of 0, 1 and 2 tokens. So are the references of branches: there is one of those points.
void AddEdges(const ModelShape& shape, HitPoints hits, uint64_t seed, Workload* workload) {
  const uint32_t prompt = workload->scripts[0].prompt_tokens;
  std::vector<uint32_t> edges(std::begin(kEdges), std::end(kEdges));
  for (uint32_t tail : {2u, 1u, 0u}) edges.push_back(prompt - std::min(tail, prompt));
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  for (uint32_t at : edges) {
    if (at == 0 || at > prompt) continue;
    const bool same = at + 2 >= prompt;
    if (hits == HitPoints::kFew && !same) continue;
    const bool branch = hits == HitPoints::kAll && (!same || at + 1 == prompt);
    AddHitPoint(shape, 0, {.at = at, .same = same}, branch, seed, workload);
  }
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
  workload.companions = std::min(size.companions, static_cast<uint32_t>(std::size(kCompanions)));
  for (uint32_t i = 0; i < workload.companions; ++i) {
    workload.scripts.push_back(MakeScript(shape, kCompanions[i], CounterRandom(seed, i + 1)));
  }
  if (size.hits == HitPoints::kNone) return workload;
  AddShortSubject(shape, size.hits, seed, &workload);
  AddEdges(shape, size.hits, seed, &workload);
  return workload;
}

std::vector<Role> RolesOf(Mix mix, Reuse reuse, const Workload& workload) {
  std::vector<Role> roles = {
      {.script = reuse == Reuse::kHitsEverywhere ? workload.short_subject : 0}};
  const uint32_t companions = workload.companions;
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
