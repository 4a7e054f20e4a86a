// SPDX-License-Identifier: Apache-2.0
//
// The choice of a table, and what holds for all of them.
#include <xmmintrin.h>

#include <set>

#include "compute/kernels/test_support.h"

namespace tessera::testing {
namespace {

TEST(ChooseKernels, NamesAreTheContract) {
  EXPECT_EQ(ChooseKernels("scalar").table, &ScalarKernels());
  EXPECT_STREQ(ScalarKernels().isa, "scalar");
  EXPECT_EQ(ChooseKernels("avx512").table, Avx512Kernels());
  EXPECT_EQ(ChooseKernels("avx2").table, Avx2Kernels());
  EXPECT_EQ(ChooseKernels("AVX512").table, nullptr);
  EXPECT_EQ(ChooseKernels("sse").table, nullptr);
  EXPECT_NE(std::string(ChooseKernels("sse").reason).find("scalar, avx2 or avx512"),
            std::string::npos);
  for (const char* name : {"scalar", "avx2", "avx512", "sse", ""}) {
    EXPECT_STRNE(ChooseKernels(name).reason, "") << name;
  }
}

TEST(ChooseKernels, UnsetAndEmptyTakeTheBestThatWorks) {
  const KernelTable* best = Avx512Kernels() != nullptr ? Avx512Kernels()
                            : Avx2Kernels() != nullptr ? Avx2Kernels()
                                                       : &ScalarKernels();
  EXPECT_EQ(AvailableKernels().front(), &ScalarKernels());
  EXPECT_EQ(AvailableKernels().back(), best);
  EXPECT_EQ(ChooseKernels(nullptr).table, best);
  EXPECT_EQ(ChooseKernels("").table, best);
}

class Tables : public KernelTest {};
TESSERA_KERNEL_TEST_SUITE(Tables);

TEST_P(Tables, EveryKernelIsThere) {
  const KernelTable& t = table();
  EXPECT_STREQ(t.isa, GetParam());
  EXPECT_TRUE(t.gemm && t.rms_norm && t.to_bf16 && t.to_int8 && t.to_int8_k && t.silu_mul &&
              t.add_residual);
  EXPECT_TRUE(t.rope && t.scale_to_bf16 && t.store_kv && t.zero_group && t.attention_split);
  EXPECT_TRUE(t.attention_combine && t.attention_finish && t.conv && t.discretize && t.scan);
}

// A host may run with any rounding mode and with denormals on; under the scoped environment the
// bits are the same, and the host's MXCSR comes back.
TEST_P(Tables, HostileMxcsrIsOverriddenAndRestored) {
  Random random(1);
  const std::vector<float> x = Floats(random, 1000, Data::kTiny);
  const std::vector<float> w = Floats(random, 1000, Data::kPlain);
  std::vector<float> want(1000), got(1000);
  table().silu_mul(x.data(), w.data(), 1000, want.data());
  const uint32_t before = _mm_getcsr();
  for (uint32_t rounding : {0u, 0x2000u, 0x4000u, 0x6000u}) {
    const uint32_t hostile = 0x1F80u | rounding;  // denormals kept
    _mm_setcsr(hostile);
    {
      ScopedFloatEnvironment environment;
      table().silu_mul(x.data(), w.data(), 1000, got.data());
    }
    const uint32_t after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(after & 0xFFC0u, hostile & 0xFFC0u);
    EXPECT_TRUE(SameBits(got, want));
  }
}

}  // namespace
}  // namespace tessera::testing
