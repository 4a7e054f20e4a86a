// SPDX-License-Identifier: Apache-2.0
#include "compute/model/attention_stage.h"

#include <algorithm>

namespace tessera {

// A model with attention has at least one such layer in every plane and at least one KV head, which
// the analyser cannot see.
// NOLINTBEGIN(clang-analyzer-core.DivideZero)
AttentionStage::AttentionStage(const StepContext& context, uint32_t layer)
    : context_(context),
      weights_(context.model.layer(layer)),
      plane_(layer / context.state.attention_layers_per_plane()),
      layer_in_plane_(layer % context.state.attention_layers_per_plane()),
      heads_per_kv_(context.shape.heads / context.shape.kv_heads),
      partial_floats_(AttentionPartialFloats(context.shape.head_dim)) {}
// NOLINTEND(clang-analyzer-core.DivideZero)

void AttentionStage::StoreRow(uint32_t row) const {
  const ModelShape& shape = context_.shape;
  const KernelTable& kernels = context_.kernels;
  const Activations& at = context_.at;
  const uint32_t hd = shape.head_dim;
  float* query = at.query.Row(row);
  float* key = at.key.Row(row);
  float* value = at.value.Row(row);
  AddBias(weights_.attn_q_bias, shape.heads * hd, query);
  AddBias(weights_.attn_k_bias, shape.kv_heads * hd, key);
  AddBias(weights_.attn_v_bias, shape.kv_heads * hd, value);
  const float* cosines = at.cosines.Row(row);
  const float* sines = at.sines.Row(row);
  for (uint32_t head = 0; head < shape.heads; ++head) {
    kernels.rope(query + head * hd, shape.n_rot, shape.rope_neox, cosines, sines);
  }
  kernels.scale_to_bf16(query, shape.attention_scale, shape.heads * hd,
                        at.scaled_queries + row * at.scaled_query_stride);
  const uint32_t position = context_.plan.position_of(row);
  const StateView& view = context_.plan.steps()[context_.plan.sequence_of(row)].state;
  std::byte* group = view.GroupAt(plane_, position / kGroupTokens);
  for (uint32_t head = 0; head < shape.kv_heads; ++head) {
    kernels.rope(key + head * hd, shape.n_rot, shape.rope_neox, cosines, sines);
    kernels.store_kv(key + head * hd, value + head * hd, hd, position % kGroupTokens,
                     group + context_.state.key_tile_offset(layer_in_plane_, head));
  }
}

AttentionStage::Task AttentionStage::TaskOf(uint32_t index) const {
  const uint32_t kv_heads = context_.shape.kv_heads;
  return {&context_.plan.query_blocks()[index / kv_heads], index % kv_heads};
}

void AttentionStage::Split(const Task& task, uint32_t split, float* partials) const {
  const uint32_t hd = context_.shape.head_dim;
  const StateView& view = context_.plan.steps()[task.block->sequence].state;
  AttentionSplitArgs args;
  args.plane = view.attention_base + plane_ * view.attention_plane_stride;
  args.group_offsets = view.group_offsets;
  args.key_tile_offset = context_.state.key_tile_offset(layer_in_plane_, task.kv_head);
  args.head_dim = hd;
  args.queries = context_.at.scaled_queries +
                 task.block->first_row * context_.at.scaled_query_stride +
                 size_t{task.kv_head} * heads_per_kv_ * hd;
  args.query_row_stride = context_.at.scaled_query_stride;
  args.query_head_stride = hd;
  args.rows = task.block->rows;
  args.heads = heads_per_kv_;
  args.first_position = task.block->position;
  args.split = split;
  args.partials = partials;
  context_.kernels.attention_split(args);
}

void AttentionStage::Fold(const Task& task, uint32_t first, uint32_t count, const float* partials,
                          float* accumulators) const {
  for (uint32_t row = 0; row < task.block->rows; ++row) {
    const uint32_t row_splits = (task.block->position + row) / kSplitTokens + 1;
    if (row_splits <= first) continue;
    for (uint32_t head = 0; head < heads_per_kv_; ++head) {
      const size_t offset = (size_t{row} * heads_per_kv_ + head) * partial_floats_;
      AttentionCombineArgs args;
      args.partials = partials + offset;
      args.stride = static_cast<ptrdiff_t>(context_.at.slot_floats);
      args.count = std::min(count, row_splits - first);
      args.first = first == 0;
      args.accumulator = accumulators + offset;
      args.head_dim = context_.shape.head_dim;
      context_.kernels.attention_combine(args);
    }
  }
}

void AttentionStage::Finish(const Task& task, const float* accumulators) const {
  const uint32_t hd = context_.shape.head_dim;
  for (uint32_t row = 0; row < task.block->rows; ++row) {
    float* out = context_.at.attended.Row(task.block->first_row + row) +
                 size_t{task.kv_head} * heads_per_kv_ * hd;
    for (uint32_t head = 0; head < heads_per_kv_; ++head) {
      const size_t offset = (size_t{row} * heads_per_kv_ + head) * partial_floats_;
      context_.kernels.attention_finish(accumulators + offset, hd, out + head * hd);
    }
  }
}

void AttentionStage::AttendWhole(const Task& task, int worker) const {
  const Activations& at = context_.at;
  float* partials = at.partials + static_cast<size_t>(worker) * at.slot_floats;
  float* accumulators = at.accumulators + static_cast<size_t>(worker) * at.slot_floats;
  const uint32_t splits = task.block->splits();
  for (uint32_t split = 0; split < splits; ++split) {
    // The first partial of a row is its accumulator: it goes straight there.
    Split(task, split, split == 0 ? accumulators : partials);
    if (split > 0) Fold(task, split, 1, partials, accumulators);
  }
  Finish(task, accumulators);
}

void AttentionStage::AttendByWaves(uint32_t tasks, uint32_t splits, uint32_t others,
                                   FunctionRef<void(uint32_t)> other) const {
  const Activations& at = context_.at;
  const auto slots =
      static_cast<uint32_t>(Activations::PartialSlots(context_.threads.thread_count()));
  const uint32_t wave = std::min(slots / tasks, splits);
  for (uint32_t first = 0; first < splits; first += wave) {
    const uint32_t beside = first == 0 ? others : 0;
    context_.threads.ParallelFor(tasks * wave + beside, [&](uint32_t index, int) {
      if (index >= tasks * wave) return other(index - tasks * wave);
      const Task task = TaskOf(index / wave);
      const uint32_t split = first + index % wave;
      if (split < task.block->splits()) Split(task, split, at.partials + index * at.slot_floats);
    });
    context_.threads.ParallelFor(tasks, [&](uint32_t index, int) {
      const Task task = TaskOf(index);
      float* accumulators = at.accumulators + index * at.slot_floats;
      Fold(task, first, wave, at.partials + size_t{index} * wave * at.slot_floats, accumulators);
      if (first + wave >= splits) Finish(task, accumulators);
    });
  }
}

void AttentionStage::Attend(uint32_t others, FunctionRef<void(uint32_t)> other) const {
  const auto blocks = context_.plan.query_blocks();
  const auto tasks = static_cast<uint32_t>(blocks.size()) * context_.shape.kv_heads;
  uint32_t splits = 0;
  for (const StepPlan::QueryBlock& block : blocks) splits = std::max(splits, block.splits());
  // Two jobs a wave cost about 2 us more than one task per block; below 4 splits that is not won
  // back.
  constexpr uint32_t kSplitsMin = 4;
  const int threads = context_.threads.thread_count();
  if (threads > 1 && splits >= kSplitsMin && tasks < Activations::AccumulatorSlots(threads)) {
    return AttendByWaves(tasks, splits, others, other);
  }
  context_.threads.ParallelFor(tasks + others, [&](uint32_t index, int worker) {
    if (index >= tasks) return other(index - tasks);
    AttendWhole(TaskOf(index), worker);
  });
}

}  // namespace tessera
