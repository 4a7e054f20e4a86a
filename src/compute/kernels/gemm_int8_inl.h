// SPDX-License-Identifier: Apache-2.0
//
// The matrix product of quantised weights with int8 activations: integer dot products of a block,
// exact in any order, then one fp32 accumulator per output with blocks ascending, whatever the
// blocking.
//
// Weights are unsigned bytes (q8_0: w + 128; q4_0, q4_k: 0..15; q6_k: 0..63), activations signed.
// The weights' offset is taken off by starting each dot at offset·(-Σa), sums made when the
// activations were rounded.
//
//   panels   NV (kInt8Panels; kInt8PanelsFewRows for one or two rows) at a time of a group of 4
//   k        tiles of up to kInt8TileK inputs, at most 136 KiB a group, which stay in L2 while all rows
//            pass over them; between tiles the accumulators rest in the output as fp32, exactly
//   rows     blocks of 1 to kInt8Rows, as even as possible. AVX-512: 6 rows × 2 panels, whose dots,
//            accumulators, weights (packed and unpacked) and an activation are 12 + 12 + 4 + 1 of
//            32 registers; 12 chains hide the 5-cycle dot product. AVX2: 3 rows × 1 panel
//
// On AVX-512 one or two rows take unit after unit, so that a group is one stream, which the
// hardware prefetches best: 33 GB/s for q8_0 and 31 for q4_k where bf16 has 33, against 22 and 15
// when 4 panels were read side by side and fetched by software (one core, under load). Otherwise a
// group's tile is passed over several times, from L2, and each pass fetches its share of the next
// tile's lines.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/gemm_blocks_inl.h"
#include "compute/kernels/kernel_table.h"
#include "compute/kernels/packed_matrix.h"
#include "compute/kernels/vec.h"

namespace tessera::kernels {

inline constexpr uint32_t kInt8TileK = 2048;

// NV panels × some blocks of k.
struct Int8Tile {
  const std::byte* weights = nullptr;  // of the first panel, at the tile's first unit
  uint32_t blocks = 0;
  uintptr_t next = 0;    // where the next tile begins; maybe past the weights' end
  bool first = true;     // accumulators start at +0, else from the output
  uint32_t columns = 0;  // of the output, 16·NV but for the last panel's tail
  uint32_t passes = 1;   // over the group's tile
};

// The rows of a block, at the tile's first block of k.
struct Int8Rows {
  const std::byte* a = nullptr;
  size_t a_stride = 0;
  const float* scales = nullptr;
  size_t scale_stride = 0;
  const int32_t* sums = nullptr;
  size_t sum_stride = 0;
  float* output = nullptr;
  size_t output_stride = 0;
  uint32_t pass = 0;  // which of the tile's passes this block of rows makes
};

// The lines each pass over a tile fetches: its share of the next tile. A single pass leaves its one
// stream to the hardware. kSteps steps to a block, each of kStepBytes of the group.
template <size_t kStepBytes, uint32_t kSteps>
class Int8Prefetch {
 public:
  TESSERA_INLINE Int8Prefetch(const Int8Tile& tile, uint32_t pass) {
    if (tile.passes == 1) return;
    rate_ = (kStepBytes + tile.passes - 1) / tile.passes;
    from_ = tile.next + rate_ * tile.blocks * kSteps * pass;
  }
  TESSERA_INLINE void Step() {
    end_ += rate_;
    for (; line_ < end_; line_ += 64) {
      __builtin_prefetch(reinterpret_cast<const void*>(from_ + line_), 0, 2);
    }
  }

