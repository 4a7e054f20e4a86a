// SPDX-License-Identifier: Apache-2.0
//
// Byte counts: constants, rounding, and the text form users type and read (512KiB, 4GiB).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace tessera {

inline constexpr uint64_t kKiB = 1024;
inline constexpr uint64_t kMiB = 1024 * kKiB;
inline constexpr uint64_t kGiB = 1024 * kMiB;

constexpr uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr uint64_t DivideUp(uint64_t value, uint64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// "4096", "512KiB", "1.5GiB" (also K, M, G, KB …, all binary) → bytes.
// kInvalidArgument when it is not a number with a known unit, is negative, or exceeds 2^63.
Result<uint64_t> ParseBytes(std::string_view text);

// 1572864 → "1.50 MiB"; below 1 KiB "512 B".
std::string FormatBytes(uint64_t bytes);

}  // namespace tessera
