// SPDX-License-Identifier: Apache-2.0
//
// What a request must satisfy before it waits for memory: bad input is refused here with a message
// and never reaches the loop.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "engine/engine.h"

namespace tessera {

// A position's alternatives are kept for a whole prompt: 8 B × 100 × 8,192 positions = 6.5 MB.
inline constexpr int kMaxLogprobs = 100;
inline constexpr size_t kMaxStops = 64;
inline constexpr size_t kMaxStopBytes = 1024;
inline constexpr size_t kMaxStopIds = 64;
inline constexpr size_t kMaxSaltBytes = 256;
inline constexpr size_t kMaxCheckpoints = 64;

// kInvalidArgument naming the field, with expected and actual value.
Status CheckRequest(const Request& request, const ModelShape& shape);

}  // namespace tessera
