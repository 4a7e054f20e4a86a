// SPDX-License-Identifier: Apache-2.0
#include "bench/ceiling_loops.h"

#include <string_view>

namespace tessera {
namespace bench {

extern const float kOnes[32];
alignas(64) const float kOnes[32] = {
    1,      1,      1,      1,      1,      1,      1,      1,      1,      1,      1,
    1,      1,      1,      1,      1,      0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9,
    0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9};

}  // namespace bench

const CeilingLoops& CeilingLoopsOf(const char* isa) {
  return std::string_view(isa) == "avx512" ? Avx512CeilingLoops() : Avx2CeilingLoops();
}

}  // namespace tessera
