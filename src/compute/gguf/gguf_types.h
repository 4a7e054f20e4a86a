// SPDX-License-Identifier: Apache-2.0
//
// The value and tensor types of a GGUF file, with their numbers in the file and block sizes. A row
// of a tensor is consecutive blocks along ne[0]; rows are contiguous.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

enum class GgufValueType : uint32_t {
  kU8 = 0,
  kI8 = 1,
  kU16 = 2,
  kI16 = 3,
  kU32 = 4,
  kI32 = 5,
  kF32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kU64 = 10,
  kI64 = 11,
  kF64 = 12,
};

// Only types with a fixed block size appear; 4, 5, 31-33 and 36-38 were removed from the format.
enum class GgufTensorType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ8_1 = 9,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kQ8_K = 15,
  kI8 = 24,
  kI16 = 25,
  kI32 = 26,
  kI64 = 27,
  kF64 = 28,
  kBF16 = 30,
};

struct GgufTensorTraits {
  std::string_view name;
  uint32_t block_elements;
  uint32_t block_bytes;
};

// nullptr when the number names no type we can size.
const GgufTensorTraits* FindTensorTraits(uint32_t type);
std::string_view TensorTypeName(GgufTensorType type);
// For messages: "8 (Q8_0)", "4 (Q4_2, removed from the format)", "99 (unknown)".
std::string DescribeTensorType(uint32_t type);

// "u32"; "unknown" for a number outside the enum.
std::string_view ValueTypeName(GgufValueType type);

}  // namespace tessera
