// SPDX-License-Identifier: Apache-2.0
//
// The Mamba-2 part of one layer, from the output of ssm_in (z | x B C | dt) to the input of
// ssm_out: convolution with silu, time steps, recurrence, gate, norm.
//
// Threads: each function is one task; tasks of different rows or ranges may run at once.
#pragma once

#include <cstdint>

#include "compute/model/step_context.h"

namespace tessera {

class SsmStage {
 public:
  SsmStage(const StepContext& context, uint32_t layer);

  // Δ and dA of all heads.
  void DiscretizeRow(uint32_t row) const;
  void Convolve(const StepPlan::Range& range) const;
  // After Convolve of all ranges and DiscretizeRow of all rows of the sequence.
  void Scan(const StepPlan::Range& range) const;
  // y·silu(z), grouped norm, and the forms ssm_out wants.
  void FinishRow(uint32_t row) const;

 private:
  const StepContext& context_;
  const LayerWeights& weights_;
  uint32_t plane_ = 0;
  uint64_t ssm_byte_ = 0;  // of this layer in the plane's SSM rows
  uint64_t conv_byte_ = 0;
};

}  // namespace tessera
