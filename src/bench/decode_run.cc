// SPDX-License-Identifier: Apache-2.0
#include "bench/decode_run.h"

#include <algorithm>
#include <utility>

#include "bench/crew.h"
#include "compute/model/model_shape.h"

namespace tessera {

Result<std::unique_ptr<DecodeRun>> DecodeRun::Create(const ModelShape& shape,
                                                     const DecodeRunOptions& options) {
  const uint64_t tokens = uint64_t{options.context_tokens} + options.steps_max;
  StoreOptions store_options;
  store_options.shape = shape.state_shape(options.state_type);
  store_options.organisation = options.organisation;
  store_options.shuffle_seed = options.aged ? 7 : 0;
  TESSERA_ASSIGN_OR_RETURN(store_options.budget_bytes,
                           StateStore::BudgetForSequences(store_options.shape, options.organisation,
                                                          options.sequences, tokens));
  TESSERA_ASSIGN_OR_RETURN(auto store, StateStore::Create(store_options));
  std::vector<SequenceState> sequences;
  for (uint32_t i = 0; i < options.sequences; ++i) {
    AdmitResult admitted = store->Admit(tokens);
    TESSERA_CHECK(admitted.outcome == Admission::kAdmitted);
    sequences.push_back(std::move(*admitted.sequence));
  }
  for (SequenceState& sequence : sequences) {
    if (options.context_tokens == 0) continue;
    sequence.BeginStep(options.context_tokens);
    sequence.EndStep();
  }
  return std::unique_ptr<DecodeRun>(
      new DecodeRun(std::move(store), std::move(sequences), shape.vocab_size));
}

DecodeRun::DecodeRun(std::unique_ptr<StateStore> store, std::vector<SequenceState> sequences,
                     uint32_t vocab_size)
    : store_(std::move(store)), sequences_(std::move(sequences)), vocab_size_(vocab_size) {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    tokens_.push_back(static_cast<TokenId>(i % vocab_size_));
  }
  steps_.resize(sequences_.size());
}

void DecodeRun::Begin() {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    SequenceStep& step = steps_[i];
    step.tokens = {&tokens_[i], 1};
    step.position = static_cast<uint32_t>(sequences_[i].position());
    step.state = sequences_[i].BeginStep(1);
    step.first_new_group = sequences_[i].first_new_group();
    step.last_new_group = sequences_[i].last_new_group();
  }
}

void DecodeRun::End(const float* logits) {
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const float* row = logits + i * vocab_size_;
    tokens_[i] = static_cast<TokenId>(std::max_element(row, row + vocab_size_) - row);
    sequences_[i].EndStep();
  }
}

Timing DecodeRun::Step(Forward* forward, int threads) {
  const Stopwatch watch;
  Begin();
  const uint32_t rows = forward->Run(steps_);
  End(forward->Head(forward->norm_rows(), rows));
  Timing timing = watch.Elapsed();
  timing.threads = threads;
  return timing;
}

}  // namespace tessera
