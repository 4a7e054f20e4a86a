// SPDX-License-Identifier: Apache-2.0
//
// The matrix product where weights are floating-point numbers (gemm_int8_inl.h has the others):
// outer products of a column of activations with a row of packed weights, one accumulator per
// output and k ascending, whatever the blocking.
//
//   panels   NV at a time of a group of 4: the lanes run along outputs
//   k        tiles of up to 32 KiB per panel, so that a group's tile (128 KiB) stays in L2 while all rows
//            pass over it; between tiles the accumulators rest in the output as fp32, exactly
//   rows     blocks as even as possible. AVX-512: of 1 to 6, with 4 panels; 24 accumulators, 4
//            weights and an activation are 29 of the 32 registers, and 24 chains hide the 6-cycle
//            dot product. AVX2, a vector being two registers of 16: of up to 6 (bf16: 5) with one
//            panel, which are 12 accumulators; one row takes all 4 panels
//
// Prefetch. A tile is read by passes: blocks of rows × panels / NV. A single pass takes the weights
// from memory strictly forward, which the hardware prefetches best on its own (33 GB/s, all this
// core can read; any distance by hand costs between nothing and a third). With several passes the
// first ones share the next tile between them (kFetchPasses) and fetch it into L2 while they
// compute: on AVX2, where 2 to 5 rows are 4 passes, bf16 weights for 4 rows arrive at 23.5 GB/s
// instead of 15.5 when two of the passes do it and wait for memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/gemm_blocks_inl.h"
#include "compute/kernels/gemm_int8_inl.h"
#include "compute/kernels/kernel_table.h"
#include "compute/kernels/vec.h"

namespace tessera::kernels {

inline constexpr size_t kTileBytesPerPanel = 32 * 1024;

// One step of k: 4 bytes of a row against kStepBytes of a panel.
template <class V>
struct F32Step {
  static constexpr size_t kStepBytes = 64;
  static constexpr uint32_t kStepK = 1;
  static constexpr int kRows = V::kGemmRows;
  static constexpr int kParts = 1;
  using A = typename V::F;
  using W = typename V::F;
  template <int kPart>
  static TESSERA_INLINE W LoadW(const std::byte* p) {
    return V::Load(reinterpret_cast<const float*>(p));
  }
  template <int kPart>
  static TESSERA_INLINE A LoadA(const std::byte* p) {
    float x;
    __builtin_memcpy(&x, p, 4);
    return V::Set1(x);
  }
  static TESSERA_INLINE typename V::F Step(typename V::F acc, A a, W w) {
    return V::Fma(a, w, acc);
  }
};

template <class V>
struct F16Step : F32Step<V> {
  static constexpr size_t kStepBytes = 32;
  template <int kPart>
  static TESSERA_INLINE typename V::F LoadW(const std::byte* p) {
    return V::LoadHalf(reinterpret_cast<const uint16_t*>(p));
  }
};

template <class V>
struct Bf16Step {
  static constexpr size_t kStepBytes = 64;
  static constexpr uint32_t kStepK = 2;
  static constexpr int kRows = V::kGemmPairRows;
  static constexpr int kParts = V::kPairParts;
  using A = typename V::Part;
  using W = typename V::Part;
  template <int kPart>
  static TESSERA_INLINE W LoadW(const std::byte* p) {
    return V::template PartOf<kPart>(V::LoadPairs(p));
  }
  template <int kPart>
  static TESSERA_INLINE A LoadA(const std::byte* p) {
    return V::template PartOf<kPart>(V::BroadcastPair(p));
  }
  static TESSERA_INLINE typename V::F Step(typename V::F acc, A a, W w) {
    return V::DotPart(acc, a, w);
  }
};

// The passes over a tile that share the fetching of the next one: as many as one block of rows has,
// so that memory is busy throughout. A whole group of panels is fetched with several blocks only.
template <int NV>
inline constexpr int kFetchPasses = NV == kGroupPanels ? 2 : kGroupPanels / NV;

// NV panels × some steps of k, and what the rows that pass over it need to know.
struct GemmTile {
  const std::byte* weights = nullptr;  // of the first panel, at the tile's first step
  uint32_t steps = 0;
  bool half_step = false;  // a last pair with one element follows (bf16, odd k)
  bool first = true;       // accumulators start at +0, else from the output
  uint32_t columns = 0;    // of the output, 16·NV but for the last panel's tail
};

struct GemmRows {
  const std::byte* a = nullptr;  // first row, at the tile's first step
  size_t a_stride = 0;
  float* output = nullptr;
  size_t output_stride = 0;
  // Where to fetch, kGroup / kFetchPasses<NV> bytes for each step. An integer, since it may lie
  // past the end of the weights.
  uintptr_t fetch = 0;
};

template <class V, int MR, int NV>
TESSERA_INLINE void LoadAccumulators(const GemmTile& tile, const GemmRows& rows,
                                     typename V::F (&acc)[MR][NV]) {
  Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
    const float* row = rows.output + static_cast<size_t>(r) * rows.output_stride;
    Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
      acc[r][v] = tile.first ? V::Zero() : LoadPanel<V>(row, v, tile.columns);
    });
  });
}

