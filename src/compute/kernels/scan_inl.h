// SPDX-License-Identifier: Apache-2.0
//
// The Mamba-2 recurrence, sequential for prompts and generated tokens alike.
//
// Per head, tokens in runs of 16; per run, one state row (a head's p: N fp32) after another, each
// held in registers over the run. More than 16 tokens of B and C (2·16·256·4 = 32 KiB) would leave
// L1; a head's state (128·256·4 = 128 KiB) stays in L2 from run to run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/kernel_table.h"
#include "compute/kernels/vec.h"

namespace tessera::kernels {

inline constexpr uint32_t kScanRun = 16;

// Tokens [t0, t0 + count) of one state row.
struct ScanRow {
  const float* source = nullptr;  // null: zeros
  float* destination = nullptr;
  const float* x = nullptr;  // of this row at t0
  const float* b = nullptr;  // of this group at t0
  const float* c = nullptr;
  const float* delta = nullptr;  // of this head at t0
  const float* decay = nullptr;
  float d = 0;
  float* y = nullptr;
  uint32_t count = 0;
};

template <class V>
TESSERA_INLINE float SumChains(const typename V::F (&chain)[4]) {
  return V::ReduceAdd(V::Add(V::Add(chain[0], chain[1]), V::Add(chain[2], chain[3])));
}

// N = 16·kVectors.
template <class V, int kVectors>
void ScanRowInRegisters(const ScanArgs& args, const ScanRow& row) {
  typename V::F s[kVectors];
  Unroll<kVectors>(
      [&](auto i) { s[i] = row.source == nullptr ? V::Zero() : V::Load(row.source + i * 16); });
  const float* b = row.b;
  const float* c = row.c;
  for (uint32_t t = 0; t < row.count; ++t) {
    const float x = row.x[t * args.stride];
    const typename V::F da = V::Set1(row.decay[t * args.heads_stride]);
    const typename V::F dx = V::Set1(row.delta[t * args.heads_stride] * x);
    typename V::F chain[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
    Unroll<kVectors>([&](auto i) {
      s[i] = V::Fma(s[i], da, V::Mul(dx, V::Load(b + i * 16)));
      chain[i % 4] = V::Fma(s[i], V::Load(c + i * 16), chain[i % 4]);
    });
    row.y[t * args.y_stride] = __builtin_fmaf(row.d, x, SumChains<V>(chain));
    b += args.stride;
    c += args.stride;
  }
  Unroll<kVectors>([&](auto i) { V::Store(row.destination + i * 16, s[i]); });
}

// Any N: the row lives in the destination. Lanes beyond N are zero whatever x is (∞·0 is not).
template <class V>
void ScanRowInMemory(const ScanArgs& args, const ScanRow& row) {
  for (uint32_t n = 0; n < args.state; n += 16) {
    const uint32_t lanes = args.state - n < 16 ? args.state - n : 16;
    V::Store(row.destination + n,
             row.source == nullptr ? V::Zero() : V::LoadN(row.source + n, lanes));
  }
  for (uint32_t t = 0; t < row.count; ++t) {
    const float x = row.x[t * args.stride];
    const typename V::F da = V::Set1(row.decay[t * args.heads_stride]);
    const typename V::F dx = V::Set1(row.delta[t * args.heads_stride] * x);
    typename V::F chain[4] = {V::Zero(), V::Zero(), V::Zero(), V::Zero()};
    for (uint32_t n = 0; n < args.state; n += 16) {
      const uint32_t lanes = args.state - n < 16 ? args.state - n : 16;
      const typename V::F b = V::LoadN(row.b + t * args.stride + n, lanes);
      const typename V::F c = V::LoadN(row.c + t * args.stride + n, lanes);
      typename V::F s = V::Fma(V::Load(row.destination + n), da, V::Mul(dx, b));
      s = V::Select(V::FirstN(lanes), s, V::Zero());
      V::Store(row.destination + n, s);
      const uint32_t i = n / 16 % 4;
      chain[i] = V::Fma(s, c, chain[i]);
    }
    row.y[t * args.y_stride] = __builtin_fmaf(row.d, x, SumChains<V>(chain));
  }
}

template <class V>
TESSERA_INLINE void ScanOneRow(const ScanArgs& args, const ScanRow& row) {
  switch (args.state) {
    case 16:
      return ScanRowInRegisters<V, 1>(args, row);
    case 32:
      return ScanRowInRegisters<V, 2>(args, row);
    case 64:
      return ScanRowInRegisters<V, 4>(args, row);
    case 128:
      return ScanRowInRegisters<V, 8>(args, row);
    case 256:
      return ScanRowInRegisters<V, 16>(args, row);
    default:
      return ScanRowInMemory<V>(args, row);
  }
}

// Where row r of the layer lies; null for the zero state.
TESSERA_INLINE float* ScanStateRow(const ScanArgs& args, const PagedBytes& state, uint64_t r) {
  if (state.is_zero()) return nullptr;
  return reinterpret_cast<float*>(state.At(args.start + r * args.row_bytes));
}

template <class V>
TESSERA_INLINE void ScanHeadRun(const ScanArgs& args, uint32_t head, uint32_t t0, uint32_t count) {
  const size_t group = head / args.heads_per_group;
  const size_t first = size_t{head} * args.head_dim;
  ScanRow row;
  row.b = args.b + t0 * args.stride + group * args.state;
  row.c = args.c + t0 * args.stride + group * args.state;
  row.delta = args.delta + t0 * args.heads_stride + head;
  row.decay = args.decay + t0 * args.heads_stride + head;
  row.d = args.d[head];
  row.count = count;
  const PagedBytes& from = t0 == 0 ? args.source : args.destination;
  for (size_t p = first; p < first + args.head_dim; ++p) {
    row.source = ScanStateRow(args, from, p);
    row.destination = ScanStateRow(args, args.destination, p);
    row.x = args.x + t0 * args.stride + p;
    row.y = args.y + t0 * args.y_stride + p;
    ScanOneRow<V>(args, row);
  }
}

template <class V>
void Scan(const ScanArgs& args) {
  for (uint32_t head = args.head_begin; head < args.head_end; ++head) {
    uint32_t t0 = 0;
    do {
      const uint32_t count = args.rows - t0 < kScanRun ? args.rows - t0 : kScanRun;
      ScanHeadRun<V>(args, head, t0, count);
      t0 += count;
    } while (t0 < args.rows);
  }
}

}  // namespace tessera::kernels
