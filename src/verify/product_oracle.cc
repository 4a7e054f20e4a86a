// SPDX-License-Identifier: Apache-2.0
#include "verify/product_oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "compute/tensor/number_formats.h"
#include "port/float_environment.h"

namespace tessera {
namespace {

constexpr ProductForm kWrongForms[] = {ProductForm::kPairsSwapped, ProductForm::kHalvesAdded,
                                       ProductForm::kBlocksDescending, ProductForm::kScalePerRow,
                                       ProductForm::kScalePerBatch};

template <class T>
T Read(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}
float ReadHalf(const std::byte* at) { return HalfToFloat(Read<uint16_t>(at)); }
int Byte(const std::byte* at) { return std::to_integer<int>(*at); }

bool IsFloat(GgufTensorType type) {
  return type == GgufTensorType::kF32 || type == GgufTensorType::kF16 ||
         type == GgufTensorType::kBF16;
}

// Inputs that share an activation scale.
uint32_t BlockOf(GgufTensorType type) {
  return type == GgufTensorType::kQ4_K || type == GgufTensorType::kQ6_K ? 256 : 32;
}

// --- Weights that are numbers. ---

std::vector<float> FloatWeights(const ProductCase& c, uint32_t n) {
  const std::byte* row = c.WeightRow(n);
  std::vector<float> weights(c.shape.k);
  for (uint32_t i = 0; i < c.shape.k; ++i) {
    if (c.type == GgufTensorType::kF32) weights[i] = Read<float>(row + size_t{i} * 4);
    if (c.type == GgufTensorType::kF16) weights[i] = ReadHalf(row + size_t{i} * 2);
    if (c.type == GgufTensorType::kBF16) {
      weights[i] = Bf16ToFloat(Read<uint16_t>(row + size_t{i} * 2));
    }
  }
  return weights;
}

std::vector<float> FloatActivations(const ProductCase& c, uint32_t row) {
  std::vector<float> a(c.Activations(row), c.Activations(row) + c.shape.k);
  if (c.type != GgufTensorType::kBF16) return a;
  for (float& x : a) x = Bf16ToFloat(FloatToBf16(x));
  return a;
}

float SingleChain(const float* a, const float* w, uint32_t begin, uint32_t end) {
  float acc = 0;
  for (uint32_t i = begin; i < end; ++i) acc = std::fma(a[i], w[i], acc);
  return acc;
}

// `begin` is even; the last of an odd count has a partner of +0.
float PairChain(const float* a, const float* w, uint32_t begin, uint32_t end, bool even_first) {
  float acc = 0;
  for (uint32_t i = begin; i < end; i += 2) {
    const float a_odd = i + 1 < end ? a[i + 1] : 0.0f;
    const float w_odd = i + 1 < end ? w[i + 1] : 0.0f;
    if (even_first) acc = std::fma(a[i], w[i], acc);
    acc = std::fma(a_odd, w_odd, acc);
    if (!even_first) acc = std::fma(a[i], w[i], acc);
  }
  return acc;
}

float FloatOutput(const ProductCase& c, ProductForm form, const float* a, const float* w) {
  const uint32_t k = c.shape.k;
  const auto chain = [&](uint32_t begin, uint32_t end) {
    return c.type == GgufTensorType::kBF16
               ? PairChain(a, w, begin, end, form == ProductForm::kPairsSwapped)
               : SingleChain(a, w, begin, end);
  };
  if (form != ProductForm::kHalvesAdded) return chain(0, k);
  const uint32_t half = k / 4 * 2;
  return chain(0, half) + chain(half, k);
}

// --- Weights that are integers with scales. ---

// A group of `group` weights has an integer scale and minimum, a block a float one of each.
struct IntegerRow {
  uint32_t group = 32;
  std::vector<int> weights;
  std::vector<int> group_scales;
  std::vector<int> group_minimums;  // empty: none
  std::vector<float> scales;
  std::vector<float> minimum_scales;
};

void AppendQ8(const std::byte* block, IntegerRow* row) {
  for (int i = 0; i < 32; ++i) row->weights.push_back(Read<int8_t>(block + 2 + i));
  row->group_scales.push_back(1);
  row->scales.push_back(ReadHalf(block));
}

void AppendQ4(const std::byte* block, IntegerRow* row) {
  for (int i = 0; i < 32; ++i) {
    const int pair = Byte(block + 2 + i % 16);
    row->weights.push_back((i < 16 ? pair & 15 : pair >> 4) - 8);
  }
  row->group_scales.push_back(1);
  row->scales.push_back(ReadHalf(block));
}

void AppendQ4K(const std::byte* block, IntegerRow* row) {
  const std::byte* packed = block + 4;
  for (int s = 0; s < 8; ++s) {
    const int scale = s < 4 ? Byte(packed + s) & 63
                            : (Byte(packed + s + 4) & 15) | (Byte(packed + s - 4) >> 6) << 4;
    const int minimum = s < 4 ? Byte(packed + s + 4) & 63
                              : (Byte(packed + s + 4) >> 4) | (Byte(packed + s) >> 6) << 4;
    row->group_scales.push_back(scale);
    row->group_minimums.push_back(minimum);
    for (int i = 0; i < 32; ++i) {
      const int pair = Byte(block + 16 + s / 2 * 32 + i);
      row->weights.push_back(s % 2 == 0 ? pair & 15 : pair >> 4);
    }
  }
  row->scales.push_back(ReadHalf(block));
  row->minimum_scales.push_back(ReadHalf(block + 2));
}

void AppendQ6K(const std::byte* block, IntegerRow* row) {
  row->group = 16;
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, l = i % 32;
    const int low = Byte(block + 64 * half + l + 32 * (quarter & 1));
    const int nibble = quarter < 2 ? low & 15 : low >> 4;
    const int high = (Byte(block + 128 + 32 * half + l) >> (2 * quarter)) & 3;
    row->weights.push_back((nibble | high << 4) - 32);
    if (i % 16 == 0) {
      row->group_scales.push_back(Read<int8_t>(block + 192 + 8 * half + 2 * quarter + l / 16));
    }
  }
  row->scales.push_back(ReadHalf(block + 208));
}

IntegerRow IntegerWeights(const ProductCase& c, uint32_t n) {
  const GgufTensorTraits& traits = *FindTensorTraits(static_cast<uint32_t>(c.type));
  IntegerRow row;
  for (size_t at = 0; at < c.row_bytes; at += traits.block_bytes) {
    const std::byte* block = c.WeightRow(n) + at;
    if (c.type == GgufTensorType::kQ8_0) AppendQ8(block, &row);
    if (c.type == GgufTensorType::kQ4_0) AppendQ4(block, &row);
    if (c.type == GgufTensorType::kQ4_K) AppendQ4K(block, &row);
    if (c.type == GgufTensorType::kQ6_K) AppendQ6K(block, &row);
  }
  return row;
}

struct IntegerActivations {
  std::vector<int> values;
  std::vector<float> scales;  // per block
};

float Largest(const float* x, uint32_t count) {
  float largest = 0;
  for (uint32_t i = 0; i < count; ++i) largest = std::max(largest, std::fabs(x[i]));
  return largest;
}

// The largest magnitude that decides the scale of a block of a row.
float ScaleSource(const ProductCase& c, ProductForm form, uint32_t row, uint32_t begin,
                  uint32_t count) {
  if (form == ProductForm::kScalePerRow) return Largest(c.Activations(row), c.shape.k);
  if (form != ProductForm::kScalePerBatch) return Largest(c.Activations(row) + begin, count);
  float largest = 0;
  for (uint32_t other = 0; other < c.rows; ++other) {
    largest = std::max(largest, Largest(c.Activations(other) + begin, count));
  }
  return largest;
}

IntegerActivations RoundToInt8(const ProductCase& c, ProductForm form, uint32_t row) {
  const uint32_t block = BlockOf(c.type);
  IntegerActivations a;
  for (uint32_t begin = 0; begin < c.shape.k; begin += block) {
    const float scale = ScaleSource(c, form, row, begin, block) / 127.0f;
    const float inverse = scale == 0 ? 0.0f : 1.0f / scale;
    for (uint32_t i = begin; i < begin + block; ++i) {
      a.values.push_back(static_cast<int>(std::nearbyint(c.Activations(row)[i] * inverse)));
    }
    a.scales.push_back(scale);
  }
  return a;
}

// One block added to the accumulator.
float AddBlock(const IntegerRow& w, const IntegerActivations& a, uint32_t block_size,
               uint32_t block, float acc) {
  int scaled = 0, minimums = 0;
  for (uint32_t begin = block * block_size; begin < (block + 1) * block_size; begin += w.group) {
    int dot = 0, sum = 0;
    for (uint32_t i = begin; i < begin + w.group; ++i) {
      dot += w.weights[i] * a.values[i];
      sum += a.values[i];
    }
    scaled += w.group_scales[begin / w.group] * dot;
    if (!w.group_minimums.empty()) minimums += w.group_minimums[begin / w.group] * sum;
  }
  acc = std::fma(static_cast<float>(scaled), w.scales[block] * a.scales[block], acc);
  if (w.group_minimums.empty()) return acc;
  return std::fma(-static_cast<float>(minimums), w.minimum_scales[block] * a.scales[block], acc);
}

float IntegerOutput(const ProductCase& c, ProductForm form, const IntegerActivations& a,
                    const IntegerRow& w) {
  const uint32_t size = BlockOf(c.type);
  const uint32_t blocks = c.shape.k / size;
  const auto chain = [&](uint32_t begin, uint32_t end) {
    float acc = 0;
    for (uint32_t i = begin; i < end; ++i) {
      const bool descending = form == ProductForm::kBlocksDescending;
      acc = AddBlock(w, a, size, descending ? begin + end - 1 - i : i, acc);
    }
    return acc;
  };
  if (form != ProductForm::kHalvesAdded) return chain(0, blocks);
  return chain(0, blocks / 2) + chain(blocks / 2, blocks);
}

std::vector<float> FloatProduct(const ProductCase& c, ProductForm form) {
  std::vector<std::vector<float>> activations;
  for (uint32_t row = 0; row < c.rows; ++row) activations.push_back(FloatActivations(c, row));
  std::vector<float> product(size_t{c.rows} * c.shape.n);
  for (uint32_t n = 0; n < c.shape.n; ++n) {
    const std::vector<float> weights = FloatWeights(c, n);
    for (uint32_t row = 0; row < c.rows; ++row) {
      product[size_t{row} * c.shape.n + n] =
          FloatOutput(c, form, activations[row].data(), weights.data());
    }
  }
  return product;
}

std::vector<float> IntegerProduct(const ProductCase& c, ProductForm form) {
  std::vector<IntegerActivations> activations;
  for (uint32_t row = 0; row < c.rows; ++row) activations.push_back(RoundToInt8(c, form, row));
  std::vector<float> product(size_t{c.rows} * c.shape.n);
  for (uint32_t n = 0; n < c.shape.n; ++n) {
    const IntegerRow weights = IntegerWeights(c, n);
    for (uint32_t row = 0; row < c.rows; ++row) {
      product[size_t{row} * c.shape.n + n] = IntegerOutput(c, form, activations[row], weights);
    }
  }
  return product;
}

}  // namespace

