// SPDX-License-Identifier: Apache-2.0
//
// The Mamba-2 recurrence, sequential for prompts and generated tokens alike.
//
// Per head, tokens in runs of 8; per run, 16 state rows (a row: one p of the head, N elements)
// after another, each held in registers as fp32 over the run. B and C of a run are copied side by
// side first: 2·8·256·4 = 16 KiB of a 32 KiB L1, which rows of a conv output 14 KiB apart would not
// share peacefully. A head's state (128·256·4 = 128 KiB, half of it in bf16) stays in L2 from run
// to run.
//
// The sums over N of 16 rows are finished together: 16 vectors reduce to one with 15 additions
// instead of 64.
//
// Where the registers do not hold a row (V::kScanByChains), part of its vectors at a time is taken
// over the run: of an fp32 row those of one chain, so that the chain stays in a register; of a bf16
// row, whose lines hold vectors of two chains, two lines, so that the chains rest in memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/kernel_table.h"
#include "compute/kernels/state_cursor.h"
#include "compute/kernels/vec.h"

namespace tessera::kernels {

inline constexpr uint32_t kScanRun = 8;
inline constexpr uint32_t kScanRows = 16;

// How a state row lies in memory, and what is kept of it from a token to the next: Keep is Load
// after Store. Rows of whole lines of 64 bytes are held in registers, others taken by vectors.
template <class V>
struct Fp32Rows {
  using F = typename V::F;
  using Element = float;
  static constexpr uint32_t kLineElements = 16;

  template <int kVectors>
  static TESSERA_INLINE void Load(const float* p, F (&s)[kVectors]) {
    Unroll<kVectors>([&](auto v) TESSERA_INLINE_LAMBDA { s[v] = V::Load(p + v * 16); });
  }
  template <int kVectors>
  static TESSERA_INLINE void Store(float* p, const F (&s)[kVectors]) {
    Unroll<kVectors>([&](auto v) TESSERA_INLINE_LAMBDA { V::Store(p + v * 16, s[v]); });
  }
  template <int kVectors>
  static TESSERA_INLINE void Stream(float* p, const F (&s)[kVectors]) {
    Unroll<kVectors>([&](auto v) TESSERA_INLINE_LAMBDA { V::Stream(p + v * 16, s[v]); });
  }
  template <int kVectors>
  static TESSERA_INLINE void Keep(F (&)[kVectors]) {}

  static TESSERA_INLINE F LoadN(const float* p, uint32_t n) { return V::LoadN(p, n); }
  static TESSERA_INLINE void StoreVector(float* p, F s) { V::Store(p, s); }
};

template <class V>
struct Bf16Rows {
  using F = typename V::F;
  using Element = uint16_t;
  static constexpr uint32_t kLineElements = 32;

  template <int kVectors>
  static TESSERA_INLINE void Load(const uint16_t* p, F (&s)[kVectors]) {
    Unroll<kVectors / 2>([&](auto v) TESSERA_INLINE_LAMBDA {
      V::LoadBf16Pair(p + v * 32, &s[v * 2], &s[v * 2 + 1]);
    });
  }
  template <int kVectors>
  static TESSERA_INLINE void Store(uint16_t* p, const F (&s)[kVectors]) {
    Unroll<kVectors / 2>([&](auto v) TESSERA_INLINE_LAMBDA {
      V::StoreBf16Pair(p + v * 32, s[v * 2], s[v * 2 + 1]);
    });
  }
  template <int kVectors>
  static TESSERA_INLINE void Stream(uint16_t* p, const F (&s)[kVectors]) {
    Unroll<kVectors / 2>([&](auto v) TESSERA_INLINE_LAMBDA {
      V::StreamBf16Pair(p + v * 32, s[v * 2], s[v * 2 + 1]);
    });
  }
  template <int kVectors>
  static TESSERA_INLINE void Keep(F (&s)[kVectors]) {
    Unroll<kVectors / 2>([&](auto v)
                             TESSERA_INLINE_LAMBDA { V::RoundBf16Pair(&s[v * 2], &s[v * 2 + 1]); });
  }

