// SPDX-License-Identifier: Apache-2.0
//
// Reads everything that a GgufFile gives access to: every key through every typed read, every
// element of every array, the first and last byte of every tensor and row. With a sanitizer, or
// with the file at the edge of an unmapped page, a wrong pointer or count faults. For tests and
// fuzzing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/check.h"
#include "compute/gguf/gguf_file.h"

namespace tessera::testing {

inline uint64_t SumBytes(std::string_view text) {
  uint64_t sum = text.size();
  for (char c : text) sum += static_cast<unsigned char>(c);
  return sum;
}

inline uint64_t WalkKey(const GgufFile& file, std::string_view key) {
  uint64_t sum = SumBytes(key);
  const GgufValue* value = file.FindValue(key);
  TESSERA_CHECK(value != nullptr);
  sum += DescribeValue(*value).size();
  if (auto u32 = file.GetU32(key)) sum += *u32;
  if (auto f32 = file.GetF32(key)) sum += *f32 > 0 ? 1 : 0;
  if (auto flag = file.GetBool(key, false)) sum += *flag ? 1 : 0;
  if (auto text = file.GetString(key)) sum += SumBytes(*text);
  if (auto strings = file.GetStringArray(key)) {
    for (std::string_view text : *strings) sum += SumBytes(text);
  }
  if (auto numbers = file.GetI32Array(key)) {
    for (int32_t number : *numbers) sum += static_cast<uint32_t>(number);
  }
  return sum;
}

inline uint64_t WalkTensor(const GgufFile& file, const GgufTensor& tensor) {
  TESSERA_CHECK(file.FindTensor(tensor.name) == &tensor);
  TESSERA_CHECK(tensor.row_bytes() * tensor.row_count() == tensor.size_bytes);
  return SumBytes(tensor.name) + TensorTypeName(tensor.type).size() + tensor.element_count() +
         static_cast<uint64_t>(tensor.data[0]) +
         static_cast<uint64_t>(tensor.data[tensor.row_bytes() - 1]) +
         static_cast<uint64_t>(tensor.data[tensor.size_bytes - 1]);
}

// The sum keeps the reads alive.
inline uint64_t WalkEverything(const GgufFile& file) {
  uint64_t sum = file.file_bytes() + SumBytes(file.path());
  for (std::string_view key : file.keys()) sum += WalkKey(file, key);
  for (const GgufTensor& tensor : file.tensors()) sum += WalkTensor(file, tensor);
  return sum;
}

}  // namespace tessera::testing
