// SPDX-License-Identifier: Apache-2.0
#include "bench/gemm_operands.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/random.h"

namespace tessera {
namespace {

constexpr uint32_t kOutputStep = 128;  // 8 panels

// Hands out parts of a buffer in turn.
class Parts {
 public:
  explicit Parts(std::byte* base) : base_(base) {}
  template <class T>
  T* Take(size_t count) {
    auto* at = reinterpret_cast<T*>(base_ + used_);
    used_ += RoundUp(count * sizeof(T), 64);
    return at;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

// fp32 and every form it can be rounded to take at most this.
size_t InputBytes(uint32_t k, uint32_t rows) {
  return (size_t{RoundUp(k, 256)} * 16 + 1024) * rows;
}

InputRows TakeInput(Parts* parts, uint32_t k, uint32_t rows) {
  InputRows input;
  input.k = k;
  input.f32_stride = RoundUp(k, 16);
  input.f32 = parts->Take<float>(rows * input.f32_stride);
  input.bf16 = parts->Take<uint16_t>(rows * input.bf16_stride());
  input.int8 = parts->Take<int8_t>(rows * input.int8_stride());
  input.scales = parts->Take<float>(rows * input.block_stride());
  input.sums = parts->Take<int32_t>(rows * input.block_stride());
  input.int8_k = parts->Take<int8_t>(rows * input.int8_stride());
  input.k_scales = parts->Take<float>(rows * input.super_block_stride());
  input.k_sums = parts->Take<int32_t>(rows * input.k_sum_stride());
  return input;
}

}  // namespace

Pipe PipeOf(WeightType type) {
  switch (InputFormOf(type)) {
    case InputForm::kF32:
      return Pipe::kFma;
    case InputForm::kBF16:
      return Pipe::kBf16;
    case InputForm::kInt8:
    case InputForm::kInt8K:
      return Pipe::kInt8;
  }
  return Pipe::kInt8;
}

uint32_t GemmOperands::OutputsOf(WeightType type, uint32_t k, uint64_t matrix_bytes) {
  const uint64_t step = PackedBytesNeeded(type, kOutputStep, k);
  const uint64_t steps = std::max<uint64_t>(1, (matrix_bytes + step / 2) / step);
  return static_cast<uint32_t>(steps) * kOutputStep;
}

GemmOperands::GemmOperands(const KernelTable& kernels, WeightType type, uint32_t n, uint32_t k,
                           uint32_t rows, const std::byte* weights)
    : matrix_(DescribePacked(type, n, k, weights)),
      input_bytes_(InputBytes(k, rows)),
      output_(size_t{n} * rows) {
  Parts parts(input_bytes_.data());
  input_ = TakeInput(&parts, k, rows);
  TESSERA_CHECK(parts.used() <= input_bytes_.size());
  Random random(2);
  for (uint32_t row = 0; row < rows; ++row) {
    for (uint32_t i = 0; i < k; ++i) input_.Row(row)[i] = random.Uniform(-1.0f, 1.0f);
    input_.Prepare(kernels, FormSet::Of({&matrix_}), row);
  }
}

GemmArgs GemmOperands::Args(uint32_t rows, uint32_t begin, uint32_t end) {
  TESSERA_DCHECK(begin % kGroupPanels == 0);
  TESSERA_DCHECK(end % kGroupPanels == 0 || end == matrix_.panel_count());
  GemmArgs args;
  args.weights = &matrix_;
  args.panel_begin = begin;
  args.panel_end = end;
  args.input = input_.For(matrix_.input_form());
  args.rows = rows;
  args.output = output_.data();
  args.output_stride = matrix_.n;
  return args;
}

Floor GemmOperands::FloorOf(uint32_t rows, bool from_memory) const {
  Floor floor;
  const auto bytes = static_cast<double>(PackedBytesNeeded(matrix_.type, matrix_.n, matrix_.k));
  (from_memory ? floor.read_bytes : floor.cache_bytes) = bytes;
  floor.on(PipeOf(matrix_.type)) = 2.0 * rows * matrix_.n * matrix_.k;
  return floor;
}

}  // namespace tessera
