// SPDX-License-Identifier: Apache-2.0
//
// GgufMetadata is the key-value part of one GGUF file: the values under their keys, in file order,
// and typed reads that name the file and the key when they refuse.
//
// Strings and array elements point into the file's bytes, which must stay in place.
// Failure: kBadFile, one line. Threads: const after IndexKeys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "compute/gguf/gguf_types.h"
#include "compute/gguf/name_index.h"

namespace tessera {

struct GgufArray {
  GgufValueType element_type = GgufValueType::kU32;
  uint64_t count = 0;
  const std::byte* data = nullptr;        // little-endian elements, unaligned; not for strings
  std::vector<std::string_view> strings;  // only when element_type is kString
};

// Integers widen to uint64_t or int64_t, floats to double.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

// "integer 7", "string 'abc'", "array of 5 u32": for messages.
std::string DescribeValue(const GgufValue& value);

class GgufMetadata {
 public:
  GgufMetadata() = default;
  explicit GgufMetadata(std::string_view file) : file_(file) {}

  void Append(std::string_view key, GgufValue value);
  // After the last Append; refuses a key that occurs twice.
  Status IndexKeys();

  std::span<const std::string_view> keys() const { return keys_; }  // in file order
  const GgufValue* Find(std::string_view key) const;

  // Missing key: kBadFile "missing key", or the fallback. A value of another type or out of range
  // is kBadFile in both forms, naming key, expected type and what was found. A float that is not
  // finite is out of range: no key of a model means anything with it.
  Result<uint32_t> GetU32(std::string_view key) const;
  Result<uint32_t> GetU32(std::string_view key, uint32_t fallback) const;
  Result<float> GetF32(std::string_view key) const;
  Result<float> GetF32(std::string_view key, float fallback) const;
  Result<bool> GetBool(std::string_view key, bool fallback) const;
  Result<std::string_view> GetString(std::string_view key) const;
  Result<std::string_view> GetString(std::string_view key, std::string_view fallback) const;
  Result<std::span<const std::string_view>> GetStringArray(std::string_view key) const;
  // Any integer element type, range-checked.
  Result<std::vector<int32_t>> GetI32Array(std::string_view key) const;

 private:
  Status Missing(std::string_view key) const;
  Status Unexpected(std::string_view key, std::string_view expected, std::string found) const;

  std::string file_;  // for messages
  std::vector<std::string_view> keys_;
  std::vector<GgufValue> values_;  // of keys_
  NameIndex index_;
};

}  // namespace tessera
