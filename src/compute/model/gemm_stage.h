// SPDX-License-Identifier: Apache-2.0
//
// GemmStage multiplies the step's rows by several matrices in one parallel job, so that matrices
// ready at the same time cost one barrier. A task is a group of panels (k = 1024 in bf16: 128 KiB, 4
// us from memory), in the order the weights lie in memory: a thread's run of them is one stream.
//
// Threads: one caller; the job uses the pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compute/kernels/kernel_table.h"
#include "compute/kernels/packed_matrix.h"
#include "compute/model/input_rows.h"

namespace tessera {

class ThreadPool;

struct Product {
  const PackedMatrix* weights = nullptr;
  const InputRows* input = nullptr;
  float* output = nullptr;
  size_t output_stride = 0;
};

// Up to kProductsMax products.
inline constexpr size_t kProductsMax = 4;
void Multiply(const KernelTable& kernels, ThreadPool& threads, std::span<const Product> products,
              uint32_t rows);

}  // namespace tessera
