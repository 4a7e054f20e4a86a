// SPDX-License-Identifier: Apache-2.0
//
// What a look-up found: how much of a prompt may be reused, what there was of each kind, and why
// the rest must be computed again.
//
// Threads: values.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace tessera {

// Why tokens of a prompt are computed. In text: cold, diverged, evicted, no_checkpoint, below_grid,
// salt, disabled.
enum class ComputeReason : uint8_t {
  kCold,          // nobody has sent them after this prefix
  kDiverged,      // the prefix goes on in another way
  kEvicted,       // they were there and were taken back
  kNoCheckpoint,  // their attention state is there, no recurrent state (or kept row) at their end
  kBelowGrid,     // the same, and the checkpoint grid allows none there
  kSalt,          // the request is isolated: nothing under its salt yet
  kDisabled,      // reuse is off, for all or for this request
};
inline constexpr int kComputeReasons = 7;
std::string_view ComputeReasonName(ComputeReason reason);

// How much of a prompt a look-up could give. In text: full, partial, none.
enum class LookupResult : uint8_t { kFull, kPartial, kNone };
inline constexpr int kLookupResults = 3;
std::string_view LookupResultName(LookupResult result);

struct ComputedRange {  // tokens [begin, end)
  uint32_t begin = 0;
  uint32_t end = 0;
  ComputeReason reason = ComputeReason::kCold;
};

struct MatchReport {
  uint32_t prompt_tokens = 0;
  uint32_t reused = 0;       // J_adopt: the deepest boundary where every kind is there
  uint32_t attention = 0;    // A_max: the deepest attention prefix
  uint32_t recurrent = 0;    // R_max: the deepest checkpoint, whatever attention there is
  uint32_t diverged_at = 0;  // up to here the prompt is a known prefix
  bool from_row = false;     // reused = prompt_tokens: only the output head runs
  std::array<ComputedRange, 2> computed;
  uint32_t computed_count = 0;

  LookupResult result() const {
    if (computed_count == 0) return LookupResult::kFull;
    return reused > 0 ? LookupResult::kPartial : LookupResult::kNone;
  }
  // Why it is not more, of the first token that is computed; cold when none is.
  ComputeReason reason() const {
    return computed_count == 0 ? ComputeReason::kCold : computed[0].reason;
  }
  uint32_t gap() const { return recurrent - reused; }  // Gap_R
};

// Nothing reused, all of it for one reason.
inline MatchReport ComputedReport(uint32_t prompt_tokens, ComputeReason reason) {
  MatchReport report;
  report.prompt_tokens = prompt_tokens;
  if (prompt_tokens > 0) report.computed[report.computed_count++] = {0, prompt_tokens, reason};
  return report;
}

}  // namespace tessera
