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
  const uint32_t panel_index = row / kPanelColumns;
  const uint32_t column = row % kPanelColumns;
  const std::byte* panel = matrix.panels + panel_index * matrix.panel_stride_bytes;
  // Element k of the column, when `step` consecutive k lie together: [k/step][16][step].
  auto element = [&](uint32_t k, uint32_t step) {
    return (size_t{k / step} * kPanelColumns + column) * step + k % step;
  };
  for (uint32_t k = 0; k < matrix.k; ++k) {
    switch (matrix.type) {
      case WeightType::kF32:
        values[k] = Load<float>(panel + 4 * element(k, 1));
        break;
      case WeightType::kF16:
        values[k] = HalfToFloat(Load<uint16_t>(panel + 2 * element(k, 1)));
        break;
      case WeightType::kBF16:
        values[k] = Bf16ToFloat(Load<uint16_t>(panel + 2 * element(k, 2)));
        break;
      case WeightType::kQ8_0: {
        const std::byte* unit = panel + size_t{k / 64} * PackedUnitOf(matrix.type).bytes;
        const std::byte* scales = unit + k / kQ8Block % 2 * 32;
        const float scale = HalfToFloat(Load<uint16_t>(scales + 2 * column));
        const int weight = Load<uint8_t>(unit + 64 + element(k % 64, 4)) - 128;
        values[k] = static_cast<float>(weight) * scale;
        break;
      }
    }
  }
}

}  // namespace tessera
