// SPDX-License-Identifier: Apache-2.0
//
// Where a sequence stops to leave a checkpoint behind. Pure: everything it looks at is in its
// argument.
//
//   tail          the end of the prompt: what an identical or longer prompt starts from. With a
//                 kept row the whole prompt; where none are kept all but its last token, which must
//                 be computed for its logits. Not both: a second checkpoint would cost as much as
//                 the first (3,093 tokens of KV on Falcon-H1-7B) and a pass of one token, for the
//                 case that the row went and the checkpoint did not. Of all published models that
//                 happens on LFM2 only (memory/geometry/kept_rows.h), where the mark is 16 tokens back
//   branch        where the prompt leaves what is known: the second request to share a beginning
//                 shows where it ends, the third finds a checkpoint there
//   named         positions the client gave, under every policy, and where what it shares with
//                 other salts ends
//   message ends  the default's; of more than kMessageEndsMax in one prompt the first, which is the
//                 end of what many conversations begin with, and the last, to which turns are taken
//                 back. A conversation that grows turn by turn has left those between before. One
//                 of 200 messages that nobody has seen would be computed in 200 pieces and leave 200
//                 checkpoints, 26 GB on Falcon-H1-7B
//   mark          the last multiple of `price_tokens` before the tail: a prompt that is a long shared
//                 beginning and a short end of its own is reused by the second request to share it,
//                 not only by the third. The price of a checkpoint is the tokens of KV that take as
//                 much memory, rounded up to 16 and here to the grid
//   spare         other multiples of it, kSpareTokensMin or more apart, while a quarter of the state
//                 memory is free. First to be evicted. Each cuts the prefill: on LFM2, whose price is
//                 16, one at every multiple would mean chunks of 16 tokens
//   dense         every N tokens, the prompt's end among them, for comparison: of the others only
//                 what the client names
//
// Every boundary is a multiple of the grid, beyond what is reused and within the prompt. End of
// turn (the last token with state) is a boundary of every policy but dense: it costs no copy.
//
// Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memory/prefix/match.h"
#include "memory/prefix/policy.h"

namespace tessera {

inline constexpr uint32_t kMessageEndsMax = 8;
inline constexpr uint32_t kSpareTokensMin = 128;

struct PlannedBoundary {
  uint32_t position = 0;
  bool spare = false;

  friend bool operator==(const PlannedBoundary&, const PlannedBoundary&) = default;
};

struct PlacementInput {
  PlacementSpec spec;
  uint32_t grid = 1;
  MatchReport match;
  bool keeps_rows = false;
  std::span<const uint32_t> named;         // any order; those outside the prompt are ignored
  std::span<const uint32_t> message_ends;  // likewise
  uint32_t public_tokens = 0;              // isolation.h; 0, or beyond the prompt: no end of them
  uint32_t price_tokens = 0;               // 0: no marks and no spare ones
  bool plentiful = false;                  // a quarter of the state memory is free
};

// Ascending, each once, replacing what `boundaries` holds.
void PlanBoundaries(const PlacementInput& input, std::vector<PlannedBoundary>* boundaries);

// Whether the end of a turn at `position` is a boundary.
bool IsTurnBoundary(const PlacementSpec& spec, uint32_t grid, uint32_t position);

}  // namespace tessera
