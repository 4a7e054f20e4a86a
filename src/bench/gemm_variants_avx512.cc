// SPDX-License-Identifier: Apache-2.0
#include <immintrin.h>

#include "bench/gemm_variants.h"
#include "compute/kernels/vec.h"

namespace tessera {
namespace {

using kernels::Unroll;

TESSERA_INLINE __m512bh Pairs(const void* p) { return (__m512bh)_mm512_loadu_si512(p); }
TESSERA_INLINE __m512bh BroadcastPair(const uint16_t* p) {
  int32_t pair;
  __builtin_memcpy(&pair, p, 4);
  return (__m512bh)_mm512_set1_epi32(pair);
}
TESSERA_INLINE float SumLanes(__m512 x) {
  const __m256 t8 = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 t4 = _mm_add_ps(_mm256_castps256_ps128(t8), _mm256_extractf128_ps(t8, 1));
  const __m128 t2 = _mm_add_ps(t4, _mm_movehl_ps(t4, t4));
  return _mm_cvtss_f32(_mm_add_ss(t2, _mm_movehdup_ps(t2)));
}

// A part of the matrix and of the rows that one call of a micro-kernel multiplies.
struct Block {
  const std::byte* weights = nullptr;  // a group of 64 columns, at the first step; or rows
  size_t weight_stride = 0;            // from group to group, or from row to row
  uint32_t steps = 0;                  // of k: a pair, or 32 elements
  const uint16_t* input = nullptr;
  size_t input_stride = 0;
  float* output = nullptr;
  size_t output_stride = 0;
  bool add = false;  // to what the output holds
  const std::byte* fetch =
      nullptr;  // the next tile, to be fetched meanwhile; null: a single stream
};

constexpr size_t kStepBytes = 256;  // a pair of k of 64 columns

// Vector v of a step.
TESSERA_INLINE const std::byte* VectorAt(const std::byte* step, int v, size_t group_stride) {
  return step + static_cast<size_t>(v / 4) * group_stride + static_cast<size_t>(v % 4) * 64;
}

// MR rows by NV vectors of 16 columns, pair i of k to chain i mod kChains.
template <int MR, int NV, int kChains>
void OuterMicro(const Block& block) {
  __m512 acc[kChains][MR][NV];
  Unroll<kChains * MR * NV>([&](auto i) TESSERA_INLINE_LAMBDA {
    acc[i / (MR * NV)][i / NV % MR][i % NV] = _mm512_setzero_ps();
  });
  const std::byte* w = block.weights;
  const std::byte* fetch = block.fetch;
  const uint16_t* a = block.input;
  const auto step = [&](auto chain) TESSERA_INLINE_LAMBDA {
    __m512bh wv[NV];
    Unroll<NV>([&](auto v)
                   TESSERA_INLINE_LAMBDA { wv[v] = Pairs(VectorAt(w, v, block.weight_stride)); });
    Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
      const __m512bh av = BroadcastPair(a + static_cast<size_t>(r) * block.input_stride);
      Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
        acc[chain][r][v] = _mm512_dpbf16_ps(acc[chain][r][v], av, wv[v]);
      });
    });
    if (fetch != nullptr) {
      Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
        __builtin_prefetch(VectorAt(fetch, v, block.weight_stride), 0, 2);
      });
      fetch += kStepBytes;
    }
    w += kStepBytes;
    a += 2;
  };
  for (uint32_t i = 0; i < block.steps; i += kChains) Unroll<kChains>(step);
  Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
    Unroll<NV>([&](auto v) TESSERA_INLINE_LAMBDA {
      float* c = block.output + static_cast<size_t>(r) * block.output_stride + v * 16;
      __m512 sum = acc[0][r][v];
      Unroll<kChains - 1>(
          [&](auto i) TESSERA_INLINE_LAMBDA { sum = _mm512_add_ps(sum, acc[i + 1][r][v]); });
      if (block.add) sum = _mm512_add_ps(sum, _mm512_loadu_ps(c));
      _mm512_storeu_ps(c, sum);
    });
  });
}

// MR rows by NR outputs, 32 elements of k a step.
template <int MR, int NR>
void DotMicro(const Block& block) {
  __m512 acc[MR][NR];
  Unroll<MR * NR>([&](auto i) TESSERA_INLINE_LAMBDA { acc[i / NR][i % NR] = _mm512_setzero_ps(); });
  const std::byte* w = block.weights;
  const std::byte* fetch = block.fetch;
  const uint16_t* a = block.input;
  for (uint32_t i = 0; i < block.steps; ++i) {
    __m512bh av[MR];
    Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
      av[r] = Pairs(a + static_cast<size_t>(r) * block.input_stride);
    });
    Unroll<NR>([&](auto n) TESSERA_INLINE_LAMBDA {
      const __m512bh wv = Pairs(w + n * block.weight_stride);
      if (fetch != nullptr) __builtin_prefetch(fetch + n * block.weight_stride, 0, 2);
      Unroll<MR>([&](auto r)
                     TESSERA_INLINE_LAMBDA { acc[r][n] = _mm512_dpbf16_ps(acc[r][n], av[r], wv); });
    });
    w += 64;
    if (fetch != nullptr) fetch += 64;
    a += 32;
  }
  Unroll<MR>([&](auto r) TESSERA_INLINE_LAMBDA {
    Unroll<NR>([&](auto n) TESSERA_INLINE_LAMBDA {
      block.output[static_cast<size_t>(r) * block.output_stride + n] = SumLanes(acc[r][n]);
    });
  });
}

