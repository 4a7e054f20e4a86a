// SPDX-License-Identifier: Apache-2.0
//
// The loops of CeilingLoops over a class L of one instruction set:
//
//   Reg Float              a register of bytes, of floats
//   kBytes                 its size
//   Load Store StoreNt     StoreNt wants a multiple of kBytes
//   Fence                  after StoreNt
//   LoadFloats StoreFloats Mul
//   Mix(Reg, Reg)          any cheap integer operation
//   Keep(x)                the compiler must compute x
//   Hide(x)                the compiler no longer knows what x is
//   Fma Bf16 Int8(acc, a, b)   with kBf16 and kInt8: multiplications of one such instruction, 0
//                          when there is none
//
// As with the kernel templates, nothing of the standard library is called here: an inline function
// instantiated with these flags could replace the copy that older CPUs run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bench/ceiling_loops.h"
#include "compute/kernels/vec.h"

namespace tessera::bench {

using kernels::Unroll;

// 16 ones, then 16 small numbers; from another file, so that no compiler can know them.
extern const float kOnes[32];

inline constexpr size_t kLine = 64;
inline constexpr size_t kTouchStride = 4096;
inline constexpr size_t kTouchAhead = 32 * 1024;
inline constexpr size_t kNextAhead = 4096;
inline constexpr size_t kStreamAhead = 16 * 1024;

// What is fetched while the 256 bytes at p are worked on.
template <bool kNext, bool kTouch>
TESSERA_INLINE void Fetch(const std::byte* p, size_t at) {
  if constexpr (kNext) {
    Unroll<4>([&](auto i)
                  TESSERA_INLINE_LAMBDA { __builtin_prefetch(p + kNextAhead + i * kLine, 0, 2); });
  }
  if constexpr (kTouch) {
    if (at % kTouchStride == 0) __builtin_prefetch(p + kTouchAhead, 0, 2);
  }
}

template <class L, bool kNext, bool kTouch>
void ReadInOrder(const std::byte* data, size_t bytes) {
  constexpr int kRegs = static_cast<int>(256 / L::kBytes);
  typename L::Reg mix[kRegs];
  Unroll<kRegs>([&](auto i) TESSERA_INLINE_LAMBDA { mix[i] = L::Load(data); });
  for (size_t at = 0; at < bytes; at += 256) {
    const std::byte* p = data + at;
    Fetch<kNext, kTouch>(p, at);
    Unroll<kRegs>(
        [&](auto i) TESSERA_INLINE_LAMBDA { mix[i] = L::Mix(mix[i], L::Load(p + i * L::kBytes)); });
  }
  Unroll<kRegs>([&](auto i) TESSERA_INLINE_LAMBDA { L::Keep(mix[i]); });
}

template <class L>
void ReadStreams(const std::byte* data, size_t bytes) {
  constexpr int kStreams = 4;
  constexpr int kRegs = static_cast<int>(kLine / L::kBytes);
  const size_t part = bytes / kStreams;
  typename L::Reg mix[kStreams];
  Unroll<kStreams>([&](auto s) TESSERA_INLINE_LAMBDA { mix[s] = L::Load(data); });
  for (size_t at = 0; at < part; at += kLine) {
    Unroll<kStreams>([&](auto s) TESSERA_INLINE_LAMBDA {
      const std::byte* p = data + s * part + at;
      __builtin_prefetch(p + kStreamAhead, 0, 2);
      Unroll<kRegs>([&](auto i) TESSERA_INLINE_LAMBDA {
        mix[s] = L::Mix(mix[s], L::Load(p + i * L::kBytes));
      });
    });
  }
  Unroll<kStreams>([&](auto s) TESSERA_INLINE_LAMBDA { L::Keep(mix[s]); });
}

template <class L, bool kNext, bool kTouch>
void Update(std::byte* data, size_t bytes) {
  constexpr int kRegs = static_cast<int>(256 / L::kBytes);
  const typename L::Float factor = L::LoadFloats(kOnes);
  for (size_t at = 0; at < bytes; at += 256) {
    std::byte* p = data + at;
    Fetch<kNext, kTouch>(p, at);
    Unroll<kRegs>([&](auto i) TESSERA_INLINE_LAMBDA {
      auto* x = reinterpret_cast<float*>(p + i * L::kBytes);
      L::StoreFloats(x, L::Mul(L::LoadFloats(x), factor));
    });
  }
}

template <class L, bool kPastCache, bool kTouch>
void Copy(const std::byte* from, std::byte* to, size_t bytes) {
  constexpr int kRegs = static_cast<int>(256 / L::kBytes);
  for (size_t at = 0; at < bytes; at += 256) {
    if (kTouch && at % kTouchStride == 0) {
      __builtin_prefetch(from + at + kTouchAhead, 0, 2);
      __builtin_prefetch(to + at + kTouchAhead, 1, 2);
    }
    Unroll<kRegs>([&](auto i) TESSERA_INLINE_LAMBDA {
      const typename L::Reg x = L::Load(from + at + i * L::kBytes);
      if constexpr (kPastCache) {
        L::StoreNt(to + at + i * L::kBytes, x);
      } else {
        L::Store(to + at + i * L::kBytes, x);
      }
    });
  }
  if constexpr (kPastCache) L::Fence();
}

// The longest latency is 6 cycles, and two instructions may issue in each.
inline constexpr int kChains = 12;

template <class L, class Acc, class Op>
TESSERA_INLINE void RunChains(uint64_t rounds, Acc start, Op op) {
  Acc acc[kChains];
  // Chains that begin alike would be one to the compiler.
  Unroll<kChains>([&](auto i) TESSERA_INLINE_LAMBDA {
    acc[i] = start;
    L::Hide(acc[i]);
  });
  for (uint64_t r = 0; r < rounds; ++r) {
    Unroll<kChains>([&](auto i) TESSERA_INLINE_LAMBDA { acc[i] = op(acc[i]); });
  }
  Unroll<kChains>([&](auto i) TESSERA_INLINE_LAMBDA { L::Keep(acc[i]); });
}

template <class L>
void FmaChains(uint64_t rounds) {
  const typename L::Float a = L::LoadFloats(kOnes);
  const typename L::Float b = L::LoadFloats(kOnes + 16);
  RunChains<L>(rounds, b,
               [&](typename L::Float acc) TESSERA_INLINE_LAMBDA { return L::Fma(acc, a, b); });
}
template <class L>
void Bf16Chains(uint64_t rounds) {
  const typename L::Reg a = L::Load(reinterpret_cast<const std::byte*>(kOnes + 16));
  RunChains<L>(rounds, L::LoadFloats(kOnes),
               [&](typename L::Float acc) TESSERA_INLINE_LAMBDA { return L::Bf16(acc, a, a); });
}
template <class L>
void Int8Chains(uint64_t rounds) {
  const typename L::Reg a = L::Load(reinterpret_cast<const std::byte*>(kOnes + 16));
  RunChains<L>(rounds, a,
               [&](typename L::Reg acc) TESSERA_INLINE_LAMBDA { return L::Int8(acc, a, a); });
}

// The table of an instruction set. `kBf16` and `kInt8` are the multiplications of one instruction.
template <class L>
struct Loops {
  static constexpr ReadLoop kReads[] = {
      {"plain", ReadInOrder<L, false, false>},
      {"next-4k", ReadInOrder<L, true, false>},
      {"touch", ReadInOrder<L, false, true>},
      {"touch-next", ReadInOrder<L, true, true>},
      {"streams", ReadStreams<L>},
  };
  static constexpr UpdateLoop kUpdates[] = {
      {"plain", Update<L, false, false>},
      {"next-4k", Update<L, true, false>},
      {"touch-next", Update<L, true, true>},
  };
  static constexpr CopyLoop kCopies[] = {
      {"plain", Copy<L, false, false>},
      {"touch", Copy<L, false, true>},
      {"past-cache", Copy<L, true, false>},
  };
  static constexpr CeilingLoops kTable = {
      L::kIsa,
      kReads,
      kUpdates,
      kCopies,
      {FmaChains<L>, kChains * 2.0 * static_cast<double>(L::kBytes / sizeof(float))},
      {L::kBf16 > 0 ? Bf16Chains<L> : nullptr, kChains * 2.0 * L::kBf16},
      {L::kInt8 > 0 ? Int8Chains<L> : nullptr, kChains * 2.0 * L::kInt8},
  };
};

}  // namespace tessera::bench
