// SPDX-License-Identifier: Apache-2.0
//
// The reference table: runs on every x86-64-v3 CPU and defines the bits.
#include "compute/kernels/kernel_table.h"
#include "compute/kernels/table_inl.h"
#include "compute/kernels/vec_scalar.h"

namespace tessera {

const KernelTable& ScalarKernels() {
  static constexpr KernelTable table = kernels::MakeTable<kernels::scalar::Vec>("scalar");
  return table;
}

}  // namespace tessera
