// SPDX-License-Identifier: Apache-2.0
#include "verify/product_case.h"

#include <bit>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "base/random.h"
#include "compute/tensor/number_formats.h"

namespace tessera {
namespace {

constexpr ProductType kTypes[] = {
    {GgufTensorType::kF32, WeightType::kF32},   {GgufTensorType::kF16, WeightType::kF16},
    {GgufTensorType::kBF16, WeightType::kBF16}, {GgufTensorType::kQ8_0, WeightType::kQ8_0},
    {GgufTensorType::kQ4_0, WeightType::kQ4_0}, {GgufTensorType::kQ4_K, WeightType::kQ4_K},
    {GgufTensorType::kQ6_K, WeightType::kQ6_K},
};

float Value(Random* random, ProductValues values) {
  const uint32_t bits = static_cast<uint32_t>(random->Next());
  const uint32_t sign = bits & 0x80000000u;
  const uint32_t exponent = (bits >> 23) & 0xFFu;
  const uint32_t fraction = bits & 0x007FFFFFu;
  switch (values) {
    case ProductValues::kPlain:
      return random->Uniform(-2.0f, 2.0f);
    case ProductValues::kCancelling:  // ±1 … ±1.03
      return std::bit_cast<float>(sign | 0x3F800000u | (fraction & 0x0003FFFFu));
    case ProductValues::kDenormal:
      if (exponent % 5 == 0) return std::bit_cast<float>(sign);
      if (exponent % 5 == 1) return std::bit_cast<float>(sign | fraction);
      return std::bit_cast<float>(sign | (32 + exponent % 48) << 23 | fraction);
    case ProductValues::kWide:
      return std::bit_cast<float>(sign | (77 + exponent % 101) << 23 | fraction);
  }
  return 0;
}

// f16 has five bits of exponent; the values' idea of awkward is kept as far as that goes.
uint16_t Half(Random* random, ProductValues values) {
  const uint32_t bits = static_cast<uint32_t>(random->Next());
  const uint32_t sign_and_fraction = bits & 0x83FFu;
  switch (values) {
    case ProductValues::kPlain:
    case ProductValues::kCancelling:
      return FloatToHalf(Value(random, values));
    case ProductValues::kDenormal:  // subnormals and zeros among small ones
      return static_cast<uint16_t>(sign_and_fraction | ((bits >> 16) % 3) << 10);
    case ProductValues::kWide:
      return static_cast<uint16_t>(sign_and_fraction | ((bits >> 16) % 31) << 10);
  }
  return 0;
}

template <class T>
void Put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

// Where a block has its f16 scales; its other bytes may hold anything.
std::span<const uint32_t> ScaleOffsets(GgufTensorType type) {
  static constexpr uint32_t kFirst[] = {0};
  static constexpr uint32_t kFirstTwo[] = {0, 2};
  static constexpr uint32_t kQ6K[] = {208};
  switch (type) {
    case GgufTensorType::kQ8_0:
    case GgufTensorType::kQ4_0:
      return kFirst;
    case GgufTensorType::kQ4_K:
      return kFirstTwo;
    case GgufTensorType::kQ6_K:
      return kQ6K;
    default:
      TESSERA_CHECK(false);
  }
}

void FillBlock(Random* random, GgufTensorType type, ProductValues values, uint32_t bytes,
               std::byte* block) {
  for (uint32_t i = 0; i < bytes; ++i) block[i] = static_cast<std::byte>(random->Next());
  for (uint32_t offset : ScaleOffsets(type)) Put(block + offset, Half(random, values));
}

void FillWeights(Random* random, const GgufTensorTraits& traits, ProductCase* c) {
  const size_t elements = c->weights.size() / traits.block_bytes;
  std::byte* at = c->weights.data();
  for (size_t i = 0; i < elements; ++i, at += traits.block_bytes) {
    switch (c->type) {
      case GgufTensorType::kF32:
        Put(at, Value(random, c->values));
        break;
      case GgufTensorType::kF16:
        Put(at, Half(random, c->values));
        break;
      case GgufTensorType::kBF16:  // denormals stay: the file may have them
        Put(at, static_cast<uint16_t>(std::bit_cast<uint32_t>(Value(random, c->values)) >> 16));
        break;
      default:
        FillBlock(random, c->type, c->values, traits.block_bytes, at);
    }
  }
}

}  // namespace

std::string_view ProductValuesName(ProductValues values) {
  switch (values) {
    case ProductValues::kPlain:
      return "plain";
    case ProductValues::kCancelling:
      return "cancelling";
    case ProductValues::kDenormal:
      return "denormal";
    case ProductValues::kWide:
      return "wide";
  }
  return "?";
}

std::span<const ProductType> ProductTypes() { return kTypes; }

ProductCase MakeProductCase(GgufTensorType type, ProductShape shape, uint32_t rows,
                            ProductValues values, uint64_t seed) {
  const GgufTensorTraits* traits = FindTensorTraits(static_cast<uint32_t>(type));
  TESSERA_CHECK(traits != nullptr && shape.n > 0 && shape.k > 0 && rows > 0);
  shape.k = static_cast<uint32_t>(RoundUp(shape.k, traits->block_elements));
  ProductCase c;
  c.type = type;
  c.shape = shape;
  c.rows = rows;
  c.values = values;
  c.row_bytes = size_t{shape.k} / traits->block_elements * traits->block_bytes;
  c.weights.resize(shape.n * c.row_bytes);
  c.activations.resize(size_t{rows} * shape.k);
  Random random(seed);
  FillWeights(&random, *traits, &c);
  for (float& x : c.activations) x = Value(&random, values);
  return c;
}

}  // namespace tessera
