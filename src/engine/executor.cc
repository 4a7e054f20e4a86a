// SPDX-License-Identifier: Apache-2.0
#include "engine/executor.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace tessera {
namespace {

constexpr uint32_t kNoRow = std::numeric_limits<uint32_t>::max();

uint64_t HeadInputBytes(uint32_t width, const ForwardLimits& limits) {
  return uint64_t{limits.head_rows} * width * sizeof(float);
}

}  // namespace

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
      forward_(std::move(forward)),
      head_input_(size_t{limits.head_rows} * shape.width) {
  workers_.reserve(static_cast<size_t>(threads.thread_count()));
  for (int worker = 0; worker < threads.thread_count(); ++worker) {
    workers_.emplace_back(vocab_size_);
  }
  steps_.reserve(limits.sequences);
  items_.reserve(limits.sequences);
  rows_.reserve(limits.rows);
  kept_.reserve(limits.sequences);
  last_row_.reserve(limits.sequences);
}

uint64_t Executor::ActivationBytes(const ModelShape& shape, const ForwardLimits& limits,
                                   int threads) {
  return Forward::ActivationBytes(shape, limits, threads) + HeadInputBytes(shape.width, limits) +
         static_cast<uint64_t>(threads) * WorkerBytes(shape.vocab_size);
}

uint64_t Executor::activation_bytes() const {
  return forward_.activation_bytes() + head_input_.size_bytes() +
         workers_.size() * WorkerBytes(vocab_size_);
}

void Executor::ListRows(const ExecutorItem& item) {
  Sequence& sequence = *item.sequence;
  const uint32_t end = sequence.computed() + item.tokens;
  const bool sampled = sequence.samples_at(item.completes_row);
  if (sequence.wants_prompt_rows()) {
    for (uint32_t position = sequence.computed(); position < end; ++position) {
      rows_.push_back({&sequence, position, sampled && position + 1 == end});
    }
  } else if (sampled || (item.completes_row && item.at_boundary)) {
    rows_.push_back({&sequence, end - 1, sampled});  // unsampled: to be kept
  }
}

void Executor::BeginTokens(const ExecutorItem& item) {
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
  last_row_.push_back(step.wanted == WantedRows::kNone ? kNoRow
                                                       : static_cast<uint32_t>(rows_.size()) - 1);
}

void Executor::Begin(std::span<const ExecutorItem> items) {
  TESSERA_CHECK(items_.empty() && items.size() <= limits_.sequences);
  rows_.clear();
  last_row_.clear();
  for (const ExecutorItem& item : items) {
    if (item.tokens > 0) {
      BeginTokens(item);
    } else {
      Sequence& sequence = *item.sequence;
      if (sequence.samples_at(true)) kept_.push_back({&sequence, sequence.computed() - 1, true});
      last_row_.push_back(kNoRow);
    }
    items_.push_back(item);
  }
}

void Executor::Compute() {
  threads_.ParallelFor(static_cast<uint32_t>(items_.size()), [&](uint32_t task, int) {
    if (items_[task].tokens > 0) items_[task].sequence->state().CopyShared();
  });
  const uint32_t count = steps_.empty() ? 0 : forward_.Run(steps_);
  TESSERA_CHECK(count == rows_.size());
  for (uint32_t first = 0; first < count; first += limits_.head_rows) {
    const uint32_t slice = std::min(limits_.head_rows, count - first);
    FinishRows(std::span(rows_).subspan(first, slice),
               forward_.norm_rows() + size_t{first} * width_);
  }
  FinishKeptRows();
}

void Executor::FinishRows(std::span<const Row> rows, const float* norm_rows) {
  const auto count = static_cast<uint32_t>(rows.size());
  const float* logits = forward_.Head(norm_rows, count);
  threads_.ParallelFor(count, [&](uint32_t task, int worker) {
    FinishRow(rows[task], norm_rows + size_t{task} * width_,
              std::span(logits + size_t{task} * vocab_size_, vocab_size_),
              workers_[static_cast<size_t>(worker)]);
  });
}

void Executor::FinishKeptRows() {
  for (size_t first = 0; first < kept_.size(); first += limits_.head_rows) {
    const size_t slice = std::min<size_t>(limits_.head_rows, kept_.size() - first);
    const auto rows = std::span(kept_).subspan(first, slice);
    for (size_t i = 0; i < slice; ++i) {
      const std::span<const float> row = rows[i].sequence->state().kept_row();
      TESSERA_CHECK(row.size() == width_);
      std::copy(row.begin(), row.end(), head_input_.data() + i * width_);
    }
    FinishRows(rows, head_input_.data());
  }
}

void Executor::FinishRow(const Row& row, const float* norm_row, std::span<const float> logits,
                         Worker& worker) {
  Sequence& sequence = *row.sequence;
  const Request& request = sequence.request();
  TokenId chosen = sequence.GivenAfter(row.position);
  if (row.sampled) {
    sequence.receipt().Fold(std::span(norm_row, width_));
    // Keyed by the position of the new token, which is the one after this row's.
    sequence.sample() = worker.sampler.Sample(
        worker.adjuster.Adjust(logits, request.sampling, sequence.sample_context()),
        request.sampling, uint64_t{row.position} + 1);
    chosen = sequence.sample().value_or(-1);
    if (request.logprobs >= 0) {
      worker.sampler.Logprobs(logits, chosen, static_cast<uint32_t>(request.logprobs),
                              &sequence.sample_logprobs());
    }
  }
  if (request.prompt_logprobs >= 0 && row.position < sequence.prompt_size()) {
    worker.sampler.Logprobs(logits, chosen, static_cast<uint32_t>(request.prompt_logprobs),
                            &sequence.prompt_logprobs(row.position));
  }
}

void Executor::End() {
  for (const ExecutorItem& item : items_) {
    if (item.tokens > 0) item.sequence->state().EndStep();
  }
  items_.clear();
  steps_.clear();
  kept_.clear();
}

std::span<const float> Executor::LastRow(size_t index) const {
  const uint32_t row = last_row_[index];
  if (row == kNoRow) return {};
  return std::span(forward_.norm_rows() + size_t{row} * width_, width_);
}

}  // namespace tessera
