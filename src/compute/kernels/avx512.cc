// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/avx512.h"

#include "compute/kernels/table_inl.h"
#include "compute/kernels/vec_avx512.h"

namespace tessera::kernels::avx512 {

const KernelTable& Table() {
  static constexpr KernelTable table = MakeTable<Vec>("avx512");
  return table;
}

void DotBf16(const uint32_t* a, const uint32_t* b, uint32_t n, float* acc) {
  for (uint32_t i = 0; i < n; i += 16) {
    Vec::Store(acc + i,
               Vec::DotBf16(Vec::Load(acc + i), Vec::LoadPairs(a + i), Vec::LoadPairs(b + i)));
  }
}

}  // namespace tessera::kernels::avx512
