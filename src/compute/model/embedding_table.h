// SPDX-License-Identifier: Apache-2.0
//
// EmbeddingTable gives the rows of token_embd as fp32, one at a time: from the file's form, or from
// the packed output head when the two are tied, so that they are in memory once.
//
// Threads: const.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/gguf/gguf_types.h"
#include "compute/kernels/packed_matrix.h"
#include "compute/model/tensor_values.h"

namespace tessera {

struct EmbeddingTable {
  GgufTensorType type = GgufTensorType::kF32;
  uint32_t width = 0;
  const std::byte* rows = nullptr;  // null: tied
  size_t row_bytes = 0;
  const PackedMatrix* packed = nullptr;

  void Row(uint32_t token, float* values) const {
    if (rows == nullptr) return ReadPackedRow(*packed, token, values);
    ReadRow(type, rows + token * row_bytes, width, values);
  }
};

}  // namespace tessera
