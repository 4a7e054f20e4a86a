// SPDX-License-Identifier: Apache-2.0
#include "compute/gguf/gguf_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace tessera {
namespace {

constexpr uint32_t kShardsMax = 65535;  // split.count is a u16

}  // namespace

Result<GgufSplit> ReadSplit(const GgufMetadata& metadata, const std::string& file) {
  GgufSplit split;
  TESSERA_ASSIGN_OR_RETURN(split.count, metadata.GetU32("split.count", 1));
  if (split.count <= 1) return GgufSplit();
  if (split.count > kShardsMax) {
    return BadFile(fmt::format("{}: key 'split.count': expected at most {}, found {}", file,
                               kShardsMax, split.count));
  }
  TESSERA_ASSIGN_OR_RETURN(split.index, metadata.GetU32("split.no"));
  if (split.index >= split.count) {
    return BadFile(fmt::format("{}: key 'split.no': expected less than split.count {}, found {}",
                               file, split.count, split.index));
  }
  if (metadata.Find("split.tensors.count") != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(split.tensor_count, metadata.GetU32("split.tensors.count"));
  }
  return split;
}

std::optional<std::string> ShardPath(const std::string& file, uint32_t index, uint32_t count) {
  const std::string tail = fmt::format("-of-{:05}.gguf", count);
  constexpr size_t kDigits = 5;
  if (!file.ends_with(tail) || file.size() < tail.size() + kDigits + 1) return std::nullopt;
  const size_t digits_at = file.size() - tail.size() - kDigits;
  const std::string_view digits = std::string_view(file).substr(digits_at, kDigits);
  if (file[digits_at - 1] != '-' ||
      !std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return std::nullopt;
  }
  return fmt::format("{}{:05}{}", file.substr(0, digits_at), index + 1, tail);
}

}  // namespace tessera
