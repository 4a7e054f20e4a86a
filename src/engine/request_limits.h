// SPDX-License-Identifier: Apache-2.0
//
// How much of anything one request may have: what the engine refuses beyond, and what whoever reads
// requests from outside holds them against.
//
// Threads: constants.
#pragma once

#include <cstddef>

namespace tessera {

// A position's alternatives are kept for a whole prompt: 8 B × 100 × 8,192 positions = 6.5 MB.
inline constexpr int kMaxLogprobs = 100;
inline constexpr size_t kMaxStops = 64;
inline constexpr size_t kMaxStopBytes = 1024;
inline constexpr size_t kMaxStopIds = 64;
inline constexpr size_t kMaxLogitBiases = 1024;
inline constexpr size_t kMaxSaltBytes = 256;
inline constexpr size_t kMaxCheckpoints = 64;

}  // namespace tessera
