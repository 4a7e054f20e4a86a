// SPDX-License-Identifier: Apache-2.0
//
// Floor is what a piece of work cannot do without: bytes that must move and products that must be
// issued. MachineRates is what the machine can do of each, measured in the same run. Together they
// give the least time (the roofline): bytes and products at once, each at its ceiling,
//
//   max(read / β_read + update / β_update + cache / β_cache,  Σ_pipe operations / F_pipe)
//
// Products of different pipes are added up because they issue from the same ports. What has no
// product (additions, comparisons, conversions) is not counted: a floor must be sure.
//
// Threads: values; pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tessera {

enum class Pipe : uint8_t { kFma, kBf16, kInt8 };
inline constexpr size_t kPipes = 3;

struct Floor {
  double read_bytes = 0;                       // from memory
  double update_bytes = 0;                     // from memory, and written back: counted once
  double cache_bytes = 0;                      // from and to L2
  std::array<double, kPipes> operations = {};  // a multiplication and an addition are two

  double& on(Pipe pipe) { return operations[static_cast<size_t>(pipe)]; }
  double moved_bytes() const { return read_bytes + 2 * update_bytes + cache_bytes; }
  double total_operations() const;
  Floor operator*(double n) const;
  Floor operator+(const Floor& other) const;
};

struct MachineRates {
  double read = 0;                             // bytes/s
  double update = 0;                           // bytes/s, counted once
  double cache = 0;                            // bytes/s read from L2
  std::array<double, kPipes> operations = {};  // per second
};

struct Bound {
  double seconds = 0;
  const char* by = "";  // "memory", "L2", "fma", "bf16", "int8": what takes longest
};
Bound BoundOf(const Floor& floor, const MachineRates& rates);

}  // namespace tessera
