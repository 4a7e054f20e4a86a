// SPDX-License-Identifier: Apache-2.0
//
// The kernel table of one instruction set.
#pragma once

#include "compute/kernels/attention_inl.h"
#include "compute/kernels/conv_inl.h"
#include "compute/kernels/elementwise_inl.h"
#include "compute/kernels/gemm_inl.h"
#include "compute/kernels/kernel_table.h"
#include "compute/kernels/scan_inl.h"

namespace tessera::kernels {

template <class V>
constexpr KernelTable MakeTable(const char* isa) {
  KernelTable table;
  table.isa = isa;
  table.gemm = Gemm<V>;
  table.rms_norm = RmsNorm<V>;
  table.to_bf16 = ToBf16<V>;
  table.to_int8 = ToInt8<V>;
  table.to_int8_k = ToInt8K<V>;
  table.silu_mul = SiluMul<V>;
  table.add_residual = AddResidual<V>;
  table.rope = Rope<V>;
  table.scale_to_bf16 = ScaleToBf16<V>;
  table.store_kv = StoreKv<V>;
  table.zero_group = ZeroGroup<V>;
  table.attention_split = AttentionSplit<V>;
  table.attention_combine = AttentionCombine<V>;
  table.attention_finish = AttentionFinish<V>;
  table.conv = Conv<V>;
  table.discretize = Discretize<V>;
  table.scan = Scan<V>;
  return table;
}

}  // namespace tessera::kernels