std::span<const ProductForm> WrongProductForms() { return kWrongForms; }

std::string_view ProductFormName(ProductForm form) {
  switch (form) {
    case ProductForm::kContract:
      return "as the contract says";
    case ProductForm::kPairsSwapped:
      return "pairs added even first";
    case ProductForm::kHalvesAdded:
      return "two half-K sums added";
    case ProductForm::kBlocksDescending:
      return "blocks added last to first";
    case ProductForm::kScalePerRow:
      return "one activation scale per row";
    case ProductForm::kScalePerBatch:
      return "activation scales of the whole batch";
  }
  return "?";
}

bool ProductFormDiffers(ProductForm form, const ProductCase& c) {
  const bool is_float = IsFloat(c.type);
  const bool blocks = !is_float && c.shape.k > BlockOf(c.type);
  switch (form) {
    case ProductForm::kContract:
      return false;
    case ProductForm::kPairsSwapped:
      return c.type == GgufTensorType::kBF16 && c.shape.k > 3;
    case ProductForm::kHalvesAdded:
      return is_float ? c.shape.k >= 8 : c.shape.k >= 4 * BlockOf(c.type);
    case ProductForm::kBlocksDescending:
      return c.shape.k >= 4 * BlockOf(c.type) && !is_float;
    case ProductForm::kScalePerRow:
      return blocks;
    case ProductForm::kScalePerBatch:
      return !is_float && c.rows > 1;
  }
  return false;
}

std::vector<float> ChainProduct(const ProductCase& c, ProductForm form) {
  const ScopedFloatEnvironment environment;
  return IsFloat(c.type) ? FloatProduct(c, form) : IntegerProduct(c, form);
}

}  // namespace tessera
