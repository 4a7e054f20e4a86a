// SPDX-License-Identifier: Apache-2.0
//
// What the GGUF tests share: RawGguf lays a file out field by field, so that each field can be
// wrong (and so that GgufWriter has a twin that shares no code with it); TempDir; the small files
// of the fuzz corpus.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "compute/gguf/gguf_file.h"

namespace tessera::testing {

template <typename T>
std::string Raw(T value) {
  std::string out(sizeof(T), '\0');
  std::memcpy(out.data(), &value, sizeof(T));
  return out;
}
inline std::string U8(uint8_t v) { return Raw(v); }
inline std::string U16(uint16_t v) { return Raw(v); }
inline std::string U32(uint32_t v) { return Raw(v); }
inline std::string U64(uint64_t v) { return Raw(v); }
inline std::string Text(std::string_view text) { return U64(text.size()) + std::string(text); }
inline std::string Array(GgufValueType element_type, uint64_t count, std::string elements) {
  return U32(static_cast<uint32_t>(element_type)) + U64(count) + std::move(elements);
}

class RawGguf {
 public:
  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;
  std::optional<uint64_t> tensor_count;  // other than the truth
  std::optional<uint64_t> key_count;

  RawGguf& Key(std::string_view name, uint32_t type, std::string_view value) {
    keys_ += Text(name) + U32(type);
    keys_ += value;
    ++keys_added_;
    return *this;
  }
  RawGguf& Key(std::string_view name, GgufValueType type, std::string_view value) {
    return Key(name, static_cast<uint32_t>(type), value);
  }
  RawGguf& Tensor(std::string_view name, const std::vector<uint64_t>& ne, uint32_t type,
                  uint64_t offset) {
    tensors_ += Text(name) + U32(static_cast<uint32_t>(ne.size()));
    for (uint64_t dimension : ne) tensors_ += U64(dimension);
    tensors_ += U32(type) + U64(offset);
    ++tensors_added_;
    return *this;
  }
  RawGguf& Data(std::string_view bytes) {
    data_ += bytes;
    return *this;
  }
  RawGguf& PadData() {
    while (data_.size() % alignment != 0) data_ += '\0';
    return *this;
  }

  std::string Build() const {
    std::string out = magic + U32(version) + U64(tensor_count.value_or(tensors_added_)) +
                      U64(key_count.value_or(keys_added_)) + keys_ + tensors_;
    while (out.size() % alignment != 0) out += '\0';
    return out + data_;
  }

 private:
  std::string keys_;
  std::string tensors_;
  std::string data_;
  uint64_t keys_added_ = 0;
  uint64_t tensors_added_ = 0;
};

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

inline Result<GgufFile> ParseText(std::string_view bytes) {
  return GgufFile::Parse(AsBytes(bytes), "test.gguf");
}

inline std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void WriteFile(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

class TempDir {
 public:
  TempDir() {
    std::string name = std::filesystem::temp_directory_path() / "gguf_test_XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  std::string File(std::string_view name) const { return path_ / name; }
  size_t FileCount() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::filesystem::path path_;
};

// A v2 file with a key of every value type, named after it.
RawGguf AllValueTypes();

// The corpus: each file by its name, made in `dir` with GgufWriter.
std::map<std::string, std::string> MakeCorpus(const TempDir& dir);

}  // namespace tessera::testing
