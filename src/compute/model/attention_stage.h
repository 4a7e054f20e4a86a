// SPDX-License-Identifier: Apache-2.0
//
// The attention of one layer: rotation and storing of new keys and values, then scores, softmax and
// values over the absolute 256-token splits.
//
// With many query blocks each is one task that walks its splits. With few (decoding a few long
// sequences) the splits themselves are tasks, in waves that fill the partial slots; each wave is
// folded in ascending split order before the next. Both do the same operations on the same numbers.
//
// Threads: StoreRow may run for different rows at once; Attend is one caller's, and may carry
// other tasks in its first job.
#pragma once

#include <cstdint>

#include "base/function_ref.h"
#include "compute/model/step_context.h"

namespace tessera {

class AttentionStage {
 public:
  AttentionStage(const StepContext& context, uint32_t layer);

  // Bias, RoPE; q scaled and rounded; K and V into their page.
  void StoreRow(uint32_t row) const;
  // Fills `attended` (fp32). `others` further tasks run beside it.
  void Attend(uint32_t others, FunctionRef<void(uint32_t)> other) const;

 private:
  struct Task {
    const StepPlan::QueryBlock* block = nullptr;
    uint32_t kv_head = 0;
  };

  Task TaskOf(uint32_t index) const;
  void Split(const Task& task, uint32_t split, float* partials) const;
  // Folds partials of splits [first, first + count) of each row that has them.
  void Fold(const Task& task, uint32_t first, uint32_t count, const float* partials,
            float* accumulators) const;
  void Finish(const Task& task, const float* accumulators) const;
  void AttendWhole(const Task& task, int worker) const;
  void AttendByWaves(uint32_t tasks, uint32_t splits, uint32_t others,
                     FunctionRef<void(uint32_t)> other) const;

  const StepContext& context_;
  const LayerWeights& weights_;
  uint32_t plane_ = 0;
  uint32_t layer_in_plane_ = 0;
  uint32_t heads_per_kv_ = 0;
  uint32_t partial_floats_ = 0;
};

}  // namespace tessera
