// SPDX-License-Identifier: Apache-2.0
//
// The matrix product where weights are floating-point numbers (gemm_int8_inl.h has the others):
// outer products of a column of activations with a row of packed weights, one accumulator per
// output and k ascending, whatever the blocking.
//
//   panels   groups of NV (4; 8 for one or two rows) 16-column panels: the lanes run along outputs
//   k        tiles of 32 KiB per panel, so that a tile of 4 panels (128 KiB) stays in L2 while all
//            rows pass over it; between tiles the accumulators rest in the output as fp32, exactly
//   rows     blocks of 1 to 6, as even as possible: 6 × 4 accumulators, 4 weights and an activation
//            are 29 of the 32 registers, and 24 chains hide the 6-cycle dot product
//
// Prefetch. With one block of rows the weights come from memory once and are the bottleneck: each
// stream is prefetched into L2 (into L1 is a third slower) kStreamAheadBytes ahead, into the next
// tile where this one ends. With several blocks the tile is read from L2 again, and the first
// blocks fetch the next tile meanwhile, two panels each.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/gemm_int8_inl.h"
#include "compute/kernels/kernel_table.h"
#include "compute/kernels/vec.h"

namespace tessera::kernels {

inline constexpr size_t kTileBytesPerPanel = 32 * 1024;
inline constexpr size_t kStreamAheadBytes = 16 * 1024;

// One step of k: 4 bytes of a row against kStepBytes of a panel.
template <class V>
struct F32Step {
  static constexpr size_t kStepBytes = 64;
  static constexpr uint32_t kStepK = 1;
  using A = typename V::F;
  using W = typename V::F;
  static TESSERA_INLINE W LoadW(const std::byte* p) {
    return V::Load(reinterpret_cast<const float*>(p));
  }
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
  static TESSERA_INLINE typename V::F LoadW(const std::byte* p) {
    return V::LoadHalf(reinterpret_cast<const uint16_t*>(p));
  }
};

template <class V>
struct Bf16Step {
  static constexpr size_t kStepBytes = 64;
  static constexpr uint32_t kStepK = 2;
  using A = typename V::P;
  using W = typename V::P;
  static TESSERA_INLINE W LoadW(const std::byte* p) { return V::LoadPairs(p); }
  static TESSERA_INLINE A LoadA(const std::byte* p) { return V::BroadcastPair(p); }
  static TESSERA_INLINE typename V::F Step(typename V::F acc, A a, W w) {
    return V::DotBf16(acc, a, w);
  }
};

// NV panels × some steps of k, and what the rows that pass over it need to know.
struct GemmTile {
  const std::byte* weights = nullptr;  // of the first panel, at the tile's first step
  size_t panel_stride = 0;
  uint32_t steps = 0;
  bool half_step = false;           // a last pair with one element follows (bf16, odd k)
  const std::byte* next = nullptr;  // where the next tile begins
  bool first = true;                // accumulators start at +0, else from the output
  uint32_t columns = 0;             // of the output, 16·NV but for the last panel's tail
};

struct GemmRows {
  const std::byte* a = nullptr;  // first row, at the tile's first step
  size_t a_stride = 0;
  float* output = nullptr;
  size_t output_stride = 0;
  const std::byte* prefetch = nullptr;  // next tile's panel this block of rows fetches (or weights)
};

template <class V, int MR, int NV>
TESSERA_INLINE void LoadAccumulators(const GemmTile& tile, const GemmRows& rows,
                                     typename V::F (&acc)[MR][NV]) {
  Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
    Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
      const float* c = rows.output + static_cast<size_t>(r) * rows.output_stride + v * 16;
      if (tile.first) {
        acc[r][v] = V::Zero();
      } else if (tile.columns >= (v + 1u) * 16) {
        acc[r][v] = V::Load(c);
      } else {
        acc[r][v] = V::LoadN(c, tile.columns - v * 16);
      }
    });
  });
}

template <class V, int MR, int NV>
TESSERA_INLINE void StoreAccumulators(const GemmTile& tile, const GemmRows& rows,
                                      const typename V::F (&acc)[MR][NV]) {
  Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
    Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
      float* c = rows.output + static_cast<size_t>(r) * rows.output_stride + v * 16;
      if (tile.columns >= (v + 1u) * 16) {
        V::Store(c, acc[r][v]);
      } else {
        V::StoreN(c, acc[r][v], tile.columns - v * 16);
      }
    });
  });
}

