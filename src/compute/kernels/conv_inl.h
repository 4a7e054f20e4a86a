// SPDX-License-Identifier: Apache-2.0
//
// Causal depthwise convolution, 16 channels (32 bytes of a state row) at a time.
//
// For up to 4 taps the past inputs stay in registers over a run of 16 tokens; the next run rounds
// the last few inputs again instead of carrying them: the same values, and the channels of 16
// tokens are 32 sequential streams, where all tokens of 16 channels would be a page walk per 64
// bytes. More taps read their past inputs where they lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/kernel_table.h"
#include "compute/kernels/math_inl.h"
#include "compute/kernels/state_cursor.h"
#include "compute/kernels/vec.h"

namespace tessera::kernels {

inline constexpr uint32_t kConvRun = 16;

// 16 channels of the arguments, or as many as there are.
template <class V>
struct ConvChunk {
  const ConvArgs& args;
  uint32_t channel;
  uint32_t lanes;

  TESSERA_INLINE uint64_t StateAt(uint32_t tap) const {
    return args.start + tap * args.row_bytes + uint64_t{channel} * 2;
  }
  // Padding channels of a source row are zero already, but are not trusted to be: what they are
  // written as must not depend on it.
  TESSERA_INLINE typename V::F Past(const std::byte* at) const {
    return V::LoadBf16N(reinterpret_cast<const uint16_t*>(at), lanes);
  }
  TESSERA_INLINE void Keep(std::byte* at, typename V::F u) const {
    V::StoreBf16(reinterpret_cast<uint16_t*>(at), u);
  }
  // Of token t, rounded to bf16.
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
};

template <class Body>
TESSERA_INLINE void ForChunks(const ConvArgs& args, Body body) {
  for (uint32_t c = args.channel_begin; c < args.channel_end; c += 16) {
    body(c, args.channel_end - c < 16 ? args.channel_end - c : 16u);
  }
}

// Tokens [t0, t1). Within a run the state is read (first run) before it is written (last run), so
// one table may serve as both.
template <class V, int kTaps>
TESSERA_INLINE void ConvRun(const ConvArgs& args, uint32_t t0, uint32_t t1) {
  StateCursor past[kTaps];
  StateCursor keep[kTaps];
  for (int j = 0; j < kTaps; ++j) past[j] = StateCursor(args.source);
  for (int j = 0; j < kTaps; ++j) keep[j] = StateCursor(args.destination);
  ForChunks(args, [&](uint32_t channel, uint32_t lanes) TESSERA_INLINE_LAMBDA {
    const ConvChunk<V> chunk{args, channel, lanes};
    typename V::F u[kTaps + 1];
    typename V::F w[kTaps + 1];
    Unroll<kTaps>([&](auto j) TESSERA_INLINE_LAMBDA {
      if (t0 > 0) {
        u[j] = chunk.Input(t0 - kTaps + j);
      } else {
        u[j] = past[j].is_zero() ? V::Zero() : chunk.Past(past[j].At(chunk.StateAt(j)));
      }
    });
    Unroll<kTaps + 1>([&](auto j) TESSERA_INLINE_LAMBDA { w[j] = chunk.Weight(j); });
    const typename V::F bias = chunk.Bias();
    for (uint32_t t = t0; t < t1; ++t) {
      u[kTaps] = chunk.Input(t);
      typename V::F y = bias;
      Unroll<kTaps + 1>([&](auto j) TESSERA_INLINE_LAMBDA { y = V::Fma(w[j], u[j], y); });
      chunk.Output(t, y);
      Unroll<kTaps>([&](auto j) TESSERA_INLINE_LAMBDA { u[j] = u[j + 1]; });
    }
    if (t1 == args.rows) {
      Unroll<kTaps>([&](auto j)
                        TESSERA_INLINE_LAMBDA { chunk.Keep(keep[j].At(chunk.StateAt(j)), u[j]); });
    }
  });
}

template <class V, int kTaps>
void ConvInRegisters(const ConvArgs& args) {
  static_assert(kTaps <= kConvRun);
  uint32_t t0 = 0;
  do {  // once even without tokens: the state still moves from source to destination
    const uint32_t t1 = args.rows - t0 < kConvRun ? args.rows : t0 + kConvRun;
    ConvRun<V, kTaps>(args, t0, t1);
    t0 = t1;
  } while (t0 < args.rows);
}

template <class V>
void ConvAnyTaps(const ConvArgs& args) {
  ForChunks(args, [&](uint32_t channel, uint32_t lanes) TESSERA_INLINE_LAMBDA {
    const ConvChunk<V> chunk{args, channel, lanes};
    // Element i of the past inputs followed by this call's.
    const auto at = [&](uint32_t i) TESSERA_INLINE_LAMBDA {
      if (i >= args.taps) return chunk.Input(i - args.taps);
      return args.source.is_zero() ? V::Zero() : chunk.Past(args.source.At(chunk.StateAt(i)));
    };
    for (uint32_t t = 0; t < args.rows; ++t) {
      typename V::F y = chunk.Bias();
      for (uint32_t j = 0; j <= args.taps; ++j) y = V::Fma(chunk.Weight(j), at(t + j), y);
      chunk.Output(t, y);
    }
    // Ascending, so that in place each past input is read before its row is overwritten.
    for (uint32_t j = 0; j < args.taps; ++j) {
      chunk.Keep(args.destination.At(chunk.StateAt(j)), at(args.rows + j));
    }
  });
}

template <class V>
void Conv(const ConvArgs& args) {
  switch (args.taps) {
    case 1:
      return ConvInRegisters<V, 1>(args);
    case 2:
      return ConvInRegisters<V, 2>(args);
    case 3:
      return ConvInRegisters<V, 3>(args);
    case 4:
      return ConvInRegisters<V, 4>(args);
    default:
      return ConvAnyTaps<V>(args);
  }
}

}  // namespace tessera::kernels
