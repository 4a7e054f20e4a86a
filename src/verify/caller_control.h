// SPDX-License-Identifier: Apache-2.0
//
// The negative control of the hostile caller: products by kernels that compute in the caller's
// float environment, as they would if an entry of the library forgot to set its own. For each mode
// the oracle's bits must be missed somewhere; for the one that traps, kernels must raise what would
// have trapped (it is run with the exceptions masked).
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <vector>

#include "compute/kernels/kernel_table.h"
#include "verify/hostile_float_environment.h"

namespace tessera {

struct CallerControl {
  const FloatMode* mode = nullptr;
  uint64_t outputs = 0;
  uint64_t differing = 0;
  bool would_trap = false;

  bool noticed() const { return mode->traps ? would_trap : differing > 0; }
};

// One per mode, in their order.
std::vector<CallerControl> RunCallerControls(const KernelTable& kernels, uint64_t seed);

// While one lives, a float exception that traps ends the process with a message instead of a core:
// the library ran in its caller's mode.
class FloatTrapMessage {
 public:
  FloatTrapMessage();
  ~FloatTrapMessage();
  FloatTrapMessage(const FloatTrapMessage&) = delete;
  FloatTrapMessage& operator=(const FloatTrapMessage&) = delete;

 private:
  struct Saved;
  Saved* saved_;
};

}  // namespace tessera