// kStream: this is the only block of rows.
template <class V, class Type, int MR, int NV, bool kStream>
void GemmMicro(const GemmTile& tile, const GemmRows& rows) {
  typename V::F acc[MR][NV];
  LoadAccumulators<V>(tile, rows, acc);
  const std::byte* w = tile.weights;
  const size_t w_stride = tile.panel_stride;
  const std::byte* a = rows.a;
  const size_t a_stride = rows.a_stride;
  constexpr int kPrefetches = kStream ? NV : 2;
  constexpr uint32_t kAhead = kStreamAheadBytes / Type::kStepBytes;

  uint32_t left = tile.steps;
  const auto run = [&](uint32_t steps, const std::byte* fetch) TESSERA_INLINE_LAMBDA {
    for (uint32_t i = 0; i < steps; ++i) {
      typename Type::W wv[NV];
      Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA { wv[v] = Type::LoadW(w + v * w_stride); });
      Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
        const typename Type::A av = Type::LoadA(a + r * a_stride);
        Unroll<NV>([&](auto v)
                       TESSERA_INLINE_LAMBDA { acc[r][v] = Type::Step(acc[r][v], av, wv[v]); });
      });
      Unroll<kPrefetches>(
          [&](auto v) TESSERA_INLINE_LAMBDA { __builtin_prefetch(fetch + v * w_stride, 0, 2); });
      w += Type::kStepBytes;
      fetch += Type::kStepBytes;
      a += 4;
    }
  };
  if constexpr (kStream) {
    const uint32_t inside = left > kAhead ? left - kAhead : 0;
    run(inside, w + kStreamAheadBytes);
    run(left - inside, tile.next);
  } else {
    run(left, rows.prefetch);
  }
  if constexpr (Type::kStepK == 2) {
    if (tile.half_step) {
      Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
        const typename V::P last = V::BroadcastLast(a + r * a_stride);
        Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
          acc[r][v] = V::DotBf16(acc[r][v], last, V::LoadPairs(w + v * w_stride));
        });
      });
    }
  }
  StoreAccumulators<V>(tile, rows, acc);
}

// The template for `count` rows, kMin..MR.
template <class V, class Type, int NV, bool kStream, int kMin, int MR>
TESSERA_INLINE void DispatchRows(uint32_t count, const GemmTile& tile, const GemmRows& rows) {
  if constexpr (MR == kMin) {
    GemmMicro<V, Type, kMin, NV, kStream>(tile, rows);
  } else if (count == MR) {
    GemmMicro<V, Type, MR, NV, kStream>(tile, rows);
  } else {
    DispatchRows<V, Type, NV, kStream, kMin, MR - 1>(count, tile, rows);
  }
}

// All rows over one tile: in blocks as even as possible, so of at least half of kGemmRows when
// there are several.
template <class V, class Type, int NV, int kMaxRows>
void GemmTileRows(const GemmTile& tile, const GemmRows& rows, uint32_t count) {
  const uint32_t blocks = (count + kMaxRows - 1) / kMaxRows;
  for (uint32_t b = 0; b < blocks; ++b) {
    const uint32_t begin = count * b / blocks;
    const uint32_t size = count * (b + 1) / blocks - begin;
    GemmRows part = rows;
    part.a += begin * rows.a_stride;
    part.output += begin * rows.output_stride;
    part.prefetch = 2 * b < NV ? tile.next + 2 * b * tile.panel_stride : tile.weights;
    // The few panels beyond a multiple of NV are not worth templates of their own.
    if constexpr (NV == V::kGemmPanels) {
      if (blocks > 1) {
        DispatchRows<V, Type, NV, false, (kMaxRows + 1) / 2, kMaxRows>(size, tile, part);
        continue;
      }
    }
    DispatchRows<V, Type, NV, true, 1, kMaxRows>(size, tile, part);
  }
}

// One group of NV panels, all of k.
template <class V, class Type, int NV, int kMaxRows>
void GemmPanels(const GemmArgs& args, uint32_t panel) {
  const PackedMatrix& m = *args.weights;
  const uint32_t whole_steps = m.k / Type::kStepK;
  const bool half_step = Type::kStepK == 2 && m.k % 2 != 0;
  constexpr uint32_t kTileSteps = kTileBytesPerPanel / Type::kStepBytes;
  const std::byte* panels = m.panels + panel * m.panel_stride_bytes;
  uint32_t step = 0;
  do {
    GemmTile tile;
    tile.weights = panels + step * Type::kStepBytes;
    tile.panel_stride = m.panel_stride_bytes;
    tile.steps = whole_steps - step < kTileSteps ? whole_steps - step : kTileSteps;
    const bool last = step + tile.steps == whole_steps;
    tile.half_step = last && half_step;
    tile.first = step == 0;
    tile.next = last ? panels + NV * m.panel_stride_bytes : tile.weights + kTileBytesPerPanel;
    tile.columns = m.n - panel * 16 < NV * 16u ? m.n - panel * 16 : NV * 16u;
    GemmRows rows;
    rows.a = static_cast<const std::byte*>(args.input.data) + step * size_t{4};
    rows.a_stride = args.input.row_stride_bytes;
    rows.output = args.output + static_cast<size_t>(panel) * 16;
    rows.output_stride = args.output_stride;
    GemmTileRows<V, Type, NV, kMaxRows>(tile, rows, args.rows);
    step += tile.steps;
  } while (step < whole_steps);
}

// Panels in groups of NV, the rest in groups of half that, and so on.
template <class V, class Type, int NV, int kMaxRows>
TESSERA_INLINE void GemmPanelGroups(const GemmArgs& args, uint32_t panel) {
  for (; panel + NV <= args.panel_end; panel += NV) {
    GemmPanels<V, Type, NV, kMaxRows>(args, panel);
  }
  if constexpr (NV > 1) GemmPanelGroups<V, Type, NV / 2, kMaxRows>(args, panel);
}

template <class V, class Type>
void GemmOfType(const GemmArgs& args) {
  if (args.rows == 0) return;
  if (args.rows <= 2) {
    return GemmPanelGroups<V, Type, V::kGemmPanelsFewRows, 2>(args, args.panel_begin);
  }
  GemmPanelGroups<V, Type, V::kGemmPanels, V::kGemmRows>(args, args.panel_begin);
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
    default:
      return GemmQuantised<V>(args);
  }
}

}  // namespace tessera::kernels