// The micro-kernel for `count` rows, 1..MR.
template <template <int> class Micro, int MR>
TESSERA_INLINE void DispatchRows(uint32_t count, const Block& block) {
  if constexpr (MR == 1) {
    Micro<1>::Run(block);
  } else if (count == MR) {
    Micro<MR>::Run(block);
  } else {
    DispatchRows<Micro, MR - 1>(count, block);
  }
}

// All rows over one block of weights, in parts as even as can be.
template <template <int> class Micro, int kRows>
void AllRows(const GemmVariantArgs& args, const Block& block) {
  const uint32_t parts = (args.count + kRows - 1) / kRows;
  for (uint32_t i = 0; i < parts; ++i) {
    const uint32_t begin = args.count * i / parts;
    Block part = block;
    part.input += begin * args.input_stride;
    part.output += size_t{begin} * args.n;
    // Behind the first part the weights are in the cache.
    if (i > 0) part.fetch = nullptr;
    DispatchRows<Micro, kRows>(args.count * (i + 1) / parts - begin, part);
  }
}

Block WholeBlock(const GemmVariantArgs& args) {
  Block block;
  block.input = args.input;
  block.input_stride = args.input_stride;
  block.output = args.output;
  block.output_stride = args.n;
  return block;
}

// Columns 16·NV at a time, k in tiles of at most kTileBytes per 64 columns.
template <template <int> class Micro, int kRows, int NV, size_t kTileBytes>
void RunPanels(const GemmVariantArgs& args) {
  static_assert(NV % 4 == 0);
  const uint32_t steps = args.k / 2;
  constexpr uint32_t kTileSteps = kTileBytes / kStepBytes;
  Block block = WholeBlock(args);
  block.weight_stride = steps * kStepBytes;
  for (uint32_t column = 0; column < args.n; column += NV * 16) {
    for (uint32_t step = 0; step < steps; step += block.steps) {
      block.weights = args.panels + column / 64 * block.weight_stride + step * kStepBytes;
      block.steps = steps - step < kTileSteps ? steps - step : kTileSteps;
      block.add = step > 0;
      block.fetch = args.count > kRows ? block.weights + block.steps * kStepBytes : nullptr;
      block.input = args.input + size_t{step} * 2;
      block.output = args.output + column;
      AllRows<Micro, kRows>(args, block);
    }
  }
}

template <template <int> class Micro, int kRows, int NR>
void RunRows(const GemmVariantArgs& args) {
  Block block = WholeBlock(args);
  block.weight_stride = size_t{args.k} * 2;
  block.steps = args.k / 32;
  for (uint32_t n = 0; n < args.n; n += NR) {
    block.weights = args.rows + n * block.weight_stride;
    block.output = args.output + n;
    // NR rows are as many streams; the next group of them follows.
    block.fetch = block.weights + NR * block.weight_stride;
    AllRows<Micro, kRows>(args, block);
  }
}

template <int MR>
struct TwoChains8 {
  static TESSERA_INLINE void Run(const Block& block) { OuterMicro<MR, 8, 2>(block); }
};
template <int MR>
struct TwoChains4 {
  static TESSERA_INLINE void Run(const Block& block) { OuterMicro<MR, 4, 2>(block); }
};
template <int MR>
struct OneChain8 {
  static TESSERA_INLINE void Run(const Block& block) { OuterMicro<MR, 8, 1>(block); }
};
template <int MR>
struct OneChain4 {
  static TESSERA_INLINE void Run(const Block& block) { OuterMicro<MR, 4, 1>(block); }
};
template <int MR>
struct Dot8 {
  static TESSERA_INLINE void Run(const Block& block) { DotMicro<MR, 8>(block); }
};
template <int MR>
struct Dot4 {
  static TESSERA_INLINE void Run(const Block& block) { DotMicro<MR, 4>(block); }
};

// Accumulators are at most 24 of the 32 registers: 8 vectors × 1 row × 2 chains, 4 × 3 × 2.
void RunTwoChains(const GemmVariantArgs& args) {
  if (args.count == 1) return RunPanels<TwoChains8, 1, 8, 128 * 1024>(args);
  RunPanels<TwoChains4, 3, 4, 128 * 1024>(args);
}
template <size_t kTileBytes>
void RunPartials(const GemmVariantArgs& args) {
  if (args.count <= 2) return RunPanels<OneChain8, 2, 8, kTileBytes>(args);
  RunPanels<OneChain4, 6, 4, kTileBytes>(args);
}
void RunDot(const GemmVariantArgs& args) {
  if (args.count <= 3) return RunRows<Dot8, 3, 8>(args);
  RunRows<Dot4, 6, 4>(args);
}

constexpr GemmVariant kVariants[] = {
    {"two-chains", RunTwoChains},
    {"partials-128k", RunPartials<128 * 1024>},
    {"partials-16k", RunPartials<16 * 1024>},
    {"dot", RunDot},
};

}  // namespace

std::span<const GemmVariant> Avx512GemmVariants() { return kVariants; }

}  // namespace tessera
