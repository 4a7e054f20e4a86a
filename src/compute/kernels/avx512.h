// SPDX-License-Identifier: Apache-2.0
//
// What avx512.cc, the one file compiled for AVX-512, gives to the choice of a table. Neither may be
// called on a CPU without F, BW, DQ, VL, BF16 and VNNI.
#pragma once

#include <cstdint>

#include "compute/kernels/kernel_table.h"

namespace tessera::kernels::avx512 {

const KernelTable& Table();

// acc[i] = vdpbf16ps(acc[i], a[i], b[i]) for n lanes, n a multiple of 16; a and b are pairs of
// bf16.
void DotBf16(const uint32_t* a, const uint32_t* b, uint32_t n, float* acc);

}  // namespace tessera::kernels::avx512
