// SPDX-License-Identifier: Apache-2.0
//
// KernelTable is every function whose arithmetic is part of the numerics contract, as plain
// function pointers in a value. The executor holds one; the tables of all instruction sets give the
// same bits for the same arguments (kernels_test compares them), so which one runs is a matter of
// speed only.
//
// Common to all
// K1  Each output element's expression tree depends on its own inputs only: never on how many rows,
//     panels, heads or tokens the call covers. Cutting a call into several gives the same bits, as
//     long as values (V of attention) are finite: a masked one is multiplied by +0.
// K2  fp32 with explicit fma, round to nearest even, denormals flushed (the caller holds a
//     ScopedFloatEnvironment). bf16 rounding is vcvtneps2bf16's: nearest even, denormals to zero,
//     NaN quieted. Which payload a NaN result has is not part of the contract; models make none.
// K3  Reductions over a row use 16 virtual lanes (element i → lane i mod 16, ascending; missing
//     elements are +0) and the tree t[i] += t[i+8], then 4, 2, 1.
// K4  No kernel allocates, blocks, or touches a byte outside what its arguments name.
//
// Threads: pure functions; calls that write disjoint outputs may run at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "compute/kernels/packed_matrix.h"
#include "memory/geometry/paged_bytes.h"
#include "memory/geometry/state_shape.h"

