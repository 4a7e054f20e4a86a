// SPDX-License-Identifier: Apache-2.0
//
// What the kernel templates (*_inl.h) ask of an instruction set: a class Vec of static functions on
// 16 lanes of fp32. scalar::Vec (vec_scalar.h) is the plain definition; every other must give the
// same bits in every lane.
//
//   F            16 floats            I   16 int32          M   a mask of 16 lanes
//   P            16 pairs of bf16, the even element in the low half
//   B            64 bytes: 16 lanes of 4 consecutive k of one output
//
// Memory; addresses need no alignment, and an N form touches the first n lanes only (the others
// read as +0, or stay untouched):
//   Zero Set1 Load[N] Store[N]
//   LoadBf16[N] StoreBf16[N]   rounded by vcvtneps2bf16's rule
//   LoadBf16Pair StoreBf16Pair 32 elements, two vectors
//   Stream StreamBf16Pair      Store, past the caches; the address is a multiple of 64. Other
//                              threads see it after StreamFence. kStreams: it is not just Store
//   LoadHalf                   16 f16, exact
//   LoadEvenOddN StoreEvenOddN n interleaved pairs
//   StoreInt8                  saturated to [-128, 127]
// Arithmetic, IEEE with one rounding each:
//   Add Sub Mul Div Fma        Fma(a, b, c) = a·b + c
//   Max(a, b)                  a > b ? a : b, so b when either is NaN
//   Neg Abs                    sign bit only
//   RoundBf16Pair              what LoadBf16Pair reads after StoreBf16Pair
//   Less IsNan FirstN(n) Select(m, a, b)
//   ReduceAdd ReduceMax        the tree of K3: lane i with i + 8, then 4, 2, 1
//   ReduceAddRows              lane i = ReduceAdd of row i of 16
// Bits:
//   Bits FromBits AddI SubI ShiftLeft<k> ShiftRight<k> (arithmetic) ToFloat ToInt (nearest even)
// Products:
//   LoadPairs BroadcastPair BroadcastLast
//   DotBf16(acc, a, b)         Fma of the odd elements, then of the even ones
//   PartOf<i> DotPart          the same in kPairParts steps: for i ascending, acc =
//                              DotPart(acc, PartOf<i>(a), PartOf<i>(b))
// Bytes (gemm_int8_inl.h); integers, so exact:
//   LoadBytes BroadcastBytes   64 bytes; the same 4 in every lane
//   DotBytes(acc, w, a)        acc + Σ of a lane's 4 products, w unsigned and a signed
//   DotSmallBytes              the same where every w is at most 63
//   LowNibbles HighNibbles     x & 15, x >> 4 of each byte
//   TopBits<s>                 ((x >> s) & 3) << 4 of each byte, s = 0, 2, 4, 6
//   OrBytes
//   MulI (low 32 bits) Set1I LoadInt8Lanes LoadUint8Lanes (16 bytes widened)
//
// and the constants the templates block by; none shows in the bits:
//   kGemmRows kGemmPairRows    rows of a block of f32 and f16 weights; of bf16
//   kGemmPanels                panels beside each other, of a group of 4
//   kGemmPanelsOneRow          the same for one row, where kGemmPanels is not the whole group
//   kInt8Rows kInt8Panels      the same two of quantised weights
//   kInt8PanelsFewRows         panels for one or two rows
//   kUnrollDots                dot products of a block are unrolled; false: registers are too few
//   kPairParts                 into how many operations DotBf16 falls
//   kQueryBlock                (row, head) pairs whose scores are made together
//   kScoreGroups               16-token tiles scored at once; twice as many with few pairs
//   kValueVectors              vectors of the value sum at once
//   kScanByChains              a state row does not fit the registers: one chain after another
//   kStreams                   Stream differs from Store
//
// Templates never mention a width other than 16, and call no library function: an inline function
// of the standard library instantiated here with AVX-512 flags could replace, at link time, the
// copy that older CPUs run. Vec is a different type per instruction set, so the instantiations of
// these templates never meet.
#pragma once

#define TESSERA_INLINE inline __attribute__((always_inline))
// After a lambda's parameters. One call left in a loop would force every captured array of vectors
// into memory: a factor of 4 in the matrix product.
#define TESSERA_INLINE_LAMBDA __attribute__((always_inline))

namespace tessera::kernels {

// Calls f(Index<0>{}) … f(Index<N-1>{}): a loop that is unrolled in the source, so that arrays
// indexed by it live in registers at any optimisation level.
template <int I>
struct Index {
  static constexpr int value = I;
  constexpr operator int() const { return I; }
};
template <int N, int I = 0, class Body>
TESSERA_INLINE void Unroll(Body&& body) {
  if constexpr (I < N) {
    body(Index<I>{});
    Unroll<N, I + 1>(body);
  }
}

}  // namespace tessera::kernels
