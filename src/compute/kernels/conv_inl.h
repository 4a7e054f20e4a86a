// SPDX-License-Identifier: Apache-2.0
//
// Causal depthwise convolution, 16 channels (32 bytes of a state row) at a time over all tokens.
//
// For up to kTapsInRegisters taps the past inputs of a chunk stay in registers; for more they are
// read again from the source or rounded again from the input: the same values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/kernel_table.h"
#include "compute/kernels/math_inl.h"
#include "compute/kernels/vec.h"

namespace tessera::kernels {

inline constexpr uint32_t kTapsInRegisters = 4;

// One 16-channel chunk: input and state addresses, the channels that exist.
template <class V>
struct ConvChunk {
  const ConvArgs& args;
  uint32_t channel;
  uint32_t lanes;

  TESSERA_INLINE std::byte* Row(const PagedBytes& state, uint32_t tap) const {
    return state.At(args.start + tap * args.row_bytes + uint64_t{channel} * 2);
  }
  // The past input `tap` rows after the oldest. Padding channels of a source row are zero already,
  // but are not trusted to be: what they are written as must not depend on it.
  TESSERA_INLINE typename V::F Past(uint32_t tap) const {
    if (args.source.is_zero()) return V::Zero();
    return V::LoadBf16N(reinterpret_cast<const uint16_t*>(Row(args.source, tap)), lanes);
  }
  // Input of token t, rounded to bf16.
  TESSERA_INLINE typename V::F Input(uint32_t t) const {
    uint16_t rounded[16];
    V::StoreBf16(rounded, V::LoadN(args.input + t * args.input_stride + channel, lanes));
    return V::LoadBf16(rounded);
  }
  TESSERA_INLINE typename V::F Weight(uint32_t tap) const {
    return V::LoadN(args.weights + tap * args.weight_stride + channel, lanes);
  }
  TESSERA_INLINE typename V::F Bias() const { return V::LoadN(args.bias + channel, lanes); }
  TESSERA_INLINE void Output(uint32_t t, typename V::F y) const {
    V::StoreN(args.output + t * args.output_stride + channel, Silu<V>(y), lanes);
  }
  TESSERA_INLINE void Keep(uint32_t tap, typename V::F u) const {
    V::StoreBf16(reinterpret_cast<uint16_t*>(Row(args.destination, tap)), u);
  }
};

template <class V, int kTaps>
TESSERA_INLINE void ConvInRegisters(const ConvChunk<V>& chunk) {
  typename V::F u[kTaps + 1];
  typename V::F w[kTaps + 1];
  Unroll<kTaps>([&](auto j) { u[j] = chunk.Past(j); });
  Unroll<kTaps + 1>([&](auto j) { w[j] = chunk.Weight(j); });
  const typename V::F bias = chunk.Bias();
  for (uint32_t t = 0; t < chunk.args.rows; ++t) {
    u[kTaps] = chunk.Input(t);
    typename V::F y = bias;
    Unroll<kTaps + 1>([&](auto j) { y = V::Fma(w[j], u[j], y); });
    chunk.Output(t, y);
    Unroll<kTaps>([&](auto j) { u[j] = u[j + 1]; });
  }
  Unroll<kTaps>([&](auto j) { chunk.Keep(j, u[j]); });
}

template <class V>
void ConvAnyTaps(const ConvChunk<V>& chunk) {
  const uint32_t taps = chunk.args.taps;
  const uint32_t rows = chunk.args.rows;
  // Position i of the sequence of past inputs followed by this call's.
  const auto at = [&](uint32_t i) { return i < taps ? chunk.Past(i) : chunk.Input(i - taps); };
  for (uint32_t t = 0; t < rows; ++t) {
    typename V::F y = chunk.Bias();
    for (uint32_t j = 0; j <= taps; ++j) y = V::Fma(chunk.Weight(j), at(t + j), y);
    chunk.Output(t, y);
  }
  // Ascending, so that in place each past input is read before its row is overwritten.
  for (uint32_t j = 0; j < taps; ++j) chunk.Keep(j, at(rows + j));
}

template <class V>
void Conv(const ConvArgs& args) {
  for (uint32_t c = args.channel_begin; c < args.channel_end; c += 16) {
    const uint32_t lanes = args.channel_end - c < 16 ? args.channel_end - c : 16;
    const ConvChunk<V> chunk{args, c, lanes};
    switch (args.taps) {
      case 1:
        ConvInRegisters<V, 1>(chunk);
        break;
      case 2:
        ConvInRegisters<V, 2>(chunk);
        break;
      case 3:
        ConvInRegisters<V, 3>(chunk);
        break;
      case 4:
        ConvInRegisters<V, 4>(chunk);
        break;
      default:
        ConvAnyTaps<V>(chunk);
    }
  }
}

}  // namespace tessera::kernels