 private:
  uintptr_t from_ = 0;
  size_t line_ = 0;
  size_t end_ = 0;
  size_t rate_ = 0;
};

// Whether a row block takes the panels of a group one after another, which at one or two rows keeps
// the weights one stream; more rows need NV panels for each activation they load.
template <int MR, int NV>
inline constexpr bool kInt8Forward = MR <= 2 && NV == kGroupPanels;

// Calls step(0) … step(N - 1). With few registers the loop stays one, its count hidden from the
// compiler: unrolled, weights of later steps are loaded early and spilled (gemm of 96 rows on AVX2:
// q8_0 110 GF/s instead of 74, q4_k 162 instead of 126, q6_k 122 instead of 91).
template <class V, int N, class Step>
TESSERA_INLINE void DotSteps(Step&& step) {
  if constexpr (V::kUnrollDots) {
    Unroll<N>(step);
  } else {
    for (int j = 0; j < N; ++j) {
      step(j);
      asm("" : "+r"(j));
    }
  }
}

// dots += 32 products of each output: bytes [8][16][4].
template <class V, int MR, int NV>
TESSERA_INLINE void ByteDots(const std::byte* w, size_t w_stride, const std::byte* a,
                             size_t a_stride, typename V::I (&dots)[MR][NV]) {
  DotSteps<V, 8>([&](int j) TESSERA_INLINE_LAMBDA {
    typename V::B wv[NV];
    Unroll<NV>([&](auto v)
                   TESSERA_INLINE_LAMBDA { wv[v] = V::LoadBytes(w + v * w_stride + j * 64); });
    Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
      const typename V::B av = V::BroadcastBytes(a + r * a_stride + j * 4);
      Unroll<NV>([&](auto v)
                     TESSERA_INLINE_LAMBDA { dots[r][v] = V::DotBytes(dots[r][v], wv[v], av); });
    });
  });
}

// The same of nibbles [4][16][4].
template <class V, int MR, int NV>
TESSERA_INLINE void NibbleDots(const std::byte* w, size_t w_stride, const std::byte* a,
                               size_t a_stride, typename V::I (&dots)[MR][NV]) {
  DotSteps<V, 4>([&](int j) TESSERA_INLINE_LAMBDA {
    typename V::B wv[NV];
    Unroll<NV>([&](auto v)
                   TESSERA_INLINE_LAMBDA { wv[v] = V::LoadBytes(w + v * w_stride + j * 64); });
    Unroll<2>([&](auto high) TESSERA_INLINE_LAMBDA {
      typename V::B q[NV];
      Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
        q[v] = high != 0 ? V::HighNibbles(wv[v]) : V::LowNibbles(wv[v]);
      });
      Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
        const typename V::B av = V::BroadcastBytes(a + r * a_stride + high * 16 + j * 4);
        Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
          dots[r][v] = V::DotSmallBytes(dots[r][v], q[v], av);
        });
      });
    });
  });
}

// 16 products of 6-bit weights: sub-block kSub of a quarter.
template <class V, int kSub, int MR, int NV>
TESSERA_INLINE void SixBitDots(const std::byte* w, size_t w_stride, const std::byte* a,
                               size_t a_stride, typename V::I (&dots)[MR][NV]) {
  DotSteps<V, 4>([&](int i) TESSERA_INLINE_LAMBDA {
    typename V::B q[NV];
    Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
      const std::byte* quarter = w + v * w_stride;
      const typename V::B nibbles = V::LoadBytes(quarter + ((kSub & 1) * 4 + i) * 64);
      const typename V::B pairs = V::LoadBytes(quarter + Q6KUnit::kPairs + i * 64);
      q[v] = V::OrBytes(kSub < 2 ? V::LowNibbles(nibbles) : V::HighNibbles(nibbles),
                        V::template TopBits<2 * kSub>(pairs));
    });
    Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
      const typename V::B av = V::BroadcastBytes(a + r * a_stride + kSub * 16 + i * 4);
      Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
        dots[r][v] = V::DotSmallBytes(dots[r][v], q[v], av);
      });
    });
  });
}

// Types whose blocks of 32 have one scale: units of two blocks, their scales first.
template <class V>
struct Q8_0Block {
  static constexpr WeightType kType = WeightType::kQ8_0;
  static constexpr uint32_t kBlockK = kSmallBlock;
  static constexpr uint32_t kSumWords = 1;
  static constexpr int kOffsetBits = 7;
  template <int MR, int NV>
  static TESSERA_INLINE void Dots(const std::byte* w, size_t w_stride, const std::byte* a,
                                  size_t a_stride, typename V::I (&dots)[MR][NV]) {
    ByteDots<V>(w, w_stride, a, a_stride, dots);
  }
};
template <class V>
struct Q4_0Block : Q8_0Block<V> {
  static constexpr WeightType kType = WeightType::kQ4_0;
  static constexpr int kOffsetBits = 3;
  template <int MR, int NV>
  static TESSERA_INLINE void Dots(const std::byte* w, size_t w_stride, const std::byte* a,
                                  size_t a_stride, typename V::I (&dots)[MR][NV]) {
    NibbleDots<V>(w, w_stride, a, a_stride, dots);
  }
};

