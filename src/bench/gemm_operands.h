// SPDX-License-Identifier: Apache-2.0
//
// The operands of a product for measurements: a matrix laid over the weights of BenchMemory, rows
// of activations in every form, and an output.
//
// Threads: a value; calls that write different panels of the output may run at once.
#pragma once

#include <cstdint>

#include "bench/floor.h"
#include "compute/kernels/kernel_table.h"
#include "compute/model/input_rows.h"
#include "compute/tensor/aligned_buffer.h"

namespace tessera {

class GemmOperands {
 public:
  // As many outputs, a multiple of 128, as take about `matrix_bytes`.
  static uint32_t OutputsOf(WeightType type, uint32_t k, uint64_t matrix_bytes);

  GemmOperands(const KernelTable& kernels, WeightType type, uint32_t n, uint32_t k, uint32_t rows,
               const std::byte* weights);

  const PackedMatrix& matrix() const { return matrix_; }
  // Rows [0, rows) by panels [begin, end).
  GemmArgs Args(uint32_t rows, uint32_t begin, uint32_t end);
  // Of all panels: the matrix once, and the products.
  Floor FloorOf(uint32_t rows, bool from_memory) const;

 private:
  PackedMatrix matrix_;
  InputRows input_;
  AlignedBuffer<std::byte> input_bytes_;
  AlignedBuffer<float> output_;
};

// The pipe that products with such weights go through.
Pipe PipeOf(WeightType type);

}  // namespace tessera
