// SPDX-License-Identifier: Apache-2.0
//
// DecodeRun is some sequences that decode together: a StateStore of one organisation, and one Step
// after another of a Forward, all of the model, with the argmax of the logits as the next token.
//
// The sequences begin at a context nobody computed: its pages are taken and their bytes are zero,
// which costs a step what any other bytes do. A store is as large as its sequences need; an aged
// one hands out its pages in a random order.
//
// Failure: Create gives the store's errors. Threads: one caller; a step uses the forward's pool.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"
#include "bench/crew.h"
#include "compute/model/forward.h"
#include "memory/store/state_store.h"

namespace tessera {

struct DecodeRunOptions {
  OrganisationSpec organisation;
  StateType state_type = StateType::kF32;
  uint32_t sequences = 1;
  uint32_t context_tokens = 0;  // of each, before the first step
  uint32_t steps_max = 0;
  bool aged = false;
};

class DecodeRun {
 public:
  static Result<std::unique_ptr<DecodeRun>> Create(const ModelShape& shape,
                                                   const DecodeRunOptions& options);

  // A step of all sequences; at most steps_max of them.
  Timing Step(Forward* forward, int threads);

  const StateStore& store() const { return *store_; }

 private:
  DecodeRun(std::unique_ptr<StateStore> store, std::vector<SequenceState> sequences,
            uint32_t vocab_size);
  void Begin();
  void End(const float* logits);

  std::unique_ptr<StateStore> store_;  // outlives the sequences
  std::vector<SequenceState> sequences_;
  std::vector<TokenId> tokens_;  // the next one of each
  std::vector<SequenceStep> steps_;
  uint32_t vocab_size_;
};

}  // namespace tessera