// A row's activations from a block of 256 on: bytes and words of sums.
struct SuperBlockRows {
  const std::byte* a;
  size_t a_stride;
  const int32_t* sums;
  size_t sum_stride;
};

// The integer parts of a block of 256: Sums adds up scale·dot of its sub-blocks, MinSums
// min·(-Σa). |dot of 32 nibbles| ≤ 32·15·128 and scales ≤ 63: Sums ≤ 8·63·61,440 < 2^25.
template <class V>
struct Q4KBlock {
  static constexpr WeightType kType = WeightType::kQ4_K;
  static constexpr uint32_t kBlockK = kSuperBlock;
  static constexpr uint32_t kSumWords = kKSumWords;
  static constexpr bool kMins = true;

  template <int MR, int NV>
  static TESSERA_INLINE void Sums(const std::byte* unit, size_t stride, const SuperBlockRows& rows,
                                  typename V::I (&sums)[MR][NV]) {
    for (int sub = 0; sub < 8; ++sub) {
      typename V::I dots[MR][NV];
      Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
        Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA { dots[r][v] = V::Set1I(0); });
      });
      NibbleDots<V>(unit + Q4KUnit::kWeights + sub * Q4KUnit::kSubBytes, stride, rows.a + sub * 32,
                    rows.a_stride, dots);
      const std::byte* scales = unit + Q4KUnit::kScales + sub * kPanelColumns;
      Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
        const typename V::I scale = V::LoadUint8Lanes(scales + v * stride);
        Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
          sums[r][v] = V::AddI(sums[r][v], V::MulI(dots[r][v], scale));
        });
      });
    }
  }
  // -Σa of 32 came as 64·high + low, a byte each: 4 sub-blocks to a dot.
  static TESSERA_INLINE typename V::I MinSums(const std::byte* unit, const int32_t* sums) {
    const typename V::B first = V::LoadBytes(unit + Q4KUnit::kMins);
    const typename V::B second = V::LoadBytes(unit + Q4KUnit::kMins + 64);
    const auto dot = [&](const int32_t* words) TESSERA_INLINE_LAMBDA {
      const typename V::I half = V::DotSmallBytes(V::Set1I(0), first, V::BroadcastBytes(words));
      return V::DotSmallBytes(half, second, V::BroadcastBytes(words + 1));
    };
    return V::AddI(dot(sums + 16), V::template ShiftLeft<6>(dot(sums + 18)));
  }
};

// |dot of 16| ≤ 16·63·128 before and 16·32·128 after the offset, and |scale| ≤ 128: Sums ≤
// 16·128·65,536 = 2^27.
template <class V>
struct Q6KBlock {
  static constexpr WeightType kType = WeightType::kQ6_K;
  static constexpr uint32_t kBlockK = kSuperBlock;
  static constexpr uint32_t kSumWords = kKSumWords;
  static constexpr bool kMins = false;

  template <int MR, int NV>
  static TESSERA_INLINE void Sums(const std::byte* unit, size_t stride, const SuperBlockRows& rows,
                                  typename V::I (&sums)[MR][NV]) {
    for (int quarter = 0; quarter < 4; ++quarter) {
      const std::byte* w = unit + Q6KUnit::kWeights + quarter * Q6KUnit::kQuarterBytes;
      const std::byte* a = rows.a + quarter * 64;
      Unroll<4>([&](auto sub) TESSERA_INLINE_LAMBDA {
        typename V::I dots[MR][NV];
        Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
          const int32_t minus_sum = rows.sums[r * rows.sum_stride + quarter * 4 + sub];
          const typename V::I start = V::template ShiftLeft<5>(V::Set1I(minus_sum));
          Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA { dots[r][v] = start; });
        });
        SixBitDots<V, decltype(sub)::value>(w, stride, a, rows.a_stride, dots);
        const std::byte* scales = unit + Q6KUnit::kScales + (quarter * 4 + sub) * kPanelColumns;
        Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
          const typename V::I scale = V::LoadInt8Lanes(scales + v * stride);
          Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
            sums[r][v] = V::AddI(sums[r][v], V::MulI(dots[r][v], scale));
          });
        });
      });
    }
  }
};

