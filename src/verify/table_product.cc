// SPDX-License-Identifier: Apache-2.0
#include "verify/table_product.h"

#include <algorithm>
#include <optional>

#include "base/bytes.h"
#include "base/check.h"
#include "port/float_environment.h"

namespace tessera {
namespace {

constexpr uint32_t kInt8Block = 32;
constexpr uint32_t kInt8KBlock = 256;
// Rows begin on cache lines, as the forward pass has them.
constexpr uint32_t kInt8Stride = 64;

// All rows of the case as gemm takes them.
struct Inputs {
  std::vector<uint16_t> bf16;
  AlignedBuffer<int8_t> int8;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  GemmInput first;  // of row 0

  GemmInput From(uint32_t row) const {
    GemmInput input = first;
    input.data = static_cast<const std::byte*>(first.data) + row * first.row_stride_bytes;
    if (first.scales == nullptr) return input;
    input.scales = first.scales + row * first.scale_row_stride;
    input.sums = first.sums + row * first.sum_row_stride;
    return input;
  }
};

Inputs Prepare(const KernelTable& kernels, InputForm form, const ProductCase& c) {
  const uint32_t k = c.shape.k;
  Inputs inputs;
  if (form == InputForm::kF32) {
    inputs.first = {.data = c.activations.data(), .row_stride_bytes = k * sizeof(float)};
    return inputs;
  }
  if (form == InputForm::kBF16) {
    const size_t stride = RoundUp(k, 2);  // a pair is read even when its odd half is padding
    inputs.bf16.resize(c.rows * stride);
    for (uint32_t row = 0; row < c.rows; ++row) {
      kernels.to_bf16(c.Activations(row), k, &inputs.bf16[row * stride]);
    }
    inputs.first = {.data = inputs.bf16.data(), .row_stride_bytes = stride * 2};
    return inputs;
  }
  const bool is_k = form == InputForm::kInt8K;
  const auto to_int8 = is_k ? kernels.to_int8_k : kernels.to_int8;
  const size_t blocks = DivideUp(k, is_k ? kInt8KBlock : kInt8Block);
  const size_t words = blocks * (is_k ? kKSumWords : 1);
  const size_t stride = RoundUp(k, kInt8Stride);
  inputs.int8 = AlignedBuffer<int8_t>(c.rows * stride);
  inputs.scales.resize(c.rows * blocks);
  inputs.sums.resize(c.rows * words);
  for (uint32_t row = 0; row < c.rows; ++row) {
    to_int8(c.Activations(row), k, inputs.int8.data() + row * stride, &inputs.scales[row * blocks],
            &inputs.sums[row * words]);
  }
  inputs.first = {.data = inputs.int8.data(),
                  .row_stride_bytes = stride,
                  .scales = inputs.scales.data(),
                  .scale_row_stride = blocks,
                  .sums = inputs.sums.data(),
                  .sum_row_stride = words};
  return inputs;
}

}  // namespace

PackedProduct::PackedProduct(WeightType type, const ProductCase& c)
    : c_(c), storage_(PackedBytesNeeded(type, c.shape.n, c.shape.k)) {
  PackRows(type, c.shape.n, c.shape.k, 0, c.shape.n, c.weights.data(), c.row_bytes,
           storage_.data());
  matrix_ = DescribePacked(type, c.shape.n, c.shape.k, storage_.data());
}

std::vector<float> PackedProduct::Multiply(const KernelTable& kernels, uint32_t call_rows,
                                           bool environment) const {
  TESSERA_CHECK(call_rows > 0);
  std::optional<ScopedFloatEnvironment> scoped;
  if (environment) scoped.emplace();
  const Inputs inputs = Prepare(kernels, matrix_.input_form(), c_);
  std::vector<float> output(size_t{c_.rows} * c_.shape.n);
  for (uint32_t row = 0; row < c_.rows; row += call_rows) {
    kernels.gemm({.weights = &matrix_,
                  .panel_begin = 0,
                  .panel_end = matrix_.panel_count(),
                  .input = inputs.From(row),
                  .rows = std::min(call_rows, c_.rows - row),
                  .output = &output[size_t{row} * c_.shape.n],
                  .output_stride = c_.shape.n});
  }
  return output;
}

}  // namespace tessera
