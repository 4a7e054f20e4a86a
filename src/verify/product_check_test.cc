// SPDX-License-Identifier: Apache-2.0
#include "verify/product_check.h"

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "compute/tensor/number_formats.h"
#include "verify/libxsmm_product.h"
#include "verify/verify.h"

namespace tessera {
namespace {

// A block of a quantised type as the file format's test vectors fill it.
ProductCase VectorCase(GgufTensorType type) {
  ProductCase c = MakeProductCase(type, {1, 1}, 1, ProductValues::kPlain, 1);
  for (size_t i = 0; i < c.weights.size(); ++i) {
    c.weights[i] = static_cast<std::byte>((37 * i + 11) & 255);
  }
  const auto put = [&](size_t at, uint16_t half) { std::memcpy(&c.weights[at], &half, 2); };
  switch (type) {
    case GgufTensorType::kQ4_K:
      put(0, 0x2400);
      put(2, 0x2000);
      break;
    case GgufTensorType::kQ6_K:
      put(208, 0x2000);
      break;
    default:
      put(0, 0x2C00);
  }
  return c;
}

// One activation of 127 selects a weight: its scale is 1 and every integer exact.
float WeightAt(ProductCase c, uint32_t index) {
  std::fill(c.activations.begin(), c.activations.end(), 0.0f);
  c.activations[index] = 127.0f;
  return ChainProduct(c, ProductForm::kContract)[0] / 127.0f;
}

TEST(ProductOracle, ReadsQuantisedBlocksAsTheFormatSays) {
  const ProductCase q8 = VectorCase(GgufTensorType::kQ8_0);
  EXPECT_EQ(WeightAt(q8, 0), 5.3125f);
  EXPECT_EQ(WeightAt(q8, 16), -5.6875f);
  EXPECT_EQ(WeightAt(q8, 31), -3.0f);
  const ProductCase q4 = VectorCase(GgufTensorType::kQ4_0);
  EXPECT_EQ(WeightAt(q4, 0), -0.1875f);
  EXPECT_EQ(WeightAt(q4, 1), 0.125f);
  EXPECT_EQ(WeightAt(q4, 15), -0.5f);
  EXPECT_EQ(WeightAt(q4, 31), 0.0f);
  const ProductCase q4k = VectorCase(GgufTensorType::kQ4_K);
  EXPECT_EQ(WeightAt(q4k, 0), 4.9296875f);
  EXPECT_EQ(WeightAt(q4k, 63), 0.625f);
  EXPECT_EQ(WeightAt(q4k, 200), 2.1640625f);
  EXPECT_EQ(WeightAt(q4k, 255), 0.7578125f);
  const ProductCase q6k = VectorCase(GgufTensorType::kQ6_K);
  EXPECT_EQ(WeightAt(q6k, 0), -11.1796875f);
  EXPECT_EQ(WeightAt(q6k, 64), -23.75f);
  EXPECT_EQ(WeightAt(q6k, 128), -2.7421875f);
  EXPECT_EQ(WeightAt(q6k, 255), -0.46875f);
}

TEST(ProductOracle, EveryWrongFormDiffersWhereItSaysItDoes) {
  for (GgufTensorType type :
       {GgufTensorType::kF32, GgufTensorType::kF16, GgufTensorType::kBF16, GgufTensorType::kQ8_0,
        GgufTensorType::kQ4_0, GgufTensorType::kQ4_K, GgufTensorType::kQ6_K}) {
    const ProductCase c = MakeProductCase(type, {16, 1024}, 4, ProductValues::kPlain, 3);
    const std::vector<float> right = ChainProduct(c, ProductForm::kContract);
    uint32_t forms = 0;
    for (ProductForm form : WrongProductForms()) {
      if (!ProductFormDiffers(form, c)) continue;
      ++forms;
      EXPECT_NE(ChainProduct(c, form), right) << ProductFormName(form);
    }
    EXPECT_GE(forms, 1u);
  }
}

TEST(LibxsmmProduct, IsTheChainForOperandsItDoesNotRound) {
  const std::string why = WhyNoLibxsmm();
  if (!why.empty()) GTEST_SKIP() << why;
  // 65 outputs: a whole block and one output; 7 inputs: a pair without a partner.
  const ProductCase c =
      MakeProductCase(GgufTensorType::kBF16, {65, 7}, 3, ProductValues::kCancelling, 5);
  std::vector<uint16_t> weights(c.weights.size() / 2);
  std::memcpy(weights.data(), c.weights.data(), c.weights.size());
  std::vector<uint16_t> activations;
  for (float x : c.activations) activations.push_back(FloatToBf16(x));
  EXPECT_EQ(
      LibxsmmProduct({.rows = 3, .n = 65, .k = 7, .activations = activations, .weights = weights}),
      ChainProduct(c, ProductForm::kContract));
}

ProductCheck CheckTables(std::vector<const KernelTable*> kernels) {
  return CheckProducts({.kernels = kernels, .model_shapes = {{300, 64}}, .quick = true});
}

TEST(ProductCheck, EveryTableHasTheBitsOfEveryOracle) {
  const ProductCheck check = CheckTables(AvailableKernels());
  EXPECT_FALSE(check.failed());
  EXPECT_EQ(check.model_shapes, 1u);
  for (const ProductComparison& comparison : check.comparisons) {
    EXPECT_EQ(comparison.differing, 0u) << comparison.kernels << ' ' << comparison.first;
    EXPECT_GT(comparison.outputs, 1000u);
  }
  for (const ProductControl& control : check.controls) {
    EXPECT_TRUE(control.noticed())
        << TensorTypeName(control.type) << ' ' << ProductOracleName(control.oracle) << ' '
        << ProductFormName(control.form);
  }
  const bool by_libxsmm =
      std::any_of(check.comparisons.begin(), check.comparisons.end(),
                  [](const ProductComparison& c) { return c.oracle == ProductOracle::kLibxsmm; });
  EXPECT_EQ(by_libxsmm, WhyNoLibxsmm().empty());
}

std::vector<float> LibxsmmWithoutOneShape(const LibxsmmOperands& operands) {
  if (operands.n == 17 && operands.k == 33) return {};
  ProductCase c = MakeProductCase(GgufTensorType::kBF16, {operands.n, operands.k}, operands.rows,
                                  ProductValues::kPlain, 1);
  std::memcpy(c.weights.data(), operands.weights.data(), c.weights.size());
  for (size_t i = 0; i < c.activations.size(); ++i) {
    c.activations[i] = Bf16ToFloat(operands.activations[i]);
  }
  return ChainProduct(c, ProductForm::kContract);
}

TEST(ProductCheck, AShapeThatLibxsmmRefusesIsCountedAndTheOthersAreCompared) {
  if (!WhyNoLibxsmm().empty()) GTEST_SKIP() << WhyNoLibxsmm();
  const std::vector<const KernelTable*> kernels = {&ScalarKernels()};
  const auto check_with = [&](std::vector<float> (*libxsmm)(const LibxsmmOperands&)) {
    return CheckProducts({.kernels = kernels,
                          .model_shapes = {{17, 33}, {300, 64}},
                          .quick = true,
                          .libxsmm = libxsmm});
  };
  const ProductCheck some = check_with(LibxsmmWithoutOneShape);
  EXPECT_EQ(some.no_libxsmm, "");
  EXPECT_EQ(some.libxsmm_refused, 2u);  // two kinds of values
  EXPECT_GT(some.libxsmm_cases, 10u);
  EXPECT_EQ(some.first_refused, "17 × 33");
  EXPECT_FALSE(some.failed());
  const ProductCheck none = check_with([](const LibxsmmOperands&) { return std::vector<float>(); });
  EXPECT_EQ(none.libxsmm_cases, 0u);
  EXPECT_NE(none.no_libxsmm.find("it makes no kernel"), std::string::npos);
}

// One output in one call of one size, off by the last bit.
void GemmThatNudgesOne(const GemmArgs& args) {
  ScalarKernels().gemm(args);
  if (args.rows != 7 || args.weights->n != 17) return;
  float* output = args.output + 3 * args.output_stride + 16;
  *output = std::nextafter(*output, 1e30f);
}

TEST(ProductCheck, OneWrongBitInOneOutputIsFoundAndNamed) {
  KernelTable nudged = ScalarKernels();
  nudged.isa = "nudged";
  nudged.gemm = GemmThatNudgesOne;
  const ProductCheck check = CheckTables({&nudged});
  EXPECT_TRUE(check.failed());
  for (const ProductComparison& comparison : check.comparisons) {
    EXPECT_GT(comparison.differing, 0u) << TensorTypeName(comparison.type);
    EXPECT_NE(comparison.first.find("17 × "), std::string::npos) << comparison.first;
    EXPECT_NE(comparison.first.find("7 rows a call, row 3, output 16"), std::string::npos)
        << comparison.first;
  }
}

// Rounding is part of the product: the tables round, the oracles do it themselves.
void TruncateToBf16(const float* x, uint32_t n, uint16_t* y) {
  for (uint32_t i = 0; i < n; ++i) {
    y[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(x[i]) >> 16);
  }
}

TEST(ProductCheck, ATableThatTruncatesItsActivationsIsFound) {
  KernelTable truncating = ScalarKernels();
  truncating.to_bf16 = TruncateToBf16;
  const ProductCheck check = CheckTables({&truncating});
  for (const ProductComparison& comparison : check.comparisons) {
    EXPECT_EQ(comparison.differing > 0, comparison.type == GgufTensorType::kBF16);
  }
}

TEST(ProductCheck, AControlThatPassesUnnoticedFails) {
  ProductCheck check = CheckTables({&ScalarKernels()});
  ASSERT_FALSE(check.failed());
  check.controls[0].differing = 0;
  EXPECT_TRUE(check.failed());
}

}  // namespace
}  // namespace tessera