// What the accumulator of row r and panel v of the tile starts from.
template <class V>
TESSERA_INLINE typename V::F StartOf(const Int8Tile& tile, const Int8Rows& rows, uint32_t r,
                                     uint32_t v) {
  if (tile.first) return V::Zero();
  return LoadPanel<V>(rows.output + r * rows.output_stride, v, tile.columns);
}

// |dot| ≤ 32·255·128 and the offset's part ≤ 128·32·128: far inside int32.
template <class V, class Block, int MR, int NV>
void Int8Micro(const Int8Tile& tile, const Int8Rows& rows) {
  constexpr size_t kUnitBytes = PackedUnitOf(Block::kType).bytes;
  constexpr size_t kBlockBytes = (kUnitBytes - kUnitBody) / 2;
  typename V::F acc[MR][NV];
  Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
    Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA { acc[r][v] = StartOf<V>(tile, rows, r, v); });
  });
  const std::byte* unit = tile.weights;
  const std::byte* a = rows.a;
  Int8Prefetch<kGroupPanels * kUnitBytes / 2, 1> prefetch(tile, rows.pass);
  for (uint32_t block = 0; block < tile.blocks; ++block) {
    prefetch.Step();
    const size_t half = block & 1;
    typename V::I dots[MR][NV];
    Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
      const typename V::I start = V::template ShiftLeft<Block::kOffsetBits>(
          V::Set1I(rows.sums[r * rows.sum_stride + block]));
      Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA { dots[r][v] = start; });
    });
    Block::Dots(unit + kUnitBody + half * kBlockBytes, kUnitBytes, a, rows.a_stride, dots);
    typename V::F dw[NV];
    Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
      const std::byte* d = unit + v * kUnitBytes + half * kUnitHalfBytes;
      dw[v] = V::LoadHalf(reinterpret_cast<const uint16_t*>(d));
    });
    Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
      const typename V::F da = V::Set1(rows.scales[r * rows.scale_stride + block]);
      Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
        acc[r][v] = V::Fma(V::ToFloat(dots[r][v]), V::Mul(dw[v], da), acc[r][v]);
      });
    });
    unit += half * kGroupPanels * kUnitBytes;
    a += 32;
  }
  Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
    Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
      StorePanel<V>(rows.output + r * rows.output_stride, v, tile.columns, acc[r][v]);
    });
  });
}

// The same for one or two rows, unit after unit: memory is read strictly forward.
template <class V, class Block, int MR>
void Int8MicroForward(const Int8Tile& tile, const Int8Rows& rows) {
  constexpr size_t kUnitBytes = PackedUnitOf(Block::kType).bytes;
  constexpr size_t kBlockBytes = (kUnitBytes - kUnitBody) / 2;
  alignas(64) float acc[MR][kGroupPanels][16];
  Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
    for (uint32_t v = 0; v < kGroupPanels; ++v) {
      V::Store(acc[r][v], StartOf<V>(tile, rows, r, v));
    }
  });
  const std::byte* unit = tile.weights;
  for (uint32_t pair = 0; pair < tile.blocks; pair += 2) {
    const uint32_t halves = tile.blocks - pair < 2 ? 1 : 2;
    for (uint32_t v = 0; v < kGroupPanels; ++v, unit += kUnitBytes) {
      for (uint32_t half = 0; half < halves; ++half) {
        const uint32_t block = pair + half;
        typename V::I dots[MR][1];
        Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
          dots[r][0] = V::template ShiftLeft<Block::kOffsetBits>(
              V::Set1I(rows.sums[r * rows.sum_stride + block]));
        });
        Block::Dots(unit + kUnitBody + half * kBlockBytes, kUnitBytes, rows.a + block * 32,
                    rows.a_stride, dots);
        const typename V::F dw =
            V::LoadHalf(reinterpret_cast<const uint16_t*>(unit + half * kUnitHalfBytes));
        Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
          const typename V::F da = V::Set1(rows.scales[r * rows.scale_stride + block]);
          V::Store(acc[r][v], V::Fma(V::ToFloat(dots[r][0]), V::Mul(dw, da), V::Load(acc[r][v])));
        });
      }
    }
  }
  Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
    for (uint32_t v = 0; v < kGroupPanels; ++v) {
      StorePanel<V>(rows.output + r * rows.output_stride, v, tile.columns, V::Load(acc[r][v]));
    }
  });
}

