// SPDX-License-Identifier: Apache-2.0
//
// The attention state of one sequence in one layer of Falcon-H1-7B for measurements: where each of
// its groups lies (16 tokens of both KV heads are 16 KiB), and, one a thread, the queries and
// partials that are used with it.
//
// Threads: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/floor.h"
#include "compute/kernels/kernel_table.h"
#include "compute/tensor/aligned_buffer.h"
#include "memory/geometry/state_shape.h"

namespace tessera {

class AttentionOperands {
 public:
  static constexpr uint32_t kHeadDim = 128;
  static constexpr uint32_t kHeads = 12;
  static constexpr uint32_t kKvHeads = 2;
  static constexpr uint32_t kRowsMax = 16;
  static constexpr uint64_t kGroupBytes = uint64_t{kKvHeads} * 2 * kGroupTokens * kHeadDim * 2;

  static constexpr uint64_t KeyTileOffset(uint32_t kv_head) {
    return kv_head * kGroupBytes / kKvHeads;
  }
  static constexpr uint64_t BytesOf(uint32_t tokens) { return tokens / kGroupTokens * kGroupBytes; }
  // What `rows` rows cannot do without that see `tokens` tokens.
  static Floor FloorOf(uint32_t tokens, uint32_t rows, bool from_memory);

  // Group g of the sequence is at base + offsets[g].
  AttentionOperands(std::byte* base, std::vector<uint64_t> offsets);
  static AttentionOperands Contiguous(std::byte* base, uint32_t tokens);

  struct Scratch {
    Scratch();
    AlignedBuffer<uint16_t> queries;  // [rows][heads][head_dim]
    AlignedBuffer<float> partials;    // [kv heads][rows][heads per KV head]
  };

  // One row at `position`.
  AttentionSplitArgs Decode(uint32_t position, uint32_t split, uint32_t kv_head,
                            Scratch* scratch) const;
  // The last `rows` rows of a prompt of `tokens` tokens against its last split.
  AttentionSplitArgs Prefill(uint32_t tokens, uint32_t rows, uint32_t kv_head,
                             Scratch* scratch) const;

 private:
  std::byte* base_;
  std::vector<uint64_t> offsets_;
};

}  // namespace tessera
