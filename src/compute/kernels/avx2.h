// SPDX-License-Identifier: Apache-2.0
//
// What avx2.cc gives to the choice of a table. Not to be called on a CPU without AVX2, FMA and
// F16C.
#pragma once

#include "compute/kernels/kernel_table.h"

namespace tessera::kernels::avx2 {

const KernelTable& Table();

}  // namespace tessera::kernels::avx2
