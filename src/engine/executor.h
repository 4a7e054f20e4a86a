// SPDX-License-Identifier: Apache-2.0
//
// Executor computes a planned step: new tokens of several sequences through the model, then, from
// the final-norm rows, logits in slices of head_rows, and from each row a sample, a receipt and
// log-probabilities. An item without tokens has its row already, kept from an earlier request.
//
//   Begin   takes state addresses for each item
//   Compute copies of shared blocks, forward pass, head, sampling   (nobody touches the items' state)
//   End     closes the items' state steps; LastRow is good until the next Begin
//
// X1  What is written for a sequence depends on its own rows only.
// X2  Nothing is allocated after construction for rows that ask for no log-probabilities.
//
// Threads: one step at a time, on the thread that owns the pool.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compute/model/forward.h"
#include "compute/tensor/aligned_buffer.h"
#include "engine/logit_adjuster.h"
#include "engine/sampler.h"
#include "engine/sequence.h"
#include "port/thread_pool.h"

namespace tessera {

struct ExecutorItem {
  Sequence* sequence = nullptr;
  uint32_t tokens = 0;  // 0: the kept row of the whole prompt
  bool completes_row = false;
  bool at_boundary = false;  // its end is to be published
};

class Executor {
 public:
  // kNoMemory when the activations cannot be had. What is passed by reference must outlive it.
  static Result<std::unique_ptr<Executor>> Create(const Model& model, StateType state_type,
                                                  const KernelTable& kernels, ThreadPool& threads,
                                                  const ForwardLimits& limits);

  // Bytes this and the forward pass keep for these limits, fixed at construction.
  static uint64_t ActivationBytes(const ModelShape& shape, const ForwardLimits& limits,
                                  int threads);
  uint64_t activation_bytes() const;  // what is really held

  void Begin(std::span<const ExecutorItem> items);
  void Compute();
  void End();
  // The final-norm row of the last token of items[index], computed by the step; empty when it was
  // not wanted.
  std::span<const float> LastRow(size_t index) const;

 private:
  Executor(Forward forward, const ModelShape& shape, ThreadPool& threads,
           const ForwardLimits& limits);
  struct Worker {
    explicit Worker(uint32_t vocab_size) : sampler(vocab_size), adjuster(vocab_size) {}
    Sampler sampler;
    LogitAdjuster adjuster;
  };
  static uint64_t WorkerBytes(uint32_t vocab_size) {
    return Sampler::ScratchBytes(vocab_size) + LogitAdjuster::ScratchBytes(vocab_size);
  }
  // One wanted final-norm row.
  struct Row {
    Sequence* sequence = nullptr;
    uint32_t position = 0;
    bool sampled = false;
  };
  void ListRows(const ExecutorItem& item);
  void BeginTokens(const ExecutorItem& item);
  void FinishRows(std::span<const Row> rows, const float* norm_rows);
  void FinishKeptRows();
  void FinishRow(const Row& row, const float* norm_row, std::span<const float> logits,
                 Worker& worker);

  const uint32_t width_;
  const uint32_t vocab_size_;
  const ForwardLimits limits_;
  ThreadPool& threads_;
  Forward forward_;
  std::vector<Worker> workers_;
  std::vector<SequenceStep> steps_;
  std::vector<ExecutorItem> items_;
  std::vector<Row> rows_;            // of forward_, in its order
  std::vector<Row> kept_;            // of items without tokens
  std::vector<uint32_t> last_row_;   // per item, in rows_
  AlignedBuffer<float> head_input_;  // kept rows, head_rows of them
};

}  // namespace tessera
