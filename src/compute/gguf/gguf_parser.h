// SPDX-License-Identifier: Apache-2.0
//
// ParseGguf reads the header of one GGUF file (one shard of a split model): keys, tensor
// declarations, and where each tensor's bytes are. Strings and data point into `bytes`.
//
//   "GGUF" | version u32 | tensor count u64 | key count u64 | keys | tensors | pad | data
//
// P1  Every length is compared with the bytes that are left before it is used or allocated for.
// P2  A file that is shorter than its own header says is refused with both sizes.
//
// Failure: kBadFile, one line that begins with `file`. Threads: none shared.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "compute/gguf/gguf_file.h"
#include "compute/gguf/gguf_metadata.h"

namespace tessera {

struct GgufShard {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // as listed
};

Result<GgufShard> ParseGguf(std::span<const std::byte> bytes, std::string_view file);

}  // namespace tessera
