// SPDX-License-Identifier: Apache-2.0
//
// ProductCase is one matrix product to check kernels on: seeded random weights as a GGUF file has
// them, of any type that has kernels of its own, and fp32 activations.
//
// Threads: values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "compute/gguf/gguf_types.h"
#include "compute/kernels/packed_matrix.h"

namespace tessera {

struct ProductShape {
  uint32_t n = 0;  // outputs
  uint32_t k = 0;  // inputs

  bool operator==(const ProductShape&) const = default;
};

enum class ProductValues : uint8_t {
  kPlain,       // around 1
  kCancelling,  // of nearly equal size and either sign: sums lose all but their last bits
  kDenormal,    // denormals, zeros of either sign, products around 2^-126
  kWide,        // 2^-50 to 2^50
};
inline constexpr ProductValues kProductValues[] = {ProductValues::kPlain,
                                                   ProductValues::kCancelling,
                                                   ProductValues::kDenormal, ProductValues::kWide};
std::string_view ProductValuesName(ProductValues values);

struct ProductCase {
  GgufTensorType type = GgufTensorType::kF32;
  ProductShape shape;
  uint32_t rows = 0;
  ProductValues values = ProductValues::kPlain;
  size_t row_bytes = 0;
  std::vector<std::byte> weights;  // [n] rows of row_bytes
  std::vector<float> activations;  // [rows][k]

  const std::byte* WeightRow(uint32_t n) const { return weights.data() + n * row_bytes; }
  const float* Activations(uint32_t row) const { return &activations[size_t{row} * shape.k]; }
};

// Types that are packed as they are: the others are bf16 once loaded.
struct ProductType {
  GgufTensorType file;
  WeightType packed;
};
std::span<const ProductType> ProductTypes();

// The shape's k is rounded up to whole blocks of the type.
ProductCase MakeProductCase(GgufTensorType type, ProductShape shape, uint32_t rows,
                            ProductValues values, uint64_t seed);

}  // namespace tessera
