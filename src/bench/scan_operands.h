// SPDX-License-Identifier: Apache-2.0
//
// The inputs of a scan over one layer of Falcon-H1-7B (24 heads of 128, state 256) for
// measurements: what the rows of a step bring, and the outputs. Where the state lies is the
// caller's.
//
// Threads: a value; one thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/floor.h"
#include "compute/kernels/kernel_table.h"
#include "compute/tensor/aligned_buffer.h"

namespace tessera {

class ScanOperands {
 public:
  static constexpr uint32_t kHeads = 24;
  static constexpr uint32_t kHeadDim = 128;
  static constexpr uint32_t kState = 256;

  static constexpr uint64_t RowBytes(StateType type) {
    return kState * (type == StateType::kF32 ? 4u : 2u);
  }
  static constexpr uint64_t ImageBytes(StateType type) {
    return uint64_t{kHeads} * kHeadDim * RowBytes(type);
  }
  // What `rows` tokens cannot do without, in place.
  static Floor FloorOf(StateType type, uint32_t rows);

  explicit ScanOperands(uint32_t rows_max);
  // `rows` tokens of all heads, in place.
  ScanArgs Args(StateType type, uint32_t rows, const PagedBytes& state);

 private:
  static constexpr size_t kStride = size_t{kHeads} * kHeadDim + 2 * kState;
  AlignedBuffer<float> inputs_;  // [rows][x, B, C]
  AlignedBuffer<float> delta_, decay_, d_;
  AlignedBuffer<float> y_;
};

}  // namespace tessera
