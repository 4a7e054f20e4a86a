// SPDX-License-Identifier: Apache-2.0
#include "compute/gguf/gguf_file.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "compute/gguf/gguf_parser.h"
#include "compute/gguf/gguf_split.h"
#include "compute/gguf/printable.h"
#include "port/mapped_file.h"

namespace tessera {
namespace {

// Paths begin every message; PATH_MAX is 4096.
constexpr size_t kPathBytesMax = 4096;

std::string Shown(std::string_view path) { return Printable(path, kPathBytesMax); }

// The first file of a split model, or a whole one.
Status CheckFirst(const GgufSplit& split, const std::string& path) {
  if (split.count == 1) return Status::Ok();
  std::optional<std::string> first = ShardPath(path, 0, split.count);
  if (split.index != 0) {
    return BadFile(fmt::format("{}: this is shard {} of {}: open the first, {}", Shown(path),
                               split.index + 1, split.count,
                               first ? Shown(*first) : std::string("instead")));
  }
  if (first != path) {
    return BadFile(
        fmt::format("{}: shard 1 of {} by its keys: expected a name that ends in "
                    "-00001-of-{:05}.gguf",
                    Shown(path), split.count, split.count));
  }
  return Status::Ok();
}

}  // namespace

GgufFile::GgufFile() = default;
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

Result<GgufFile> GgufFile::Open(const std::string& path) {
  GgufFile file;
  file.path_ = path;
  TESSERA_ASSIGN_OR_RETURN(GgufShard shard, file.MapShard(path));
  TESSERA_ASSIGN_OR_RETURN(GgufSplit split, ReadSplit(shard.metadata, Shown(path)));
  TESSERA_RETURN_IF_ERROR(CheckFirst(split, path));
  file.metadata_ = std::move(shard.metadata);
  file.TakeTensors(&shard);
  TESSERA_RETURN_IF_ERROR(file.AddOtherShards(split.count));
  if (split.tensor_count && *split.tensor_count != file.tensors_.size()) {
    return BadFile(fmt::format("{}: key 'split.tensors.count' is {}, the {} shards have {}",
                               Shown(path), *split.tensor_count, split.count,
                               file.tensors_.size()));
  }
  TESSERA_RETURN_IF_ERROR(file.IndexTensors());
  return {std::move(file)};
}

Result<GgufFile> GgufFile::Parse(std::span<const std::byte> bytes, std::string_view name) {
  GgufFile file;
  file.path_ = name;
  file.file_bytes_ = bytes.size();
  TESSERA_ASSIGN_OR_RETURN(GgufShard shard, ParseGguf(bytes, Shown(name)));
  TESSERA_ASSIGN_OR_RETURN(GgufSplit split, ReadSplit(shard.metadata, Shown(name)));
  if (split.count != 1) {
    return BadFile(fmt::format("{}: shard {} of {}: a split model must be opened by its path",
                               Shown(name), split.index + 1, split.count));
  }
  file.metadata_ = std::move(shard.metadata);
  file.TakeTensors(&shard);
  TESSERA_RETURN_IF_ERROR(file.IndexTensors());
  return {std::move(file)};
}

Result<GgufShard> GgufFile::MapShard(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(MappedFile mapping, MappedFile::Open(path));
  mappings_.push_back(std::make_unique<MappedFile>(std::move(mapping)));
  const std::span<const std::byte> bytes = mappings_.back()->bytes();
  file_bytes_ += bytes.size();
  return ParseGguf(bytes, Shown(path));
}

Status GgufFile::AddOtherShards(uint32_t shard_count) {
  for (uint32_t i = 1; i < shard_count; ++i) {
    const std::string path = ShardPath(path_, i, shard_count).value();
    Result<GgufShard> shard = MapShard(path);
    if (!shard) {
      return Status(shard.error().code(), fmt::format("{} (shard {} of {})",
                                                      shard.error().message(), i + 1, shard_count));
    }
    TESSERA_ASSIGN_OR_RETURN(GgufSplit split, ReadSplit(shard->metadata, Shown(path)));
    if (split.index != i || split.count != shard_count) {
      return BadFile(fmt::format("{}: expected shard {} of {}, its keys say {} of {}", Shown(path),
                                 i + 1, shard_count, split.index + 1, split.count));
    }
    TakeTensors(&*shard);
  }
  return Status::Ok();
}

void GgufFile::TakeTensors(GgufShard* shard) {
  tensors_.insert(tensors_.end(), shard->tensors.begin(), shard->tensors.end());
}

Status GgufFile::IndexTensors() {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const GgufTensor& tensor : tensors_) names.push_back(tensor.name);
  if (std::optional<std::string_view> twice = tensor_index_.Build(names)) {
    return BadFile(fmt::format("{}: tensor {} occurs twice", Shown(path_), Quoted(*twice)));
  }
  return Status::Ok();
}

const GgufTensor* GgufFile::FindTensor(std::string_view name) const {
  std::optional<size_t> position = tensor_index_.Find(name);
  return position ? &tensors_[*position] : nullptr;
}

void GgufFile::ReleasePages() const {
  for (const auto& mapping : mappings_) mapping->ReleasePages();
}

}  // namespace tessera
