// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/avx2.h"

#include "compute/kernels/table_inl.h"
#include "compute/kernels/vec_avx2.h"

namespace tessera::kernels::avx2 {

const KernelTable& Table() {
  static constexpr KernelTable table = MakeTable<Vec>("avx2");
  return table;
}

}  // namespace tessera::kernels::avx2