template <class V, int MR, int NV>
TESSERA_INLINE void StoreAccumulators(const GemmTile& tile, const GemmRows& rows,
                                      const typename V::F (&acc)[MR][NV]) {
  Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
    float* row = rows.output + static_cast<size_t>(r) * rows.output_stride;
    Unroll<NV>([&](auto v)
                   TESSERA_INLINE_LAMBDA { StorePanel<V>(row, v, tile.columns, acc[r][v]); });
  });
}

template <class V, class Type, int MR, int NV, bool kFetch>
void GemmMicro(const GemmTile& tile, const GemmRows& rows) {
  constexpr size_t kUnit = Type::kStepBytes;
  constexpr size_t kGroup = kGroupPanels * kUnit;
  typename V::F acc[MR][NV];
  LoadAccumulators<V>(tile, rows, acc);
  const std::byte* w = tile.weights;
  const std::byte* a = rows.a;
  const size_t a_stride = rows.a_stride;
  uintptr_t fetch = rows.fetch;
  for (uint32_t i = 0; i < tile.steps; ++i) {
    Unroll<Type::kParts>([&](auto part) TESSERA_INLINE_LAMBDA {
      // Hides that a later part loads the same bytes: they would be kept in registers for it.
      if constexpr (part > 0) asm volatile("" : "+r"(w), "+r"(a));
      typename Type::W wv[NV];
      Unroll<NV>([&](auto v)
                     TESSERA_INLINE_LAMBDA { wv[v] = Type::template LoadW<part>(w + v * kUnit); });
      Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
        const typename Type::A av = Type::template LoadA<part>(a + r * a_stride);
        Unroll<NV>([&](auto v)
                       TESSERA_INLINE_LAMBDA { acc[r][v] = Type::Step(acc[r][v], av, wv[v]); });
      });
    });
    if constexpr (kFetch) {
      constexpr size_t kShare = kGroup / kFetchPasses<NV>;
      for (size_t line = 0; line < kShare; line += 64) {
        __builtin_prefetch(reinterpret_cast<const void*>(fetch + line), 0, 2);
      }
      fetch += kShare;
    }
    w += kGroup;
    a += 4;
  }
  if constexpr (Type::kStepK == 2) {
    if (tile.half_step) {
      Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
        const typename V::P last = V::BroadcastLast(a + r * a_stride);
        Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
          acc[r][v] = V::DotBf16(acc[r][v], last, V::LoadPairs(w + v * kUnit));
        });
      });
    }
  }
  StoreAccumulators<V>(tile, rows, acc);
}

// The template for `count` rows, kMin..MR.
template <class V, class Type, int NV, bool kFetch, int kMin, int MR>
TESSERA_INLINE void DispatchRows(uint32_t count, const GemmTile& tile, const GemmRows& rows) {
  if constexpr (MR == kMin) {
    GemmMicro<V, Type, kMin, NV, kFetch>(tile, rows);
  } else if (count == MR) {
    GemmMicro<V, Type, MR, NV, kFetch>(tile, rows);
  } else {
    DispatchRows<V, Type, NV, kFetch, kMin, MR - 1>(count, tile, rows);
  }
}