// Dots and scaled sums take 24 registers, so the accumulators are in memory: once per 256 inputs.
template <class V, class Block, int MR, int NV>
void Int8MicroK(const Int8Tile& tile, const Int8Rows& rows) {
  constexpr size_t kUnitBytes = PackedUnitOf(Block::kType).bytes;
  alignas(64) float acc[MR][NV][16];
  Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
    Unroll<NV>([&](auto v)
                   TESSERA_INLINE_LAMBDA { V::Store(acc[r][v], StartOf<V>(tile, rows, r, v)); });
  });
  const std::byte* unit = tile.weights;
  SuperBlockRows at = {rows.a, rows.a_stride, rows.sums, rows.sum_stride};
  constexpr int kAtOnce = kInt8Forward<MR, NV> ? 1 : NV;
  constexpr int kSteps = NV / kAtOnce;
  Int8Prefetch<kGroupPanels * kUnitBytes / kSteps, kSteps> prefetch(tile, rows.pass);
  for (uint32_t step = 0; step < tile.blocks * kSteps; ++step) {
    prefetch.Step();
    const uint32_t block = step / kSteps;
    const uint32_t first = step % kSteps * kAtOnce;  // panel
    typename V::I sums[MR][kAtOnce];
    Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
      Unroll<kAtOnce>([&](auto v) TESSERA_INLINE_LAMBDA { sums[r][v] = V::Set1I(0); });
    });
    Block::Sums(unit + first * kUnitBytes, kUnitBytes, at, sums);
    Unroll<kAtOnce>([&](auto v) TESSERA_INLINE_LAMBDA {
      const std::byte* scales = unit + (first + v) * kUnitBytes;
      const typename V::F d = V::LoadHalf(reinterpret_cast<const uint16_t*>(scales));
      Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
        const typename V::F da = V::Set1(rows.scales[r * rows.scale_stride + block]);
        typename V::F sum =
            V::Fma(V::ToFloat(sums[r][v]), V::Mul(d, da), V::Load(acc[r][first + v]));
        if constexpr (Block::kMins) {
          const typename V::F dmin =
              V::LoadHalf(reinterpret_cast<const uint16_t*>(scales + kUnitHalfBytes));
          const typename V::I mins = Block::MinSums(scales, at.sums + r * at.sum_stride);
          sum = V::Fma(V::ToFloat(mins), V::Mul(dmin, da), sum);
        }
        V::Store(acc[r][first + v], sum);
      });
    });
    if (first + kAtOnce < NV) continue;
    unit += kGroupPanels * kUnitBytes;
    at.a += kSuperBlock;
    at.sums += kKSumWords;
  }
  Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
    Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
      StorePanel<V>(rows.output + r * rows.output_stride, v, tile.columns, V::Load(acc[r][v]));
    });
  });
}

template <class V, class Block, int MR, int NV>
TESSERA_INLINE void Int8RowBlock(const Int8Tile& tile, const Int8Rows& rows) {
  if constexpr (Block::kBlockK == kSuperBlock) {
    Int8MicroK<V, Block, MR, NV>(tile, rows);
  } else {
    if constexpr (kInt8Forward<MR, NV>) {
      Int8MicroForward<V, Block, MR>(tile, rows);
    } else {
      Int8Micro<V, Block, MR, NV>(tile, rows);
    }
  }
}

// The template for `count` rows, 1..MR.
template <class V, class Block, int MR, int NV>
TESSERA_INLINE void Int8DispatchRows(uint32_t count, const Int8Tile& tile, const Int8Rows& rows) {
  if constexpr (MR == 1) {
    Int8RowBlock<V, Block, 1, NV>(tile, rows);
  } else if (count == MR) {
    Int8RowBlock<V, Block, MR, NV>(tile, rows);
  } else {
    Int8DispatchRows<V, Block, MR - 1, NV>(count, tile, rows);
  }
}

