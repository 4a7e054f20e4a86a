// SPDX-License-Identifier: Apache-2.0
//
// GgufFile is a GGUF model file (or the shards of a split one), mapped read-only, with every number
// in its header checked before use: counts, string and array lengths, unique keys and tensor names,
// types, dimensions, alignment, and for each tensor that its bytes are inside the file, aligned and
// do not overlap another's. Nothing is copied: strings and tensor data point into the mapping.
//
// G1  A GgufFile that Open returned can be read anywhere its accessors point without a fault, as
//     long as nobody truncates the file while it is mapped.
// G2  Metadata is shard 1's; tensors are those of all shards, each name once.
//
// Failure: kIo when the file cannot be opened or mapped; kBadFile, one line naming the file and the
// key or tensor with expected and actual value, for everything else. Never a crash or a hang.
// Threads: const after Open, except ReleasePages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/status.h"
#include "compute/gguf/gguf_types.h"

namespace tessera {

class MappedFile;

struct GgufArray {
  GgufValueType element_type = GgufValueType::kU32;
  uint64_t count = 0;
  const std::byte* data = nullptr;        // little-endian elements, unaligned; not for strings
  std::vector<std::string_view> strings;  // only when element_type is kString
};

// Integers widen to uint64_t or int64_t, floats to double.
using GgufValue = std::variant<uint64_t, int64_t, double, bool, std::string_view, GgufArray>;

struct GgufTensor {
  std::string_view name;
  GgufTensorType type = GgufTensorType::kF32;
  uint32_t n_dims = 0;
  uint64_t ne[4] = {1, 1, 1, 1};  // ne[0] runs fastest
  uint64_t size_bytes = 0;
  const std::byte* data = nullptr;

  uint64_t element_count() const { return ne[0] * ne[1] * ne[2] * ne[3]; }
  uint64_t row_count() const { return ne[1] * ne[2] * ne[3]; }
  uint64_t row_bytes() const { return size_bytes / row_count(); }
};

class GgufFile {
 public:
  // For a split model `path` is the first shard; the others are opened beside it.
  static Result<GgufFile> Open(const std::string& path);
  // The same parser over bytes in memory (tests, fuzzing); `bytes` must outlive the result.
  static Result<GgufFile> Parse(std::span<const std::byte> bytes, std::string_view name);

  GgufFile(GgufFile&&) noexcept;
  GgufFile& operator=(GgufFile&&) noexcept;
  ~GgufFile();

  const std::string& path() const { return path_; }
  uint64_t file_bytes() const { return file_bytes_; }  // all shards

  const GgufValue* FindValue(std::string_view key) const;
  const GgufTensor* FindTensor(std::string_view name) const;
  std::span<const GgufTensor> tensors() const { return tensors_; }
  // Keys in file order.
  std::span<const std::string_view> keys() const { return keys_; }

  // Typed reads. Missing key: kBadFile "missing key", or the fallback. A value of another type or
  // out of range is kBadFile in both forms, naming key, expected type and what was found.
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

  // Tells the OS that the tensor pages are no longer needed in memory (after packing); they would
  // be read from the file again if touched.
  void ReleasePages() const;

 private:
  GgufFile();
  std::string path_;
  uint64_t file_bytes_ = 0;
  std::vector<std::unique_ptr<MappedFile>> mappings_;
  std::vector<std::string_view> keys_;
  std::unordered_map<std::string_view, GgufValue> values_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> tensor_index_;
};

}  // namespace tessera
