// SPDX-License-Identifier: Apache-2.0
//
// Paged attention over one split of the absolute 256-token grid, and the fold over splits.
//
// Rows whose last visible token lies in the same 16-token tile read the same tiles, so they and
// their heads may share each K and V tile: (row, head) pairs are taken in blocks of up to
// V::kQueryBlock, which also gives the dot product enough independent chains (6 cycles each, two a
// cycle). Rows with different last tiles are never mixed: none reads a tile beyond its own.
//
// Prefetch. Scores want K faster than memory gives it (12 dot products per 128 bytes), values want
// V slower (48 fma per 256), so each phase fetches for the other: the scores this split's V, the
// values the next split's K.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/elementwise_inl.h"
#include "compute/kernels/kernel_table.h"
#include "compute/kernels/math_inl.h"
#include "compute/kernels/vec.h"

namespace tessera::kernels {

inline constexpr uint32_t kTileTokens = 16;
inline constexpr uint32_t kSplitTiles = kSplitTokens / kTileTokens;

template <class V>
void StoreKv(const float* k, const float* v, uint32_t head_dim, uint32_t token,
             std::byte* key_tile) {
  // K: element d at [d / 2][token][d % 2]: a pair of 4 bytes every 64.
  ForLanes(head_dim, [&](uint32_t d, auto lanes) TESSERA_INLINE_LAMBDA {
    uint16_t rounded[16] = {};
    StoreBf16Lanes<V>(rounded, LoadLanes<V>(k + d, lanes), lanes);
    for (uint32_t i = 0; i < static_cast<uint32_t>(lanes); i += 2) {
      __builtin_memcpy(key_tile + (d + i) / 2 * 64 + token * 4, rounded + i, 4);
    }
  });
  std::byte* row = key_tile + (kTileTokens + token) * size_t{head_dim} * 2;
  ToBf16<V>(v, head_dim, reinterpret_cast<uint16_t*>(row));
}

template <class V>
void ZeroGroup(std::byte* group, size_t bytes) {
  __builtin_memset(group, 0, bytes);
}

// The (row, head) pairs of one block and the tiles they all see.
template <int QB>
struct AttentionBlock {
  const uint16_t* queries[QB];
  float* partials[QB];
  uint32_t last_tokens[QB];  // visible in the last tile, 1..16
  uint32_t tiles = 0;
};

TESSERA_INLINE const std::byte* KeyTile(const AttentionSplitArgs& args, uint32_t tile) {
  return args.plane + args.group_offsets[args.split * kSplitTiles + tile] + args.key_tile_offset;
}

// The K tile 16 tiles on, if a row of this call sees it; else this one.
TESSERA_INLINE const std::byte* NextSplitKeys(const AttentionSplitArgs& args, uint32_t tile) {
  const uint32_t next = (args.split + 1) * kSplitTiles + tile;
  const bool seen = next <= (args.first_position + args.rows - 1) / kTileTokens;
  return KeyTile(args, seen ? tile + kSplitTiles : tile);
}

// s[q][token] for GB tiles from `tile` on.
template <class V, int QB, int GB>
TESSERA_INLINE void ScoreTiles(const AttentionSplitArgs& args, const AttentionBlock<QB>& block,
                               uint32_t tile, float (*scores)[kSplitTokens]) {
  const size_t tile_bytes = size_t{args.head_dim} * 2 * kTileTokens;
  const std::byte* keys[GB];
  const std::byte* ahead[GB];
  Unroll<GB>([&](auto g) TESSERA_INLINE_LAMBDA {
    keys[g] = KeyTile(args, tile + g);
    ahead[g] = KeyTile(args, tile + GB + g < block.tiles ? tile + GB + g : tile + g);
  });
  typename V::F acc[QB][GB];
  Unroll<QB>([&](auto q) TESSERA_INLINE_LAMBDA {
    Unroll<GB>([&](auto g) TESSERA_INLINE_LAMBDA { acc[q][g] = V::Zero(); });
  });
  for (uint32_t d = 0; d < args.head_dim; d += 2) {
    typename V::P k[GB];
    Unroll<GB>([&](auto g) TESSERA_INLINE_LAMBDA {
      k[g] = V::LoadPairs(keys[g] + d * 32);
      __builtin_prefetch(ahead[g] + d * 32);
      __builtin_prefetch(keys[g] + tile_bytes + d * 32, 0, 2);
    });
    Unroll<QB>([&](auto q) TESSERA_INLINE_LAMBDA {
      const typename V::P pair = V::BroadcastPair(block.queries[q] + d);
      Unroll<GB>([&](auto g)
                     TESSERA_INLINE_LAMBDA { acc[q][g] = V::DotBf16(acc[q][g], pair, k[g]); });
    });
  }
  Unroll<QB>([&](auto q) TESSERA_INLINE_LAMBDA {
    Unroll<GB>([&](auto g) TESSERA_INLINE_LAMBDA {
      V::Store(scores[q] + (tile + g) * kTileTokens, acc[q][g]);
    });
  });
}

// Scores of one pair to probabilities, +0 where masked; m and l beside them.
template <class V>
TESSERA_INLINE void SoftmaxRow(float* scores, uint32_t tiles, uint32_t last_tokens, float* m_out,
                               float* l_out) {
  const typename V::M visible = V::FirstN(last_tokens);
  float* last = scores + (tiles - 1) * kTileTokens;
  typename V::F m = V::Select(visible, V::Load(last), V::Set1(-__builtin_inff()));
  for (uint32_t t = 0; t + 1 < tiles; ++t) m = V::Max(m, V::Load(scores + t * kTileTokens));
  *m_out = V::ReduceMax(m);
  m = V::Set1(*m_out);
  typename V::F l = V::Zero();
  for (uint32_t t = 0; t < tiles; ++t) {
    float* s = scores + t * kTileTokens;
    typename V::F p = Exp<V>(V::Sub(V::Load(s), m));
    if (t + 1 == tiles) p = V::Select(visible, p, V::Zero());
    V::Store(s, p);
    l = V::Add(l, p);
  }
  *l_out = V::ReduceAdd(l);
}

// o for DB vectors of dimensions from d0 on (`lanes` of the last one).
template <class V, int QB, int DB>
TESSERA_INLINE void SumValues(const AttentionSplitArgs& args, const AttentionBlock<QB>& block,
                              const float (*p)[kSplitTokens], uint32_t d0, uint32_t lanes) {
  const size_t row_bytes = size_t{args.head_dim} * 2;
  typename V::F acc[QB][DB];
  Unroll<QB>([&](auto q) TESSERA_INLINE_LAMBDA {
    Unroll<DB>([&](auto d) TESSERA_INLINE_LAMBDA { acc[q][d] = V::Zero(); });
  });
  for (uint32_t tile = 0; tile < block.tiles; ++tile) {
    const std::byte* v = KeyTile(args, tile) + kTileTokens * row_bytes + d0 * 2;
    const std::byte* fetch = NextSplitKeys(args, tile) + d0 * 2;
    for (uint32_t t = 0; t < kTileTokens; ++t) {
      typename V::F value[DB];
      Unroll<DB>([&](auto d) TESSERA_INLINE_LAMBDA {
        const auto* at = reinterpret_cast<const uint16_t*>(v) + d * 16;
        value[d] = DB == 1 && lanes < 16 ? V::LoadBf16N(at, lanes) : V::LoadBf16(at);
      });
      Unroll<(DB + 1) / 2>(
          [&](auto line) TESSERA_INLINE_LAMBDA { __builtin_prefetch(fetch + line * 64, 0, 2); });
      Unroll<QB>([&](auto q) TESSERA_INLINE_LAMBDA {
        const typename V::F pt = V::Set1(p[q][tile * kTileTokens + t]);
        Unroll<DB>([&](auto d)
                       TESSERA_INLINE_LAMBDA { acc[q][d] = V::Fma(pt, value[d], acc[q][d]); });
      });
      v += row_bytes;
      fetch += row_bytes;
    }
  }
  // -0 becomes +0, so that whether a tile of zeros took part cannot be seen.
  Unroll<QB>([&](auto q) TESSERA_INLINE_LAMBDA {
    Unroll<DB>([&](auto d) TESSERA_INLINE_LAMBDA {
      V::Store(block.partials[q] + d0 + d * 16, V::Add(acc[q][d], V::Zero()));
    });
  });
}

template <class V, int QB, int DB>
TESSERA_INLINE void SumAllValues(const AttentionSplitArgs& args, const AttentionBlock<QB>& block,
                                 const float (*p)[kSplitTokens], uint32_t d0) {
  for (; d0 + DB * 16 <= args.head_dim; d0 += DB * 16) SumValues<V, QB, DB>(args, block, p, d0, 16);
  if constexpr (DB > 1) {
    SumAllValues<V, QB, DB / 2>(args, block, p, d0);
  } else if (d0 < args.head_dim) {
    SumValues<V, QB, 1>(args, block, p, d0, args.head_dim - d0);
  }
}

template <class V, int QB>
void AttentionPairs(const AttentionSplitArgs& args, const AttentionBlock<QB>& block) {
  alignas(64) float scores[QB][kSplitTokens];
  constexpr int GB = V::kScoreGroups * (2 * QB <= V::kQueryBlock ? 2 : 1);
  uint32_t tile = 0;
  for (; tile + GB <= block.tiles; tile += GB) ScoreTiles<V, QB, GB>(args, block, tile, scores);
  for (; tile < block.tiles; ++tile) ScoreTiles<V, QB, 1>(args, block, tile, scores);
  const uint32_t padded = (args.head_dim + 15) / 16 * 16;
  for (int q = 0; q < QB; ++q) {
    float* tail = block.partials[q] + padded;
    SoftmaxRow<V>(scores[q], block.tiles, block.last_tokens[q], tail, tail + 1);
  }
  SumAllValues<V, QB, V::kValueVectors>(args, block, scores, 0);
}

// Pairs [begin, begin + QB) counted from row 0, head 0.
template <class V, int QB>
TESSERA_INLINE void DispatchPairs(const AttentionSplitArgs& args, uint32_t begin, uint32_t count,
                                  uint32_t tiles) {
  if constexpr (QB > 1) {
    if (count < QB) return DispatchPairs<V, QB - 1>(args, begin, count, tiles);
  }
  AttentionBlock<QB> block;
  block.tiles = tiles;
  for (uint32_t q = 0; q < QB; ++q) {
    const uint32_t row = (begin + q) / args.heads;
    const uint32_t head = (begin + q) % args.heads;
    block.queries[q] = args.queries + row * args.query_row_stride + head * args.query_head_stride;
    block.partials[q] = args.partials + size_t{begin + q} * AttentionPartialFloats(args.head_dim);
    const uint32_t seen = args.first_position + row + 1 - args.split * kSplitTokens;
    block.last_tokens[q] = (seen < kSplitTokens ? seen : kSplitTokens) - (tiles - 1) * kTileTokens;
  }
  AttentionPairs<V, QB>(args, block);
}

template <class V>
void AttentionSplit(const AttentionSplitArgs& args) {
  const uint32_t split_begin = args.split * kSplitTokens;
  const uint32_t last_tile = kSplitTiles - 1;
  uint32_t row = args.first_position < split_begin ? split_begin - args.first_position : 0;
  while (row < args.rows) {
    const uint32_t position = args.first_position + row;
    uint32_t tile = (position - split_begin) / kTileTokens;
    uint32_t row_end = args.rows;
    if (tile < last_tile) {  // from the last tile on, all rows see all of them
      const uint32_t tile_rows = kTileTokens - position % kTileTokens;
      if (args.rows - row > tile_rows) row_end = row + tile_rows;
    } else {
      tile = last_tile;
    }
    const uint32_t begin = row * args.heads;
    const uint32_t pairs = (row_end - row) * args.heads;
    const uint32_t blocks = (pairs + V::kQueryBlock - 1) / V::kQueryBlock;
    for (uint32_t b = 0; b < blocks; ++b) {
      const uint32_t from = pairs * b / blocks;
      const uint32_t to = pairs * (b + 1) / blocks;
      DispatchPairs<V, V::kQueryBlock>(args, begin + from, to - from, tile + 1);
    }
    row = row_end;
  }
}

template <class V>
void AttentionCombine(const AttentionCombineArgs& args) {
  const uint32_t padded = (args.head_dim + 15) / 16 * 16;
  float* o = args.accumulator;
  for (uint32_t i = 0; i < args.count; ++i) {
    const float* part = args.partials + static_cast<ptrdiff_t>(i) * args.stride;
    if (args.first && i == 0) {
      for (uint32_t d = 0; d < padded; d += 16) V::Store(o + d, V::Load(part + d));
      o[padded] = part[padded];
      o[padded + 1] = part[padded + 1];
      continue;
    }
    const typename V::F m_old = V::Set1(o[padded]);
    const typename V::F m_part = V::Set1(part[padded]);
    const typename V::F m = V::Max(m_old, m_part);
    const typename V::F a = Exp<V>(V::Sub(m_old, m));
    const typename V::F b = Exp<V>(V::Sub(m_part, m));
    const auto fold = [&](typename V::F mine, typename V::F theirs)
                          TESSERA_INLINE_LAMBDA { return V::Fma(mine, a, V::Mul(theirs, b)); };
    for (uint32_t d = 0; d < padded; d += 16) {
      V::Store(o + d, fold(V::Load(o + d), V::Load(part + d)));
    }
    V::StoreN(o + padded, m, 1);
    V::StoreN(o + padded + 1, fold(V::Set1(o[padded + 1]), V::Set1(part[padded + 1])), 1);
  }
}

template <class V>
void AttentionFinish(const float* accumulator, uint32_t head_dim, float* out) {
  const typename V::F l = V::Set1(accumulator[(head_dim + 15) / 16 * 16 + 1]);
  ForLanes(head_dim, [&](uint32_t d, auto lanes) TESSERA_INLINE_LAMBDA {
    StoreLanes<V>(out + d, V::Div(LoadLanes<V>(accumulator + d, lanes), l), lanes);
  });
}

}  // namespace tessera::kernels