namespace tessera {

// Rows of activations in the form the weight type wants (PackedMatrix::input_form()).
struct GemmInput {
  const void* data = nullptr;  // float | uint16_t (bf16) | int8_t
  size_t row_stride_bytes = 0;
  // int8: a scale per block, and words of sums (to_int8, to_int8_k).
  const float* scales = nullptr;
  size_t scale_row_stride = 0;  // floats
  const int32_t* sums = nullptr;
  size_t sum_row_stride = 0;  // words
};

// Words of sums of a block of 256 activations.
inline constexpr uint32_t kKSumWords = 20;

// C[m, n] = Σ_k A[m, k]·W[n, k] for rows [0, rows) and panels [panel_begin, panel_end) of 16
// columns. One accumulator per element from +0, k ascending:
//   f32, f16   acc = fma(a_k, w_k, acc)
//   bf16       per pair: acc = fma(a_odd, w_odd, acc), then acc = fma(a_even, w_even, acc)
//   q8_0, q4_0 per 32-block: acc = fma(float(Σ a·w), d_w·d_a, acc); w of q4_0 is q - 8
//   q4_k       per 256-block: acc = fma(float(Σ_s sc_s·Σ a·q), d·d_a, acc), then
//              acc = fma(float(Σ_s mn_s·(-Σ a)), dmin·d_a, acc); s: 8 sub-blocks of 32.
//              An integer 0 becomes +0, of the minima too, though they are subtracted
//   q6_k       per 256-block: acc = fma(float(Σ_s sc_s·Σ a·(q - 32)), d·d_a, acc); s: 16 of 16
// Columns beyond W's n are not written. The range is of whole groups: panel_begin is a multiple of
// kGroupPanels, and so is panel_end unless it is panel_count().
struct GemmArgs {
  const PackedMatrix* weights = nullptr;
  uint32_t panel_begin = 0, panel_end = 0;
  GemmInput input;
  uint32_t rows = 0;
  float* output = nullptr;   // [rows][output_stride], column 0 of W at output[0]
  size_t output_stride = 0;  // floats
};

// Scores, softmax and values of one split of the absolute 256-token grid, for `rows` consecutive
// query rows of one sequence and the query heads that share one KV head.
// Row i is at position first_position + i and sees tokens [256·split, min(256·split + 256, its
// position + 1)); rows before the split are skipped (their partials are not written).
//   s_t = q·k_t by the bf16 chain; m = max; p_t = exp(s_t - m), +0 for masked tokens of a 16-token
//   tile; l by K3 over tokens; o_d = fma(p_t, v_td, o_d), tokens ascending, whole tiles, then
//   o + 0.
struct AttentionSplitArgs {
  const std::byte* plane = nullptr;         // start of the plane
  const uint64_t* group_offsets = nullptr;  // of the sequence, from token 0
  uint64_t key_tile_offset = 0;             // K tile of this layer and KV head in a group
  uint32_t head_dim = 0;
  const uint16_t* queries = nullptr;  // bf16, scaled; [rows][heads][head_dim]
  size_t query_row_stride = 0;        // elements
  size_t query_head_stride = 0;
  uint32_t rows = 0;
  uint32_t heads = 0;
  uint32_t first_position = 0;
  uint32_t split = 0;
  float* partials = nullptr;  // [rows][heads][AttentionPartialFloats(head_dim)]
};
inline constexpr uint32_t kSplitTokens = 256;
// o[head_dim rounded up to 16], m, l, padded to 16 floats.
constexpr uint32_t AttentionPartialFloats(uint32_t head_dim) {
  return (head_dim + 15) / 16 * 16 + 16;
}
// Left fold of partials in ascending split order into `accumulator`:
//   m' = max(m, m_i); a = exp(m - m'), b = exp(m_i - m')
//   l = fma(l, a, l_i·b); o = fma(o, a, o_i·b)
// The first partial of a row is copied, not folded into an empty one (`first` says so).
struct AttentionCombineArgs {
  const float* partials = nullptr;
  ptrdiff_t stride = 0;  // floats from one split's partial to the next
  uint32_t count = 0;
  bool first = true;
  float* accumulator = nullptr;
  uint32_t head_dim = 0;
};

// Causal depthwise convolution with silu over `rows` tokens of one sequence, for channels
// [channel_begin, channel_end), begin a multiple of 16:
//   u = bf16(input); y = fma(w_j, u_{t-taps+j}, y) from y = bias, oldest tap first; output silu(y).
// Past inputs come from `source` (zeros when null); afterwards `destination` holds the last `taps`
// inputs. Equal tables update in place.
struct ConvArgs {
  const float* input = nullptr;  // [rows][input_stride], channel 0
  size_t input_stride = 0;
  const float* weights = nullptr;  // [taps + 1][weight_stride], oldest tap first
  size_t weight_stride = 0;
  const float* bias = nullptr;  // [channels]
  float* output = nullptr;      // [rows][output_stride]
  size_t output_stride = 0;
  uint32_t rows = 0;
  uint32_t channel_begin = 0, channel_end = 0;
  uint32_t taps = 0;  // K - 1
  PagedBytes source, destination;
  uint64_t start = 0;      // linear byte of this layer's oldest conv row
  uint64_t row_bytes = 0;  // of one conv row
};

// Mamba-2 recurrence over `rows` tokens of one sequence for heads [head_begin, head_end). Per row
// (head, p), with h_n the state before the token and s_n after it:
//   s_n = fma(h_n, dA, (Δ·x_p)·B_n); y_p = Σ_n s_n·C_n in 4 chains of 16 lanes (vector i → chain
//   i mod 4, fma), chains (0+1)+(2+3), tree K3; then y_p = fma(D, x_p, y_p).
// What is kept of s_n, and is h_n of the next token, depends on the state type:
//   fp32   s_n itself
//   bf16   bf16(s_n) (K2), after every token, stored or not: y is of the unrounded s_n, and a call
//          of many tokens gives the bits of many calls of one
// The bytes of a row beyond its N elements are written as zero.
struct ScanArgs {
  const float* x = nullptr;  // [rows][stride], head h's p at h·head_dim + p
  const float* b = nullptr;  // [rows][stride], group g's n at g·state + n
  const float* c = nullptr;
  size_t stride = 0;             // shared by x, b and c: they are parts of one conv output row
  const float* delta = nullptr;  // [rows][heads_stride] Δ
  const float* decay = nullptr;  // [rows][heads_stride] dA
  size_t heads_stride = 0;
  const float* d = nullptr;  // [heads]
  float* y = nullptr;        // [rows][y_stride]
  size_t y_stride = 0;
  uint32_t rows = 0;
  uint32_t head_begin = 0, head_end = 0;
  uint32_t head_dim = 0;
  uint32_t state = 0;
  uint32_t heads_per_group = 0;
  StateType state_type = StateType::kF32;
  PagedBytes source, destination;
  uint64_t start = 0;      // linear byte of this layer's SSM row 0
  uint64_t row_bytes = 0;  // of N elements of the state type, rounded up to 64
};

struct KernelTable {
  const char* isa = "";  // "scalar", "avx2", "avx512"

