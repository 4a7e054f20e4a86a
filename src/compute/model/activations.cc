// SPDX-License-Identifier: Apache-2.0
#include "compute/model/activations.h"

#include <utility>

#include "compute/kernels/kernel_table.h"

namespace tessera {

// Hands out parts of a range, each at a multiple of 64 bytes. Without a base it only counts.
class ActivationCarver {
 public:
  explicit ActivationCarver(std::byte* base) : base_(base) {}

  template <typename T>
  T* Take(uint64_t count) {
    T* at = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_bytes_);
    used_bytes_ += RoundUp(count * sizeof(T), 64);
    return at;
  }
  Activations::Rows TakeRows(uint64_t rows, uint32_t width) {
    const size_t stride = RoundUp(width, 16);
    return {Take<float>(rows * stride), stride};
  }
  InputRows TakeInput(uint64_t rows, uint32_t k) {
    InputRows input;
    input.k = k;
    input.f32_stride = RoundUp(k, 16);
    input.f32 = Take<float>(rows * input.f32_stride);
    input.bf16 = Take<uint16_t>(rows * input.bf16_stride());
    input.int8 = Take<int8_t>(rows * input.int8_stride());
    input.scales = Take<float>(rows * input.block_stride());
    input.sums = Take<int32_t>(rows * input.block_stride());
    if (input.super_blocks() > 0) {
      input.int8_k = Take<int8_t>(rows * input.int8_stride());
      input.k_scales = Take<float>(rows * input.super_block_stride());
      input.k_sums = Take<int32_t>(rows * input.k_sum_stride());
    }
    return input;
  }
  uint64_t used_bytes() const { return used_bytes_; }

 private:
  std::byte* base_;
  uint64_t used_bytes_ = 0;
};

void Activations::Lay(ActivationCarver* carver, const ModelShape& shape,
                      const ForwardLimits& limits, int threads) {
  const uint64_t rows = limits.rows;
  const uint32_t d = shape.width;
  plan.row_sequence = carver->Take<uint32_t>(rows);
  plan.first_row = carver->Take<uint32_t>(limits.sequences);
  residual = carver->TakeRows(rows, d);
  normed = carver->TakeInput(rows, d);
  mixed = carver->TakeRows(rows, d);
  norm_rows = {carver->Take<float>(rows * d), d};
  head = carver->TakeInput(limits.head_rows, d);
  logits = carver->Take<float>(uint64_t{limits.head_rows} * shape.vocab_size);
  if (shape.has_attention()) {
    const uint32_t q = shape.heads * shape.head_dim;
    const uint32_t kv = shape.kv_heads * shape.head_dim;
    plan.query_blocks =
        carver->Take<StepPlan::QueryBlock>(StepPlan::Storage::QueryBlocksMax(limits));
    query = carver->TakeRows(rows, q);
    key = carver->TakeRows(rows, kv);
    value = carver->TakeRows(rows, kv);
    cosines = carver->TakeRows(rows, shape.n_rot / 2);
    sines = carver->TakeRows(rows, shape.n_rot / 2);
    scaled_query_stride = RoundUp(q, 32);
    scaled_queries = carver->Take<uint16_t>(rows * scaled_query_stride);
    attended = carver->TakeInput(rows, q);
    slot_floats = size_t{StepPlan::kBlockRows} * (shape.heads / shape.kv_heads) *
                  AttentionPartialFloats(shape.head_dim);
    partials = carver->Take<float>(PartialSlots(threads) * slot_floats);
    accumulators = carver->Take<float>(AccumulatorSlots(threads) * slot_floats);
  }
  if (shape.has_ssm()) {
    plan.conv_ranges =
        carver->Take<StepPlan::Range>(StepPlan::Storage::ConvRangesMax(shape, limits));
    plan.scan_ranges =
        carver->Take<StepPlan::Range>(StepPlan::Storage::ScanRangesMax(shape, limits));
    ssm_mixed = carver->TakeRows(rows, d);
    projected = carver->TakeRows(rows, shape.ssm_in_rows());
    convolved = carver->TakeRows(rows, shape.conv_channels());
    delta = carver->TakeRows(rows, shape.ssm_heads);
    decay = carver->TakeRows(rows, shape.ssm_heads);
    scanned = carver->TakeInput(rows, shape.ssm_inner);
  }
  if (shape.feed_forward > 0) {
    gate = carver->TakeInput(rows, shape.feed_forward);
    up = carver->TakeRows(rows, shape.feed_forward);
  }
}

uint64_t Activations::Bytes(const ModelShape& shape, const ForwardLimits& limits, int threads) {
  Activations measured;
  ActivationCarver carver(nullptr);
  measured.Lay(&carver, shape, limits, threads);
  return RoundUp(carver.used_bytes(), 4 * kKiB);  // as Arena rounds
}

Result<Activations> Activations::Make(const ModelShape& shape, const ForwardLimits& limits,
                                      int threads) {
  Activations made;
  TESSERA_ASSIGN_OR_RETURN(made.arena, Arena::Map(Bytes(shape, limits, threads)));
  ActivationCarver carver(made.arena.data());
  made.Lay(&carver, shape, limits, threads);
  return made;
}

}  // namespace tessera