// All rows over NV panels of a tile, in blocks as even as possible. `pass` is the first of theirs.
template <class V, class Block, int MR, int NV>
void Int8TileRows(const Int8Tile& tile, const Int8Rows& rows, uint32_t count, uint32_t pass) {
  const uint32_t blocks = (count + MR - 1) / MR;
  for (uint32_t b = 0; b < blocks; ++b) {
    const size_t begin = RowsBefore(count, b, blocks);
    const auto size = static_cast<uint32_t>(RowsBefore(count, b + 1, blocks) - begin);
    Int8Rows part = rows;
    part.a += begin * rows.a_stride;
    part.scales += begin * rows.scale_stride;
    part.sums += begin * rows.sum_stride;
    part.output += begin * rows.output_stride;
    part.pass = pass + b;
    Int8DispatchRows<V, Block, MR, NV>(size, tile, part);
  }
}

// One group of panels, all of k, NV panels at a time.
template <class V, class Block, int MR, int NV>
void Int8Group(const GemmArgs& args, uint32_t panel) {
  const PackedMatrix& m = *args.weights;
  constexpr PackedUnit kUnit = PackedUnitOf(Block::kType);
  const uint32_t blocks = (m.k + Block::kBlockK - 1) / Block::kBlockK;
  const uint32_t units = (m.k + kUnit.k - 1) / kUnit.k;
  const uint32_t tile_units = EvenTile(units, kInt8TileK / kUnit.k);
  const uint32_t tile_blocks = tile_units * (kUnit.k / Block::kBlockK);
  const size_t tile_bytes = size_t{tile_units} * kUnit.bytes * kGroupPanels;
  const uint32_t columns = m.n - panel * 16;
  const uint32_t row_blocks = (args.rows + MR - 1) / MR;
  const std::byte* weights = m.Panel(panel);
  const uintptr_t after = reinterpret_cast<uintptr_t>(weights) + m.group_stride_bytes;
  for (uint32_t block = 0; block < blocks; block += tile_blocks) {
    const bool last = blocks - block <= tile_blocks;
    Int8Tile tile;
    tile.blocks = last ? blocks - block : tile_blocks;
    tile.first = block == 0;
    tile.next = last ? after : reinterpret_cast<uintptr_t>(weights) + tile_bytes;
    tile.passes = row_blocks * (kGroupPanels / NV);
    Int8Rows rows;
    rows.a = static_cast<const std::byte*>(args.input.data) + size_t{block} * Block::kBlockK;
    rows.a_stride = args.input.row_stride_bytes;
    rows.scales = args.input.scales + block;
    rows.scale_stride = args.input.scale_row_stride;
    rows.sums = args.input.sums + size_t{block} * Block::kSumWords;
    rows.sum_stride = args.input.sum_row_stride;
    rows.output_stride = args.output_stride;
    for (uint32_t v = 0; v < kGroupPanels && v * 16 < columns; v += NV) {
      tile.weights = weights + v * kUnit.bytes;
      tile.columns = columns - v * 16 < NV * 16u ? columns - v * 16 : NV * 16u;
      rows.output = args.output + static_cast<size_t>(panel + v) * kPanelColumns;
      Int8TileRows<V, Block, MR, NV>(tile, rows, args.rows, v / NV * row_blocks);
    }
    if (!last) weights += tile_bytes;
  }
}

template <class V, class Block>
void GemmInt8(const GemmArgs& args) {
  if (args.rows == 0) return;
  for (uint32_t panel = args.panel_begin; panel < args.panel_end; panel += kGroupPanels) {
    if (args.rows <= 2) {
      Int8Group<V, Block, 2, V::kInt8PanelsFewRows>(args, panel);
    } else {
      Int8Group<V, Block, V::kInt8Rows, V::kInt8Panels>(args, panel);
    }
  }
}

template <class V>
void GemmQuantised(const GemmArgs& args) {
  switch (args.weights->type) {
    case WeightType::kQ8_0:
      return GemmInt8<V, Q8_0Block<V>>(args);
    case WeightType::kQ4_0:
      return GemmInt8<V, Q4_0Block<V>>(args);
    case WeightType::kQ4_K:
      return GemmInt8<V, Q4KBlock<V>>(args);
    case WeightType::kQ6_K:
      return GemmInt8<V, Q6KBlock<V>>(args);
    case WeightType::kF32:
    case WeightType::kF16:
    case WeightType::kBF16:
      return;  // gemm_inl.h
  }
}

}  // namespace tessera::kernels