// All rows over NV panels of a tile: in blocks as even as possible, so of at least half of
// kMaxRows when there are several. `pass` is the first of theirs over the group's tile, `next`
// where the next tile begins. Passes beyond those that fetch it run the same code and fetch lines
// of their own tile, which is in L2: no traffic, and no second variant of every template.
template <class V, class Type, int NV, int kMaxRows>
void GemmTileRows(const GemmTile& tile, const GemmRows& rows, uint32_t count, uint32_t pass,
                  uintptr_t next) {
  const uint32_t blocks = (count + kMaxRows - 1) / kMaxRows;
  const size_t share = size_t{tile.steps} * kGroupPanels * Type::kStepBytes / kFetchPasses<NV>;
  for (uint32_t b = 0; b < blocks; ++b, ++pass) {
    const size_t begin = RowsBefore(count, b, blocks);
    const auto size = static_cast<uint32_t>(RowsBefore(count, b + 1, blocks) - begin);
    GemmRows part = rows;
    part.a += begin * rows.a_stride;
    part.output += begin * rows.output_stride;
    part.fetch =
        pass < kFetchPasses<NV> ? next + pass * share : reinterpret_cast<uintptr_t>(tile.weights);
    if (blocks > 1) {
      DispatchRows<V, Type, NV, true, (kMaxRows + 1) / 2, kMaxRows>(size, tile, part);
    } else {
      DispatchRows<V, Type, NV, NV != kGroupPanels, 1, kMaxRows>(size, tile, part);
    }
  }
}

// One group of panels, all of k, NV panels at a time.
template <class V, class Type, int NV, int kMaxRows>
void GemmGroup(const GemmArgs& args, uint32_t panel) {
  constexpr size_t kGroup = kGroupPanels * Type::kStepBytes;
  constexpr uint32_t kTileSteps = kTileBytesPerPanel / Type::kStepBytes;
  const PackedMatrix& m = *args.weights;
  const uint32_t whole_steps = m.k / Type::kStepK;
  const uint32_t columns = m.n - panel * 16;
  const uint32_t blocks = (args.rows + kMaxRows - 1) / kMaxRows;
  const std::byte* weights = m.Panel(panel);
  const uint32_t tile_steps = EvenTile(whole_steps, kTileSteps);
  uint32_t step = 0;
  do {
    GemmTile tile;
    tile.steps = whole_steps - step < tile_steps ? whole_steps - step : tile_steps;
    tile.half_step = Type::kStepK == 2 && m.k % 2 != 0 && step + tile.steps == whole_steps;
    tile.first = step == 0;
    GemmRows rows;
    rows.a = static_cast<const std::byte*>(args.input.data) + step * size_t{4};
    rows.a_stride = args.input.row_stride_bytes;
    rows.output_stride = args.output_stride;
    // Unless k is cut short, the next group follows this one.
    const std::byte* next = weights + tile.steps * kGroup;
    for (uint32_t v = 0; v < kGroupPanels && v * 16 < columns; v += NV) {
      tile.weights = weights + v * Type::kStepBytes;
      tile.columns = columns - v * 16 < NV * 16u ? columns - v * 16 : NV * 16u;
      rows.output = args.output + static_cast<size_t>(panel + v) * kPanelColumns;
      GemmTileRows<V, Type, NV, kMaxRows>(tile, rows, args.rows, v / NV * blocks,
                                          reinterpret_cast<uintptr_t>(next));
    }
    weights = next;
    step += tile.steps;
  } while (step < whole_steps);
}

template <class V, class Type>
void GemmOfType(const GemmArgs& args) {
  if (args.rows == 0) return;
  for (uint32_t panel = args.panel_begin; panel < args.panel_end; panel += kGroupPanels) {
    // A whole group at once fits the registers of every instruction set with one row.
    if (V::kGemmPanels < kGroupPanels && args.rows == 1) {
      GemmGroup<V, Type, V::kGemmPanelsOneRow, 1>(args, panel);
    } else {
      GemmGroup<V, Type, V::kGemmPanels, Type::kRows>(args, panel);
    }
  }
}

template <class V>
void Gemm(const GemmArgs& args) {
  switch (args.weights->type) {
    case WeightType::kF32:
      return GemmOfType<V, F32Step<V>>(args);
    case WeightType::kF16:
      return GemmOfType<V, F16Step<V>>(args);
    case WeightType::kBF16:
      return GemmOfType<V, Bf16Step<V>>(args);
    case WeightType::kQ8_0:
    case WeightType::kQ4_0:
    case WeightType::kQ4_K:
    case WeightType::kQ6_K:
      return GemmQuantised<V>(args);
  }
}

}  // namespace tessera::kernels
