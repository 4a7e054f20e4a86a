// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace tessera {

Result<std::unique_ptr<Executor>> Executor::Create(const Model& model, StateType state_type,
                                                   const KernelTable& kernels, ThreadPool& threads,
                                                   const ForwardLimits& limits) {
  TESSERA_ASSIGN_OR_RETURN(Forward forward,
                           Forward::Create(model, state_type, kernels, threads, limits));
  return std::unique_ptr<Executor>(
      new Executor(std::move(forward), model.shape(), threads, limits));
}

Executor::Executor(Forward forward, const ModelShape& shape, ThreadPool& threads,
                   const ForwardLimits& limits)
    : width_(shape.width),
      vocab_size_(shape.vocab_size),
      limits_(limits),
      threads_(threads),
      forward_(std::move(forward)) {
  samplers_.reserve(static_cast<size_t>(threads.thread_count()));
  for (int worker = 0; worker < threads.thread_count(); ++worker) {
    samplers_.emplace_back(vocab_size_);
  }
  steps_.reserve(limits.sequences);
  items_.reserve(limits.sequences);
  rows_.reserve(limits.rows);
}

uint64_t Executor::ActivationBytes(const ModelShape& shape, const ForwardLimits& limits,
                                   int threads) {
  return Forward::ActivationBytes(shape, limits, threads) +
         static_cast<uint64_t>(threads) * Sampler::ScratchBytes(shape.vocab_size);
}

uint64_t Executor::activation_bytes() const {
  return forward_.activation_bytes() + samplers_.size() * Sampler::ScratchBytes(vocab_size_);
}

void Executor::ListRows(const ExecutorItem& item) {
  Sequence& sequence = *item.sequence;
  const uint32_t end = sequence.computed() + item.tokens;
  const bool sampled = sequence.samples_at(item.completes_row);
  if (sequence.wants_prompt_rows()) {
    for (uint32_t position = sequence.computed(); position < end; ++position) {
      rows_.push_back({&sequence, position, sampled && position + 1 == end});
    }
  } else if (sampled) {
    rows_.push_back({&sequence, end - 1, true});
  }
}

void Executor::Begin(std::span<const ExecutorItem> items) {
  TESSERA_CHECK(items_.empty() && items.size() <= limits_.sequences);
  for (const ExecutorItem& item : items) {
    Sequence& sequence = *item.sequence;
    const size_t rows_before = rows_.size();
    ListRows(item);
    SequenceStep step;
    step.tokens = sequence.Tokens(sequence.computed(), item.tokens);
    step.position = sequence.computed();
    step.state = sequence.state().BeginStep(item.tokens);
    step.first_new_group = sequence.state().first_new_group();
    step.last_new_group = sequence.state().last_new_group();
    step.wanted = rows_.size() == rows_before    ? WantedRows::kNone
                  : sequence.wants_prompt_rows() ? WantedRows::kAll
                                                 : WantedRows::kLast;
    steps_.push_back(step);
    items_.push_back(item);
  }
}

void Executor::Compute() {
  const uint32_t count = forward_.Run(steps_);
  TESSERA_CHECK(count == rows_.size());
  for (uint32_t first = 0; first < count; first += limits_.head_rows) {
    const uint32_t slice = std::min(limits_.head_rows, count - first);
    const float* norm_rows = forward_.norm_rows() + size_t{first} * width_;
    const float* logits = forward_.Head(norm_rows, slice);
    threads_.ParallelFor(slice, [&](uint32_t task, int worker) {
      FinishRow(rows_[first + task], norm_rows + size_t{task} * width_,
                std::span(logits + size_t{task} * vocab_size_, vocab_size_),
                samplers_[static_cast<size_t>(worker)]);
    });
  }
}

void Executor::FinishRow(const Row& row, const float* norm_row, std::span<const float> logits,
                         Sampler& sampler) {
  Sequence& sequence = *row.sequence;
  const Request& request = sequence.request();
  TokenId chosen = sequence.GivenAfter(row.position);
  if (row.sampled) {
    sequence.receipt().Fold(std::span(norm_row, width_));
    // Keyed by the position of the new token, which is the one after this row's.
    sequence.sample() = sampler.Sample(logits, request.sampling, uint64_t{row.position} + 1);
    chosen = sequence.sample().value_or(-1);
    if (request.logprobs >= 0) {
      sampler.Logprobs(logits, chosen, static_cast<uint32_t>(request.logprobs),
                       &sequence.sample_logprobs());
    }
  }
  if (request.prompt_logprobs >= 0 && row.position < sequence.prompt_size()) {
    sampler.Logprobs(logits, chosen, static_cast<uint32_t>(request.prompt_logprobs),
                     &sequence.prompt_logprobs(row.position));
  }
}

void Executor::End() {
  for (const ExecutorItem& item : items_) item.sequence->state().EndStep();
  items_.clear();
  steps_.clear();
  rows_.clear();
}

}  // namespace tessera