  void (*gemm)(const GemmArgs& args) = nullptr;

  // y_i = (x_i · 1/sqrt(Σx²/n + eps)) · w_i, Σx² by fma and K3
  void (*rms_norm)(const float* x, const float* weight, uint32_t n, float eps, float* y) = nullptr;
  void (*to_bf16)(const float* x, uint32_t n, uint16_t* y) = nullptr;
  // Per 32-block (the last may be short; its missing elements are written as 0 up to a multiple of
  // 32): d = amax/127, q = nearest-even(x·(1/d)); amax 0 → all zero; a NaN makes d infinite, so
  // that it cannot vanish from the products. sums: -Σq of each block, which takes the offset of
  // unsigned weights off a dot product.
  void (*to_int8)(const float* x, uint32_t n, int8_t* y, float* scales, int32_t* sums) = nullptr;
  // The same per block of 256, of which n is a multiple. kKSumWords of sums for each: -Σq of its 16
  // runs of 16; then, as bytes, low[8] and high[8] of its runs of 32, -Σq = 64·high + low with
  // -32 ≤ low < 32.
  void (*to_int8_k)(const float* x, uint32_t n, int8_t* y, float* scales, int32_t* sums) = nullptr;
  // out = silu(gate)·x, silu(v) = v / (1 + exp(-v))
  void (*silu_mul)(const float* gate, const float* x, uint32_t n, float* out) = nullptr;
  // residual_i = residual_i + (a_i + b_i); b may be null: residual_i + a_i
  void (*add_residual)(const float* a, const float* b, uint32_t n, float* residual) = nullptr;

  // Rotates pairs of the first n_rot of head_dim: (j, j + n_rot/2) when neox, else (2j, 2j+1):
  //   a' = fma(-b, sin, a·cos), b' = fma(a, sin, b·cos).  cos and sin are [n_rot / 2].
  void (*rope)(float* head, uint32_t n_rot, bool neox, const float* cos,
               const float* sin) = nullptr;
  // y = bf16(x·scale)
  void (*scale_to_bf16)(const float* x, float scale, uint32_t n, uint16_t* y) = nullptr;
  // Writes one token's K and V of one head, rounded to bf16, as row `token` (0..15) of the tiles.
  void (*store_kv)(const float* k, const float* v, uint32_t head_dim, uint32_t token,
                   std::byte* key_tile) = nullptr;
  // Zeroes a group: the step that first writes one calls it first.
  void (*zero_group)(std::byte* group, size_t bytes) = nullptr;
  void (*attention_split)(const AttentionSplitArgs& args) = nullptr;
  void (*attention_combine)(const AttentionCombineArgs& args) = nullptr;
  // out_d = o_d / l
  void (*attention_finish)(const float* accumulator, uint32_t head_dim, float* out) = nullptr;

  void (*conv)(const ConvArgs& args) = nullptr;
  // Δ = softplus(dt + bias) (x > 20 ? x : log1p(exp(x))), dA = exp(Δ·a)
  void (*discretize)(const float* dt, const float* bias, const float* a, uint32_t heads,
                     float* delta, float* decay) = nullptr;
  void (*scan)(const ScanArgs& args) = nullptr;
};

const KernelTable& ScalarKernels();
// Null when this CPU lacks AVX2, FMA or F16C.
const KernelTable* Avx2Kernels();
// Null when this CPU lacks AVX-512 with bf16 and VNNI, or when the 64k-lane self-test of vdpbf16ps
// against the fma chain finds a difference.
const KernelTable* Avx512Kernels();
// Scalar first, then every other table this CPU runs, the best last.
std::vector<const KernelTable*> AvailableKernels();

// The table for TESSERA_ISA (empty or unset: the best that works) and one line on why it was
// chosen. An unknown or unavailable name gives null and the reason.
struct KernelChoice {
  const KernelTable* table = nullptr;
  const char* reason = "";
};
KernelChoice ChooseKernels(const char* isa_override);

}  // namespace tessera
