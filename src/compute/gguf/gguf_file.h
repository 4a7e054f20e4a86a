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
// G3  Memory used beside the mapping is bounded by a small multiple of the file size: a count in
//     the file is compared with the bytes that follow before anything is allocated for it.
// G4  Tensor data lies at a multiple of the file's alignment (>= 8) from the start of the mapping.
//
// Failure: kIo when the file cannot be opened or mapped; kBadFile, one line naming the file and the
// key or tensor with expected and actual value, for everything else. Never a crash or a hang.
// Threads: const after Open, except ReleasePages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compute/gguf/gguf_metadata.h"
#include "compute/gguf/gguf_types.h"
#include "compute/gguf/name_index.h"

namespace tessera {

class MappedFile;
struct GgufShard;

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

  const GgufTensor* FindTensor(std::string_view name) const;
  std::span<const GgufTensor> tensors() const { return tensors_; }

  // The keys of the first shard; the reads below are its reads.
  const GgufMetadata& metadata() const { return metadata_; }
  const GgufValue* FindValue(std::string_view key) const { return metadata_.Find(key); }
  std::span<const std::string_view> keys() const { return metadata_.keys(); }

  Result<uint32_t> GetU32(std::string_view key) const { return metadata_.GetU32(key); }
  Result<uint32_t> GetU32(std::string_view key, uint32_t fallback) const {
    return metadata_.GetU32(key, fallback);
  }
  Result<float> GetF32(std::string_view key) const { return metadata_.GetF32(key); }
  Result<float> GetF32(std::string_view key, float fallback) const {
    return metadata_.GetF32(key, fallback);
  }
  Result<bool> GetBool(std::string_view key, bool fallback) const {
    return metadata_.GetBool(key, fallback);
  }
  Result<std::string_view> GetString(std::string_view key) const {
    return metadata_.GetString(key);
  }
  Result<std::string_view> GetString(std::string_view key, std::string_view fallback) const {
    return metadata_.GetString(key, fallback);
  }
  Result<std::span<const std::string_view>> GetStringArray(std::string_view key) const {
    return metadata_.GetStringArray(key);
  }
  Result<std::vector<int32_t>> GetI32Array(std::string_view key) const {
    return metadata_.GetI32Array(key);
  }

  // Tells the OS that the tensor pages are no longer needed in memory (after packing); they would
  // be read from the file again if touched.
  void ReleasePages() const;

 private:
  GgufFile();
  // Maps and parses one file; the mapping is kept.
  Result<GgufShard> MapShard(const std::string& path);
  Status AddOtherShards(uint32_t shard_count);
  void TakeTensors(GgufShard* shard);
  Status IndexTensors();

  std::string path_;
  uint64_t file_bytes_ = 0;
  std::vector<std::unique_ptr<MappedFile>> mappings_;
  GgufMetadata metadata_;
  std::vector<GgufTensor> tensors_;
  NameIndex tensor_index_;
};

}  // namespace tessera
