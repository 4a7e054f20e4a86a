// SPDX-License-Identifier: Apache-2.0
//
// SequenceRunner feeds one sequence through a Forward by hand: it keeps the position and the state
// and fills in the groups of each step.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "compute/model/forward.h"
#include "testing/test_state.h"

namespace tessera::testing {

class SequenceRunner {
 public:
  SequenceRunner(const ModelShape& shape, uint32_t tokens_max, const TestStateOptions& options = {},
                 StateType state_type = StateType::kF32)
      : state_(shape.state_shape(state_type), tokens_max, options) {}

  // The step for these tokens; call Done after it ran. `tokens` must outlive it.
  SequenceStep Next(std::span<const TokenId> tokens, WantedRows wanted) {
    const auto count = static_cast<uint32_t>(tokens.size());
    SequenceStep step;
    step.tokens = tokens;
    step.position = position_;
    step.state = state_.View();
    step.first_new_group = static_cast<uint32_t>(DivideUp(position_, kGroupTokens));
    step.last_new_group = static_cast<uint32_t>(DivideUp(position_ + count, kGroupTokens));
    step.wanted = wanted;
    pending_ = count;
    return step;
  }
  void Done() {
    position_ += pending_;
    state_.StepDone();
  }

  // One step of this sequence alone.
  uint32_t Run(Forward* forward, std::span<const TokenId> tokens, WantedRows wanted) {
    const SequenceStep step = Next(tokens, wanted);
    const uint32_t rows = forward->Run({&step, 1});
    Done();
    return rows;
  }

  uint32_t position() const { return position_; }
  TestState& state() { return state_; }
  std::vector<std::byte> StateBytes() const { return state_.Bytes(position_); }

 private:
  TestState state_;
  uint32_t position_ = 0;
  uint32_t pending_ = 0;
};

}  // namespace tessera::testing
