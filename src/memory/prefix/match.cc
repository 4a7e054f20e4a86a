// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/match.h"

namespace tessera {

std::string_view ComputeReasonName(ComputeReason reason) {
  switch (reason) {
    case ComputeReason::kCold:
      return "cold";
    case ComputeReason::kDiverged:
      return "diverged";
    case ComputeReason::kEvicted:
      return "evicted";
    case ComputeReason::kNoCheckpoint:
      return "no_checkpoint";
    case ComputeReason::kBelowGrid:
      return "below_grid";
    case ComputeReason::kSalt:
      return "salt";
    case ComputeReason::kDisabled:
      return "disabled";
  }
  return "unknown";
}

std::string_view LookupResultName(LookupResult result) {
  switch (result) {
    case LookupResult::kFull:
      return "full";
    case LookupResult::kPartial:
      return "partial";
    case LookupResult::kNone:
      return "none";
  }
  return "unknown";
}

}  // namespace tessera
