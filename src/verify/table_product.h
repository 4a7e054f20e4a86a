// SPDX-License-Identifier: Apache-2.0
//
// PackedProduct is a ProductCase as a kernel table gets it: weights packed, activations in the form
// their type wants, rounded by the table itself.
//
// Threads: const after construction; Multiply one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/kernels/kernel_table.h"
#include "compute/kernels/packed_matrix.h"
#include "compute/tensor/aligned_buffer.h"
#include "verify/product_case.h"

namespace tessera {

class PackedProduct {
 public:
  // `c` must outlive it.
  PackedProduct(WeightType type, const ProductCase& c);

  // [rows][n], in calls of `call_rows` rows each over all panels. `environment` off leaves the
  // caller's float environment as it is: what the library never does.
  std::vector<float> Multiply(const KernelTable& kernels, uint32_t call_rows,
                              bool environment = true) const;

 private:
  const ProductCase& c_;
  AlignedBuffer<std::byte> storage_;
  PackedMatrix matrix_;
};

}  // namespace tessera
