// SPDX-License-Identifier: Apache-2.0
#include "bench/attention_operands.h"

#include <algorithm>
#include <utility>

namespace tessera {
namespace {

constexpr uint32_t kHeadsPerKv = AttentionOperands::kHeads / AttentionOperands::kKvHeads;
constexpr size_t kPartialFloats = AttentionPartialFloats(AttentionOperands::kHeadDim);
constexpr uint16_t kQuarterBf16 = 0x3E80;

}  // namespace

Floor AttentionOperands::FloorOf(uint32_t tokens, uint32_t rows, bool from_memory) {
  Floor floor;
  (from_memory ? floor.read_bytes : floor.cache_bytes) = static_cast<double>(BytesOf(tokens));
  const double products = 2.0 * rows * kHeads * tokens * kHeadDim;
  floor.on(Pipe::kBf16) = products;  // scores
  floor.on(Pipe::kFma) = products;   // values
  return floor;
}

AttentionOperands::AttentionOperands(std::byte* base, std::vector<uint64_t> offsets)
    : base_(base), offsets_(std::move(offsets)) {}

AttentionOperands::Scratch::Scratch()
    : queries(size_t{kRowsMax} * kHeads * kHeadDim),
      partials(size_t{kKvHeads} * kRowsMax * kHeadsPerKv * kPartialFloats) {
  std::fill(queries.begin(), queries.end(), kQuarterBf16);
}

AttentionOperands AttentionOperands::Contiguous(std::byte* base, uint32_t tokens) {
  std::vector<uint64_t> offsets(tokens / kGroupTokens);
  for (size_t g = 0; g < offsets.size(); ++g) offsets[g] = g * kGroupBytes;
  return {base, std::move(offsets)};
}

AttentionSplitArgs AttentionOperands::Decode(uint32_t position, uint32_t split, uint32_t kv_head,
                                             Scratch* scratch) const {
  AttentionSplitArgs args;
  args.plane = base_;
  args.group_offsets = offsets_.data();
  args.key_tile_offset = KeyTileOffset(kv_head);
  args.head_dim = kHeadDim;
  args.queries = scratch->queries.data() + kv_head * kHeadsPerKv * kHeadDim;
  args.query_row_stride = size_t{kHeads} * kHeadDim;
  args.query_head_stride = kHeadDim;
  args.rows = 1;
  args.heads = kHeadsPerKv;
  args.first_position = position;
  args.split = split;
  args.partials =
      scratch->partials.data() + size_t{kv_head} * kRowsMax * kHeadsPerKv * kPartialFloats;
  return args;
}

AttentionSplitArgs AttentionOperands::Prefill(uint32_t tokens, uint32_t rows, uint32_t kv_head,
                                              Scratch* scratch) const {
  AttentionSplitArgs args = Decode(tokens - rows, (tokens - rows) / kSplitTokens, kv_head, scratch);
  args.rows = rows;
  return args;
}

}  // namespace tessera
