// SPDX-License-Identifier: Apache-2.0
//
// Products of bf16 that are free to add up in any order, to know what it costs that the kernel of
// the table is not. Each is a way in which fast libraries do it:
//
//   two-chains    the kernel's own outer product with two accumulators per element, even and odd
//                 pairs of k, added at the end: twice the chains for few rows
//   partials-128k, partials-16k
//                 k in blocks of so many bytes per 64 columns, each summed from zero and then added
//                 to the output: the block of weights stays in L2 or L1 for all rows
//   dot           lanes along k, weights row by row as in the file, 32 lanes added up at the end of
//                 each element: the form of matrix-vector products
//
// They fetch ahead as the kernel does: a single stream is left to the hardware. A test holds them
// to the true product.
//
// Threads: pure functions; calls that write different columns may run at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

struct GemmVariantArgs {
  // The same matrix of n outputs, in the form a variant reads: all but `dot` the kernels' own.
  const std::byte* panels = nullptr;  // [n/64][k/2][64][2] bf16
  const std::byte* rows = nullptr;    // [n][k] bf16
  uint32_t n = 0;                     // a multiple of 128
  uint32_t k = 0;                     // a multiple of 32
  const uint16_t* input = nullptr;    // [count][input_stride]
  size_t input_stride = 0;
  uint32_t count = 0;
  float* output = nullptr;  // [count][n]
};

struct GemmVariant {
  const char* name = "";
  void (*run)(const GemmVariantArgs& args) = nullptr;
};

// Only for CPUs whose AVX-512 kernels work.
std::span<const GemmVariant> Avx512GemmVariants();

}  // namespace tessera
