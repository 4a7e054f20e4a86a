// SPDX-License-Identifier: Apache-2.0
//
// A split model is N files named PREFIX-00001-of-0000N.gguf and so on, each a GGUF file of its own
// with some of the tensors; only the first has the model's keys. `split.no` (from 0),
// `split.count` and `split.tensors.count` (of all shards) in each say how they belong together.
//
// Failure: kBadFile, one line. Threads: functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "compute/gguf/gguf_metadata.h"

namespace tessera {

struct GgufSplit {
  uint32_t index = 0;
  uint32_t count = 1;                    // 1: not split
  std::optional<uint32_t> tensor_count;  // of all shards
};

// A file without split.count, or with 0 or 1 there, is whole.
Result<GgufSplit> ReadSplit(const GgufMetadata& metadata, const std::string& file);

// The path of shard `index` beside `file`, a shard of `count`; nullopt when `file` does not end in
// -NNNNN-of-COUNT.gguf.
std::optional<std::string> ShardPath(const std::string& file, uint32_t index, uint32_t count);

}  // namespace tessera
