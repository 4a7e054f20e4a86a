// SPDX-License-Identifier: Apache-2.0
//
// Forward runs one step of a model: some new tokens of each of several sequences, prefill chunks
// and decodes alike, their state read and written through StateViews. Its activations are allocated
// once for given limits; a step allocates nothing.
//
//   rows: the new tokens of all sequences, one after another
//   per layer (falcon-h1; mamba2 and llama are the parts they have):
//     u = norm(h); q,k,v,zxbcdt = W·u; RoPE; K,V to their pages, then attention by splits;
//     conv and scan from the state's source to its destination; h += attention + ssm; h += MLP
//   final-norm rows of the tokens the caller asked for; Head turns them into logits
//
// F1  Logits and state bytes of a sequence are the same bits whatever else is in the step, however
//     its tokens were cut into steps, and for any thread count and kernel table. (Attention values
//     must be finite: docs/decisions/0002.)
// F2  Only the destination bytes of the views and the rows of the new tokens in their groups are
//     written; groups first written by this step are zeroed first.
// F3  No heap allocation in Run or Head after construction.
//
// Threads: one step at a time; it uses the pool it is given, with the caller as one of the threads,
// and sets the float environment itself.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "base/strong_id.h"
#include "compute/kernels/kernel_table.h"
#include "compute/model/model.h"
#include "memory/geometry/state_view.h"

namespace tessera {

class ThreadPool;

enum class WantedRows : uint8_t { kNone, kLast, kAll };

struct SequenceStep {
  std::span<const TokenId> tokens;  // new tokens, ids in the vocabulary, at least one
  uint32_t position = 0;            // absolute position of tokens[0]
  StateView state;
  uint32_t first_new_group = 0;  // groups [first, last) are first written by this step
  uint32_t last_new_group = 0;
  WantedRows wanted = WantedRows::kLast;
};

struct ForwardLimits {
  uint32_t rows = 256;          // tokens in one step over all sequences
  uint32_t sequences = 16;      // in one step
  uint32_t head_rows = 16;      // rows in one Head call
  uint32_t context_length = 0;  // longest position + 1 of any sequence
};

class Forward {
 public:
  // kNoMemory when the activations cannot be had. The state's type decides bits as the weights do
  // (Model::contract_id); the views of all steps are of it. What is passed by reference must
  // outlive it.
  static Result<Forward> Create(const Model& model, StateType state_type,
                                const KernelTable& kernels, ThreadPool& threads,
                                const ForwardLimits& limits);
  // The same where there being no memory for it is a bug.
  Forward(const Model& model, StateType state_type, const KernelTable& kernels, ThreadPool& threads,
          const ForwardLimits& limits);
  Forward(Forward&&) noexcept;
  Forward& operator=(Forward&&) noexcept;
  ~Forward();

  // Bytes of activations for these limits: fixed at construction, outside the budget.
  static uint64_t ActivationBytes(const ModelShape& shape, const ForwardLimits& limits,
                                  int threads);
  uint64_t activation_bytes() const;  // what it really holds

  // The steps must fit the limits. Returns the number of wanted rows, in the order of `steps`.
  uint32_t Run(std::span<const SequenceStep> steps);
  // Final-norm rows (fp32, [d] each, contiguous) of the last Run.
  const float* norm_rows() const;
  // Logits [count][vocab_size] of `count` <= head_rows final-norm rows, fp32, contiguous
  // [count][d]; valid until the next call.
  const float* Head(const float* rows, uint32_t count);

 private:
  struct Impl;
  Forward() = default;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
