// SPDX-License-Identifier: Apache-2.0
#include "compute/model/tensor_values.h"

#include <cstring>

#include "compute/tensor/number_formats.h"

namespace tessera {
namespace {

constexpr uint32_t kPanelColumns = 16;
constexpr uint32_t kQ8Block = 32;
constexpr size_t kQ8BlockBytes = 34;  // f16 scale, 32 int8

template <typename T>
T Load(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

void ReadQ8Row(const std::byte* row, uint32_t count, float* values) {
  for (uint32_t i = 0; i < count; ++i) {
    const std::byte* block = row + i / kQ8Block * kQ8BlockBytes;
    const float scale = HalfToFloat(Load<uint16_t>(block));
    values[i] = static_cast<float>(Load<int8_t>(block + 2 + i % kQ8Block)) * scale;
  }
}

}  // namespace

std::optional<WeightType> WeightTypeOf(GgufTensorType type) {
  switch (type) {
    case GgufTensorType::kF32:
      return WeightType::kF32;
    case GgufTensorType::kF16:
      return WeightType::kF16;
    case GgufTensorType::kBF16:
      return WeightType::kBF16;
    case GgufTensorType::kQ8_0:
      return WeightType::kQ8_0;
    default:
      return std::nullopt;
  }
}

bool IsSmallTensorType(GgufTensorType type) {
  return type == GgufTensorType::kF32 || type == GgufTensorType::kF16 ||
         type == GgufTensorType::kBF16;
}

void ReadRow(WeightType type, const std::byte* row, uint32_t count, float* values) {
  switch (type) {
    case WeightType::kF32:
      std::memcpy(values, row, size_t{count} * sizeof(float));
      return;
    case WeightType::kF16:
      for (uint32_t i = 0; i < count; ++i) values[i] = HalfToFloat(Load<uint16_t>(row + 2 * i));
      return;
    case WeightType::kBF16:
      for (uint32_t i = 0; i < count; ++i) values[i] = Bf16ToFloat(Load<uint16_t>(row + 2 * i));
      return;
    case WeightType::kQ8_0:
      ReadQ8Row(row, count, values);
      return;
  }
}

void ReadPackedRow(const PackedMatrix& matrix, uint32_t row, float* values) {
  const std::byte* panel = matrix.Panel(row / kPanelColumns);
  const uint32_t column = row % kPanelColumns;
  const uint32_t unit_inputs = PackedUnitOf(matrix.type).k;
  for (uint32_t k = 0; k < matrix.k; ++k) {
    const std::byte* unit = panel + k / unit_inputs * matrix.unit_stride_bytes();
    const uint32_t i = k % unit_inputs;
    switch (matrix.type) {
      case WeightType::kF32:
        values[k] = Load<float>(unit + 4 * column);
        break;
      case WeightType::kF16:
        values[k] = HalfToFloat(Load<uint16_t>(unit + 2 * column));
        break;
      case WeightType::kBF16:
        values[k] = Bf16ToFloat(Load<uint16_t>(unit + 2 * (2 * column + i)));
        break;
      case WeightType::kQ8_0: {
        const std::byte* scales = unit + i / kQ8Block * 32;
        const float scale = HalfToFloat(Load<uint16_t>(scales + 2 * column));
        const std::byte* weights = unit + 64 + (size_t{i / 4} * kPanelColumns + column) * 4;
        values[k] = static_cast<float>(Load<uint8_t>(weights + i % 4) - 128) * scale;
        break;
      }
    }
  }
}

}  // namespace tessera
