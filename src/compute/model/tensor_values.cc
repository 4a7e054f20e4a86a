// SPDX-License-Identifier: Apache-2.0
#include "compute/model/tensor_values.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "compute/tensor/number_formats.h"
#include "compute/tensor/quant_blocks.h"

namespace tessera {
namespace {

template <typename T>
T Load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

float LoadHalf(const std::byte* bytes) { return HalfToFloat(Load<uint16_t>(bytes)); }

// In the order of kMatrixTypes. What the GEMM kernels do with a type, and how a block of it is read (null: by element).
struct MatrixType {
  GgufTensorType type;
  WeightType packed;
  ReadBlock read;
};
constexpr MatrixType kMatrixTypeList[] = {
    {GgufTensorType::kF32, WeightType::kF32, nullptr},
    {GgufTensorType::kF16, WeightType::kF16, nullptr},
    {GgufTensorType::kBF16, WeightType::kBF16, nullptr},
    {GgufTensorType::kQ8_0, WeightType::kQ8_0, ReadQ8_0},
    {GgufTensorType::kQ4_0, WeightType::kQ4_0, ReadQ4_0},
    {GgufTensorType::kQ4_1, WeightType::kBF16, ReadQ4_1},
    {GgufTensorType::kQ5_0, WeightType::kBF16, ReadQ5_0},
    {GgufTensorType::kQ5_1, WeightType::kBF16, ReadQ5_1},
    {GgufTensorType::kQ2_K, WeightType::kBF16, ReadQ2K},
    {GgufTensorType::kQ3_K, WeightType::kBF16, ReadQ3K},
    {GgufTensorType::kQ4_K, WeightType::kQ4_K, ReadQ4K},
    {GgufTensorType::kQ5_K, WeightType::kBF16, ReadQ5K},
    {GgufTensorType::kQ6_K, WeightType::kQ6_K, ReadQ6K},
};

const MatrixType* Find(GgufTensorType type) {
  for (const MatrixType& known : kMatrixTypeList) {
    if (known.type == type) return &known;
  }
  return nullptr;
}

void ReadBlocks(const MatrixType& type, const std::byte* row, uint32_t count, float* values) {
  const GgufTensorTraits* traits = FindTensorTraits(static_cast<uint32_t>(type.type));
  float block[kSuperBlock];
  for (uint32_t i = 0; i < count; i += traits->block_elements) {
    type.read(row, block);
    row += traits->block_bytes;
    const uint32_t part = std::min(count - i, traits->block_elements);
    for (uint32_t j = 0; j < part; ++j) {
      values[i + j] =
          type.packed == WeightType::kBF16 ? Bf16ToFloat(FloatToBf16(block[j])) : block[j];
    }
  }
}

// A column of a panel: what its blocks were packed from (packed_matrix.h). Element k of it, when
// `step` consecutive k lie together, is at index [k/step][16][step].
struct PackedColumn {
  const PackedMatrix& matrix;
  const std::byte* panel;
  uint32_t column;

  const std::byte* Unit(uint32_t k) const {
    return panel + size_t{k / PackedUnitOf(matrix.type).k} * matrix.unit_stride_bytes();
  }

  size_t Element(uint32_t k, uint32_t step) const {
    return (size_t{k / step} * kPanelColumns + column) * step + k % step;
  }
  // The nibble of input i of vectors that hold `inputs` of them.
  static int Nibble(const std::byte* vectors, uint32_t column, uint32_t i, uint32_t inputs) {
    const uint32_t half = inputs / 2;
    const size_t at = (size_t{i % half / 4} * kPanelColumns + column) * 4 + i % 4;
    const auto byte = Load<uint8_t>(vectors + at);
    return i < half ? byte & 15 : byte >> 4;
  }

