// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/placement.h"

#include <algorithm>

#include "base/bytes.h"

namespace tessera {
namespace {

class Planner {
 public:
  Planner(const PlacementInput& input, std::vector<PlannedBoundary>* out)
      : input_(input), out_(out) {}

  // The last boundary of the grid at or before `position`.
  void Add(uint32_t position, bool spare = false) {
    position = position / input_.grid * input_.grid;
    if (position <= input_.match.reused || position > input_.match.prompt_tokens) return;
    out_->push_back({position, spare});
  }
  void AddNamed(std::span<const uint32_t> positions) {
    for (uint32_t position : positions) {
      if (position <= input_.match.prompt_tokens) Add(position);
    }
  }
  void AddMessageEnds(std::span<const uint32_t> positions) {
    const auto first = static_cast<std::ptrdiff_t>(out_->size());
    AddNamed(positions);
    SortFrom(first);
    const auto begin = out_->begin() + first;
    const std::ptrdiff_t too_many = out_->end() - begin - std::ptrdiff_t{kMessageEndsMax};
    if (too_many > 0) out_->erase(begin + 1, begin + 1 + too_many);
  }
  // From after what is reused on: a long prompt that is mostly reused gets few.
  void AddEvery(uint64_t tokens, uint32_t end, bool spare) {
    uint64_t position = (input_.match.reused / tokens + 1) * tokens;
    for (; position <= end; position += tokens) Add(static_cast<uint32_t>(position), spare);
  }

  // Each position once from the first-th on: of a spare one and another, the other.
  void SortFrom(std::ptrdiff_t first) {
    const auto before = [](const PlannedBoundary& a, const PlannedBoundary& b) {
      return a.position != b.position ? a.position < b.position : a.spare < b.spare;
    };
    const auto same = [](const PlannedBoundary& a, const PlannedBoundary& b) {
      return a.position == b.position;
    };
    std::sort(out_->begin() + first, out_->end(), before);
    out_->erase(std::unique(out_->begin() + first, out_->end(), same), out_->end());
  }

 private:
  const PlacementInput& input_;
  std::vector<PlannedBoundary>* out_;
};

bool HasBranch(PlacementSpec::Kind kind) {
  return kind == PlacementSpec::Kind::kDefault || kind == PlacementSpec::Kind::kTailBranch;
}

uint64_t SpareTokens(uint64_t price_tokens) {
  return DivideUp(kSpareTokensMin, std::min<uint64_t>(price_tokens, kSpareTokensMin)) *
         price_tokens;
}

}  // namespace

void PlanBoundaries(const PlacementInput& input, std::vector<PlannedBoundary>* boundaries) {
  boundaries->clear();
  const MatchReport& match = input.match;
  if (match.prompt_tokens == 0) return;
  Planner planner(input, boundaries);
  const uint32_t end = input.keeps_rows ? match.prompt_tokens : match.prompt_tokens - 1;
  if (end == 0) return;
  const PlacementSpec& spec = input.spec;
  if (spec.kind == PlacementSpec::Kind::kDense) {
    planner.AddEvery(spec.dense_tokens, match.prompt_tokens, false);
  } else {
    planner.Add(end);
    if (HasBranch(spec.kind) && match.diverged_at < end) planner.Add(match.diverged_at);
  }
  if (spec.kind == PlacementSpec::Kind::kDefault) {
    planner.AddMessageEnds(input.message_ends);
    if (input.price_tokens > 0) {
      const uint64_t every = RoundUp(input.price_tokens, input.grid);
      const uint32_t mark = static_cast<uint32_t>((end - 1) / every * every);
      planner.Add(mark);
      if (input.plentiful) planner.AddEvery(SpareTokens(every), end, true);
    }
  }
  planner.AddNamed(input.named);
  planner.AddNamed({&input.public_tokens, 1});
  planner.SortFrom(0);
}

bool IsTurnBoundary(const PlacementSpec& spec, uint32_t grid, uint32_t position) {
  return spec.kind != PlacementSpec::Kind::kDense && position > 0 && position % grid == 0;
}

}  // namespace tessera