  static TESSERA_INLINE F LoadN(const uint16_t* p, uint32_t n) { return V::LoadBf16N(p, n); }
  static TESSERA_INLINE void StoreVector(uint16_t* p, F s) { V::StoreBf16(p, s); }
};

// The state rows of one call. They are not prefetched by hand: rows follow one another in long
// runs, which the hardware sees. Every line of source or destination 1 to 8 rows ahead made a token
// a quarter to a half slower, one line of every 4 KiB 32 KiB ahead changed nothing.
template <class Rows>
struct ScanState {
  StateCursor source;
  StateCursor destination;
  uint64_t start;
  uint64_t row_bytes;

  explicit ScanState(const ScanArgs& args)
      : source(args.source),
        destination(args.destination),
        start(args.start),
        row_bytes(args.row_bytes) {}

  // Null for the zero state.
  TESSERA_INLINE const typename Rows::Element* Source(uint64_t row) {
    if (source.is_zero()) return nullptr;
    return reinterpret_cast<const typename Rows::Element*>(source.At(start + row * row_bytes));
  }
  TESSERA_INLINE typename Rows::Element* Destination(uint64_t row) {
    return reinterpret_cast<typename Rows::Element*>(destination.At(start + row * row_bytes));
  }
};

template <class V>
TESSERA_INLINE typename V::F SumChains(const typename V::F (&chain)[4]) {
  return V::Add(V::Add(chain[0], chain[1]), V::Add(chain[2], chain[3]));
}

// What one head's run of tokens works on.
template <int kVectors>
struct ScanRun {
  uint32_t count;  // tokens, up to kScanRun
  bool whole;      // all tokens of the call
  alignas(64) float b[kScanRun][kVectors * 16];
  alignas(64) float c[kScanRun][kVectors * 16];
  alignas(64) float decay[kScanRun];
  alignas(64) float dx[kScanRun][kScanRows];        // Δ·x of 16 rows
  alignas(64) float sums[kScanRun][kScanRows][16];  // s·C of 16 rows, lanes not yet added
};

// A row that went elsewhere than it came from, and is not needed again by this call, goes past the
// caches: its lines need not be fetched first. 3 MiB from memory to memory and one token: 165 us
// instead of 245; a copy by memcpy takes 190. In place it would be 140 instead of 110.
template <class V, int kVectors>
TESSERA_INLINE bool PastCaches(const ScanRun<kVectors>& run, const void* source,
                               const void* destination) {
  const bool aligned = reinterpret_cast<uintptr_t>(destination) % 64 == 0;
  return V::kStreams && run.whole && source != destination && aligned;
}

// The vectors of one fp32 row that belong to one chain, over the run.
template <class V, int kVectors, int kChain>
TESSERA_INLINE void ScanChain(ScanRun<kVectors>& run, uint32_t i, const float* source,
                              float* destination, float (&chains)[kScanRun][4][16]) {
  constexpr int kCount = kVectors / 4;
  const auto at = [](int j) TESSERA_INLINE_LAMBDA { return (j * 4 + kChain) * 16; };
  typename V::F s[kCount];
  Unroll<kCount>([&](auto j) TESSERA_INLINE_LAMBDA {
    s[j] = source == nullptr ? V::Zero() : V::Load(source + at(j));
  });
  for (uint32_t t = 0; t < run.count; ++t) {
    const typename V::F da = V::Set1(run.decay[t]);
    const typename V::F dx = V::Set1(run.dx[t][i]);
    typename V::F chain = V::Zero();
    Unroll<kCount>([&](auto j) TESSERA_INLINE_LAMBDA {
      s[j] = V::Fma(s[j], da, V::Mul(dx, V::Load(run.b[t] + at(j))));
      chain = V::Fma(s[j], V::Load(run.c[t] + at(j)), chain);
    });
    V::Store(chains[t][kChain], chain);
  }
  if (PastCaches<V>(run, source, destination)) {
    Unroll<kCount>([&](auto j) TESSERA_INLINE_LAMBDA { V::Stream(destination + at(j), s[j]); });
  } else {
    Unroll<kCount>([&](auto j) TESSERA_INLINE_LAMBDA { V::Store(destination + at(j), s[j]); });
  }
}

template <class V, int kVectors>
TESSERA_INLINE void ScanRowByChains(ScanRun<kVectors>& run, uint32_t i, const float* source,
                                    float* destination) {
  alignas(64) float chains[kScanRun][4][16];
  Unroll<4>([&](auto c) TESSERA_INLINE_LAMBDA {
    ScanChain<V, kVectors, c>(run, i, source, destination, chains);
  });
  for (uint32_t t = 0; t < run.count; ++t) {
    typename V::F chain[4];
    Unroll<4>([&](auto c) TESSERA_INLINE_LAMBDA { chain[c] = V::Load(chains[t][c]); });
    V::Store(run.sums[t][i], SumChains<V>(chain));
  }
}

// Two lines of a bf16 row, a vector of each chain, over the run.
template <class V, class Rows, int kVectors, int kFirst>
TESSERA_INLINE void ScanSection(ScanRun<kVectors>& run, uint32_t i,
                                const typename Rows::Element* source,
                                typename Rows::Element* destination,
                                float (&chains)[kScanRun][4][16]) {
  typename V::F s[4];
  if (source != nullptr) {
    Rows::Load(source + kFirst * 16, s);
  } else {
    Unroll<4>([&](auto v) TESSERA_INLINE_LAMBDA { s[v] = V::Zero(); });
  }
  for (uint32_t t = 0; t < run.count; ++t) {
    if (t > 0) Rows::Keep(s);  // as the token before left it; after the last, Store rounds
    const typename V::F da = V::Set1(run.decay[t]);
    const typename V::F dx = V::Set1(run.dx[t][i]);
    Unroll<4>([&](auto v) TESSERA_INLINE_LAMBDA {
      constexpr int kAt = (kFirst + decltype(v)::value) * 16;
      s[v] = V::Fma(s[v], da, V::Mul(dx, V::Load(run.b[t] + kAt)));
      const typename V::F chain = kFirst == 0 ? V::Zero() : V::Load(chains[t][v]);
      V::Store(chains[t][v], V::Fma(s[v], V::Load(run.c[t] + kAt), chain));
    });
  }
  if (PastCaches<V>(run, source, destination)) {
    Rows::Stream(destination + kFirst * 16, s);
  } else {
    Rows::Store(destination + kFirst * 16, s);
  }
}

template <class V, class Rows, int kVectors>
TESSERA_INLINE void ScanRowBySections(ScanRun<kVectors>& run, uint32_t i,
                                      const typename Rows::Element* source,
                                      typename Rows::Element* destination) {
  alignas(64) float chains[kScanRun][4][16];
  Unroll<kVectors / 4>([&](auto section) TESSERA_INLINE_LAMBDA {
    ScanSection<V, Rows, kVectors, section * 4>(run, i, source, destination, chains);
  });
  for (uint32_t t = 0; t < run.count; ++t) {
    typename V::F chain[4];
    Unroll<4>([&](auto c) TESSERA_INLINE_LAMBDA { chain[c] = V::Load(chains[t][c]); });
    V::Store(run.sums[t][i], SumChains<V>(chain));
  }
}

template <class V, class Rows, int kVectors>
TESSERA_INLINE void ScanRowInRegisters(ScanRun<kVectors>& run, uint32_t i,
                                       const typename Rows::Element* source,
                                       typename Rows::Element* destination) {
  typename V::F s[kVectors];
  if (source != nullptr) {
    Rows::Load(source, s);
  } else {
    Unroll<kVectors>([&](auto v) TESSERA_INLINE_LAMBDA { s[v] = V::Zero(); });
  }
  for (uint32_t t = 0; t < run.count; ++t) {
    if (t > 0) Rows::Keep(s);  // as the token before left it; after the last, Store rounds
    const typename V::F da = V::Set1(run.decay[t]);
    const typename V::F dx = V::Set1(run.dx[t][i]);
    typename V::F chain[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
    Unroll<kVectors>([&](auto v) TESSERA_INLINE_LAMBDA {
      s[v] = V::Fma(s[v], da, V::Mul(dx, V::Load(run.b[t] + v * 16)));
      chain[v % 4] = V::Fma(s[v], V::Load(run.c[t] + v * 16), chain[v % 4]);
    });
    V::Store(run.sums[t][i], SumChains<V>(chain));
  }
  if (PastCaches<V>(run, source, destination)) {
    Rows::Stream(destination, s);
  } else {
    Rows::Store(destination, s);
  }
}

// One state row over the run.
template <class V, class Rows, int kVectors>
TESSERA_INLINE void ScanRow(ScanRun<kVectors>& run, uint32_t i,
                            const typename Rows::Element* source,
                            typename Rows::Element* destination) {
  if constexpr (!V::kScanByChains || kVectors < 4) {
    ScanRowInRegisters<V, Rows>(run, i, source, destination);
  } else if constexpr (Rows::kLineElements == 16) {
    ScanRowByChains<V>(run, i, source, destination);
  } else {
    ScanRowBySections<V, Rows>(run, i, source, destination);
  }
}

// N = 16·kVectors; tokens [t0, t0 + count) of one head.
template <class V, class Rows, int kVectors>
void ScanHeadRun(const ScanArgs& args, ScanState<Rows>& state, uint32_t head, uint32_t t0,
                 uint32_t count) {
  ScanRun<kVectors> run;
  run.count = count;
  run.whole = count == args.rows;
  const size_t group = size_t{head / args.heads_per_group} * args.state;
  for (uint32_t t = 0; t < count; ++t) {
    const size_t at = (t0 + t) * args.stride + group;
    Unroll<kVectors>([&](auto v) TESSERA_INLINE_LAMBDA {
      V::Store(run.b[t] + v * 16, V::Load(args.b + at + v * 16));
      V::Store(run.c[t] + v * 16, V::Load(args.c + at + v * 16));
    });
    run.decay[t] = args.decay[(t0 + t) * args.heads_stride + head];
  }
  const typename V::F d = V::Set1(args.d[head]);
  for (uint32_t p = 0; p < args.head_dim; p += kScanRows) {
    const uint32_t rows = args.head_dim - p < kScanRows ? args.head_dim - p : kScanRows;
    const size_t first = size_t{head} * args.head_dim + p;
    for (uint32_t t = 0; t < count; ++t) {
      const typename V::F delta = V::Set1(args.delta[(t0 + t) * args.heads_stride + head]);
      V::Store(run.dx[t], V::Mul(delta, V::LoadN(args.x + (t0 + t) * args.stride + first, rows)));
      for (uint32_t i = rows; i < kScanRows; ++i) V::Store(run.sums[t][i], V::Zero());
    }
    for (uint32_t i = 0; i < rows; ++i) {
      auto* destination = state.Destination(first + i);
      ScanRow<V, Rows, kVectors>(run, i, t0 == 0 ? state.Source(first + i) : destination,
                                 destination);
    }
    for (uint32_t t = 0; t < count; ++t) {
      const typename V::F x = V::LoadN(args.x + (t0 + t) * args.stride + first, rows);
      const typename V::F y = V::Fma(d, x, V::ReduceAddRows(run.sums[t]));
      V::StoreN(args.y + (t0 + t) * args.y_stride + first, y, rows);
    }
  }
}

// Any N, one row of one head over all tokens: the row lives in the destination. Lanes beyond N are
// zero whatever x is (∞·0 is not).
template <class V, class Rows>
void ScanRowInMemory(const ScanArgs& args, uint32_t head, size_t row,
                     const typename Rows::Element* source, typename Rows::Element* destination) {
  const size_t group = size_t{head / args.heads_per_group} * args.state;
  const auto lanes_at = [&](uint32_t n) TESSERA_INLINE_LAMBDA {
    return args.state - n < 16 ? args.state - n : 16u;
  };
  uint32_t n = 0;
  for (; n < args.state; n += 16) {
    Rows::StoreVector(destination + n,
                      source == nullptr ? V::Zero() : Rows::LoadN(source + n, lanes_at(n)));
  }
  for (; n % Rows::kLineElements != 0; n += 16) Rows::StoreVector(destination + n, V::Zero());
  for (uint32_t t = 0; t < args.rows; ++t) {
    const float x = args.x[t * args.stride + row];
    const typename V::F da = V::Set1(args.decay[t * args.heads_stride + head]);
    const typename V::F dx = V::Set1(args.delta[t * args.heads_stride + head] * x);
    typename V::F chain[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
    for (n = 0; n < args.state; n += 16) {
      const typename V::F b = V::LoadN(args.b + t * args.stride + group + n, lanes_at(n));
      const typename V::F c = V::LoadN(args.c + t * args.stride + group + n, lanes_at(n));
      typename V::F s = V::Fma(Rows::LoadN(destination + n, 16), da, V::Mul(dx, b));
      s = V::Select(V::FirstN(lanes_at(n)), s, V::Zero());
      Rows::StoreVector(destination + n, s);
      chain[n / 16 % 4] = V::Fma(s, c, chain[n / 16 % 4]);
    }
    args.y[t * args.y_stride + row] =
        __builtin_fmaf(args.d[head], x, V::ReduceAdd(SumChains<V>(chain)));
  }
}

template <class V, class Rows, int kVectors>
void ScanHeadsInRegisters(const ScanArgs& args) {
  ScanState<Rows> state(args);
  for (uint32_t head = args.head_begin; head < args.head_end; ++head) {
    uint32_t t0 = 0;
    do {  // once even without tokens: the state still moves from source to destination
      const uint32_t count = args.rows - t0 < kScanRun ? args.rows - t0 : kScanRun;
      ScanHeadRun<V, Rows, kVectors>(args, state, head, t0, count);
      t0 += count;
    } while (t0 < args.rows);
  }
  V::StreamFence();
}

template <class V, class Rows>
void ScanHeadsInMemory(const ScanArgs& args) {
  ScanState<Rows> state(args);
  for (uint32_t head = args.head_begin; head < args.head_end; ++head) {
    for (size_t row = size_t{head} * args.head_dim; row < size_t{head + 1} * args.head_dim; ++row) {
      ScanRowInMemory<V, Rows>(args, head, row, state.Source(row), state.Destination(row));
    }
  }
}

template <class V, class Rows>
void ScanRows(const ScanArgs& args) {
  switch (args.state) {
    case 16:
      if constexpr (Rows::kLineElements > 16) {
        return ScanHeadsInMemory<V, Rows>(args);
      } else {
        return ScanHeadsInRegisters<V, Rows, 1>(args);
      }
    case 32:
      return ScanHeadsInRegisters<V, Rows, 2>(args);
    case 64:
      return ScanHeadsInRegisters<V, Rows, 4>(args);
    case 128:
      return ScanHeadsInRegisters<V, Rows, 8>(args);
    case 256:
      return ScanHeadsInRegisters<V, Rows, 16>(args);
    default:
      return ScanHeadsInMemory<V, Rows>(args);
  }
}

template <class V>
void Scan(const ScanArgs& args) {
  if (args.state_type == StateType::kBF16) return ScanRows<V, Bf16Rows<V>>(args);
  ScanRows<V, Fp32Rows<V>>(args);
}

}  // namespace tessera::kernels
