// SPDX-License-Identifier: Apache-2.0
//
// What every stage of a step is given.
#pragma once

#include <algorithm>
#include <cstdint>

#include "compute/kernels/kernel_table.h"
#include "compute/model/activations.h"
#include "compute/model/model.h"
#include "compute/model/step_plan.h"
#include "memory/geometry/state_shape.h"
#include "port/thread_pool.h"

namespace tessera {

struct StepContext {
  const Model& model;
  const ModelShape& shape;
  const StateShape& state;
  const KernelTable& kernels;
  ThreadPool& threads;
  const Activations& at;
  const StepPlan& plan;

  // Runs fn(row) for every row of the step; `elements` is the work of one row.
  template <typename F>
  void ForRows(uint64_t elements, F fn) const {
    const uint32_t rows = plan.rows();
    const uint32_t per_task = plan.RowsPerTask(elements);
    threads.ParallelFor((rows + per_task - 1) / per_task, [&](uint32_t task, int) {
      const uint32_t end = std::min(rows, (task + 1) * per_task);
      for (uint32_t row = task * per_task; row < end; ++row) fn(row);
    });
  }
};

// Adds a bias in place; nothing when there is none.
inline void AddBias(const float* bias, uint32_t n, float* row) {
  if (bias == nullptr) return;
  for (uint32_t i = 0; i < n; ++i) row[i] += bias[i];
}

}  // namespace tessera