  float Q8_0(uint32_t k) const {
    const std::byte* unit = Unit(k);
    const float d = LoadHalf(unit + k / kSmallBlock % 2 * kUnitHalfBytes + column * 2);
    const auto q = Load<uint8_t>(unit + kUnitBody + Element(k % (2 * kSmallBlock), 4));
    return static_cast<float>(q - 128) * d;
  }
  float Q4_0(uint32_t k) const {
    const std::byte* unit = Unit(k);
    const uint32_t half = k / kSmallBlock % 2;
    const float d = LoadHalf(unit + half * kUnitHalfBytes + column * 2);
    const std::byte* vectors = unit + kUnitBody + half * kSmallBlock * kPanelColumns / 2;
    return static_cast<float>(Nibble(vectors, column, k % kSmallBlock, kSmallBlock) - 8) * d;
  }
  float Q4K(uint32_t k) const {
    const std::byte* unit = Unit(k);
    const uint32_t sub = k % kSuperBlock / 32;
    const auto scale = Load<uint8_t>(unit + Q4KUnit::kScales + sub * kPanelColumns + column);
    const auto min = Load<uint8_t>(unit + Q4KUnit::kMins + Element(sub, 4));
    const int q = Nibble(unit + Q4KUnit::kWeights + sub * Q4KUnit::kSubBytes, column, k % 32, 32);
    const float product = LoadHalf(unit + 2 * column) * scale * static_cast<float>(q);
    return product - LoadHalf(unit + kUnitHalfBytes + 2 * column) * min;
  }
  float Q6K(uint32_t k) const {
    const std::byte* unit = Unit(k);
    const uint32_t sub = k % kSuperBlock / 16;
    const auto scale = Load<int8_t>(unit + Q6KUnit::kScales + sub * kPanelColumns + column);
    const std::byte* quarter = unit + Q6KUnit::kWeights + sub / 4 * Q6KUnit::kQuarterBytes;
    const auto pairs = Load<uint8_t>(quarter + Q6KUnit::kPairs + Element(k % 16, 4));
    const int high = pairs >> (k % 64 / 16 * 2) & 3;
    const int q = (Nibble(quarter, column, k % 64, 64) | high << 4) - 32;
    return LoadHalf(unit + 2 * column) * scale * static_cast<float>(q);
  }

  float Value(uint32_t k) const {
    switch (matrix.type) {
      case WeightType::kF32:
        return Load<float>(Unit(k) + 4 * column);
      case WeightType::kF16:
        return LoadHalf(Unit(k) + 2 * column);
      case WeightType::kBF16:
        return Bf16ToFloat(Load<uint16_t>(Unit(k) + 2 * Element(k % 2, 2)));
      case WeightType::kQ8_0:
        return Q8_0(k);
      case WeightType::kQ4_0:
        return Q4_0(k);
      case WeightType::kQ4_K:
        return Q4K(k);
      case WeightType::kQ6_K:
        return Q6K(k);
    }
    TESSERA_CHECK(false);
    return 0;
  }
};

}  // namespace

std::optional<WeightType> WeightTypeOf(GgufTensorType type) {
  const MatrixType* known = Find(type);
  if (known == nullptr) return std::nullopt;
  return known->packed;
}

bool IsDequantisedAtLoad(GgufTensorType type) {
  const MatrixType* known = Find(type);
  return known != nullptr && known->packed == WeightType::kBF16 && known->read != nullptr;
}

bool IsSmallTensorType(GgufTensorType type) {
  return type == GgufTensorType::kF32 || type == GgufTensorType::kF16 ||
         type == GgufTensorType::kBF16;
}

void ReadRow(GgufTensorType type, const std::byte* row, uint32_t count, float* values) {
  const MatrixType* known = Find(type);
  TESSERA_CHECK(known != nullptr);
  if (known->read != nullptr) return ReadBlocks(*known, row, count, values);
  if (type == GgufTensorType::kF32) {
    std::memcpy(values, row, size_t{count} * sizeof(float));
    return;
  }
  for (uint32_t i = 0; i < count; ++i) {
    const auto bits = Load<uint16_t>(row + size_t{2} * i);
    values[i] = type == GgufTensorType::kF16 ? HalfToFloat(bits) : Bf16ToFloat(bits);
  }
}

void ReadPackedRow(const PackedMatrix& matrix, uint32_t row, float* values) {
  const PackedColumn column = {matrix, matrix.Panel(row / kPanelColumns), row % kPanelColumns};
  for (uint32_t k = 0; k < matrix.k; ++k) values[k] = column.Value(k);
}

}  // namespace tessera
