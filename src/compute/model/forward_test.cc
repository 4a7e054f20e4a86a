// SPDX-License-Identifier: Apache-2.0
//
// F1-F3 of forward.h on toys: everything is compared bit for bit with one sequence alone, its
// prompt in one step, one thread, scalar kernels, contiguous state.
#include "compute/model/forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "compute/kernels/kernel_table.h"
#include "port/thread_pool.h"
#include "testing/allocation_count.h"
#include "testing/sequence_runner.h"
#include "testing/toy_model.h"

namespace tessera::testing {
namespace {

constexpr ForwardLimits kLimits = {
    .rows = 512, .sequences = 8, .head_rows = 16, .context_length = 2048};

std::vector<TokenId> Prompt(uint32_t length, uint64_t seed) {
  Random random(seed);
  std::vector<TokenId> tokens(length);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random.Below(300));
  return tokens;
}

// Logits of the last Run's rows, appended.
void AppendLogits(Forward* forward, const ModelShape& shape, uint32_t first, uint32_t rows,
                  std::vector<float>* logits) {
  for (uint32_t done = 0; done < rows; done += kLimits.head_rows) {
    const uint32_t count = std::min(kLimits.head_rows, rows - done);
    const float* out =
        forward->Head(forward->norm_rows() + size_t{first + done} * shape.width, count);
    logits->insert(logits->end(), out, out + size_t{count} * shape.vocab_size);
  }
}

struct Outcome {
  std::vector<float> logits;  // of every position
  std::vector<std::byte> state;
};

void ExpectSameBits(const Outcome& found, const Outcome& expected, const std::string& what) {
  ASSERT_EQ(found.logits.size(), expected.logits.size()) << what;
  EXPECT_EQ(0, std::memcmp(found.logits.data(), expected.logits.data(),
                           found.logits.size() * sizeof(float)))
      << what << ": logits";
  EXPECT_TRUE(found.state == expected.state) << what << ": state";
}

struct RunOptions {
  StateType state_type = StateType::kF32;
  const KernelTable* kernels = &ScalarKernels();
  int threads = 1;
  TestStateOptions state = {};
  bool fork = false;                // every step writes another image than it reads
  std::vector<uint32_t> cuts = {};  // lengths of steps, repeated; empty: one step
};

Outcome RunAlone(const Model& model, const std::vector<TokenId>& tokens,
                 const RunOptions& options) {
  ThreadPool threads(options.threads);
  Forward forward(model, options.state_type, *options.kernels, threads, kLimits);
  SequenceRunner sequence(model.shape(), static_cast<uint32_t>(tokens.size()), options.state,
                          options.state_type);
  Outcome outcome;
  size_t step = 0;
  for (size_t done = 0; done < tokens.size(); ++step) {
    const size_t wish =
        options.cuts.empty() ? kLimits.rows : options.cuts[step % options.cuts.size()];
    const size_t count = std::min(wish, tokens.size() - done);
    if (options.fork) sequence.state().Fork();
    const uint32_t rows =
        sequence.Run(&forward, std::span(tokens).subspan(done, count), WantedRows::kAll);
    EXPECT_EQ(rows, count);
    AppendLogits(&forward, model.shape(), 0, rows, &outcome.logits);
    done += count;
  }
  EXPECT_TRUE(sequence.state().OutsideIsUntouched(sequence.position()));
  outcome.state = sequence.StateBytes();
  return outcome;
}

struct Toy {
  std::string name;
  RandomModelOptions options;
  StateType state_type = StateType::kF32;
};

std::vector<Toy> Toys() {
  std::vector<Toy> toys = {
      {"falcon-h1 f32", ToyOptions(Architecture::kFalconH1, GgufTensorType::kF32)},
      {"falcon-h1 f16", ToyOptions(Architecture::kFalconH1, GgufTensorType::kF16)},
      {"falcon-h1 bf16", ToyOptions(Architecture::kFalconH1, GgufTensorType::kBF16)},
      {"falcon-h1 q8_0", ToyOptions(Architecture::kFalconH1, GgufTensorType::kQ8_0)},
      {"falcon-h1 q4_0", ToyOptions(Architecture::kFalconH1, GgufTensorType::kQ4_0)},
      {"falcon-h1 q4_k and q6_k", ToyOptions(Architecture::kFalconH1, GgufTensorType::kQ4_K)},
      {"mamba2 bf16", ToyOptions(Architecture::kMamba2, GgufTensorType::kBF16)},
      {"llama bf16", ToyOptions(Architecture::kLlama, GgufTensorType::kBF16)},
      {"falcon-h1 f32, bf16 state", ToyOptions(Architecture::kFalconH1, GgufTensorType::kF32),
       StateType::kBF16},
      {"mamba2 bf16, bf16 state", ToyOptions(Architecture::kMamba2, GgufTensorType::kBF16),
       StateType::kBF16},
  };
  toys[1].options.ssm_norm = true;
  toys[5].options.larger_where_it_matters = true;
  toys.back().options.shape.ssm_state = 64;  // rows of whole lines: kept in registers by the scan
  return toys;
}

TEST(Forward, CutsDoNotShow) {
  ThreadPool threads(1);
  const std::vector<TokenId> tokens = Prompt(290, 7);  // past one split of 256
  for (const Toy& toy : Toys()) {
    const ToyModel model = ToyModel::Make(toy.options, threads);
    const Outcome reference = RunAlone(*model.model, tokens, {.state_type = toy.state_type});
    ASSERT_TRUE(std::all_of(reference.logits.begin(), reference.logits.end(),
                            [](float x) { return std::isfinite(x); }));
    for (const KernelTable* kernels : AvailableKernels()) {
      for (const std::vector<uint32_t>& cuts : std::vector<std::vector<uint32_t>>{
               {}, {1}, {2}, {7}, {15}, {16}, {17}, {33, 1, 8, 60, 3}}) {
        RunOptions options;
        options.state_type = toy.state_type;
        options.kernels = kernels;
        options.cuts = cuts;
        ExpectSameBits(RunAlone(*model.model, tokens, options), reference,
                       toy.name + " " + kernels->isa + " cut " +
                           (cuts.empty() ? "none" : std::to_string(cuts[0])));
      }
    }
  }
}

TEST(Forward, ThreadsAndLayoutsDoNotShow) {
  ThreadPool one(1);
  const std::vector<TokenId> tokens = Prompt(100, 8);
  for (const Toy& toy : Toys()) {
    const ToyModel model = ToyModel::Make(toy.options, one);
    const Outcome reference = RunAlone(*model.model, tokens, {.state_type = toy.state_type});
    for (const KernelTable* kernels : AvailableKernels()) {
      for (int threads : {1, 2, 3}) {
        for (uint32_t rows_per_member : {1u, 3u, 7u}) {
          RunOptions options;
          options.state_type = toy.state_type;
          options.kernels = kernels;
          options.threads = threads;
          options.cuts = {31, 1, 16};
          options.state = {true, rows_per_member, 40 + rows_per_member};
          options.fork = rows_per_member == 3;
          ExpectSameBits(RunAlone(*model.model, tokens, options), reference,
                         toy.name + " " + kernels->isa + " threads " + std::to_string(threads) +
                             " rows " + std::to_string(rows_per_member));
        }
      }
    }
  }
}

// Long enough that a decode's splits are spread over threads in waves.
TEST(Forward, SplitsInWavesDoNotShow) {
  ThreadPool one(1);
  const ToyModel model =
      ToyModel::Make(ToyOptions(Architecture::kLlama, GgufTensorType::kBF16), one);
  const std::vector<TokenId> tokens = Prompt(1900, 9);
  RunOptions options;
  options.cuts = {512, 512, 512, 300, 1};
  const Outcome reference = RunAlone(*model.model, tokens, options);
  for (const KernelTable* kernels : AvailableKernels()) {
    for (int threads : {1, 2, 3, 4}) {
      options.kernels = kernels;
      options.threads = threads;
      // 5 and 20 rows: waves with several rows, and with blocks that end in different splits.
      options.cuts = threads == 3 ? std::vector<uint32_t>{512, 505, 5, 1, 20, 1}
                                  : std::vector<uint32_t>{512, 512, 512, 300, 1};
      ExpectSameBits(RunAlone(*model.model, tokens, options), reference,
                     std::string(kernels->isa) + " threads " + std::to_string(threads));
    }
  }
}

// Sequences of different prompts and cuts together in one step after another.
std::vector<Outcome> RunTogether(const Model& model,
                                 const std::vector<std::vector<TokenId>>& prompts,
                                 const RunOptions& options, uint64_t seed) {
  ThreadPool threads(options.threads);
  Forward forward(model, options.state_type, *options.kernels, threads, kLimits);
  Random random(seed);
  std::vector<std::unique_ptr<SequenceRunner>> sequences;
  for (const auto& prompt : prompts) {
    sequences.push_back(
        std::make_unique<SequenceRunner>(model.shape(), static_cast<uint32_t>(prompt.size()),
                                         TestStateOptions{true, 3, seed}, options.state_type));
  }
  std::vector<Outcome> outcomes(prompts.size());
  while (true) {
    std::vector<SequenceStep> steps;
    std::vector<size_t> members;
    for (size_t i = 0; i < prompts.size(); ++i) {
      const size_t left = prompts[i].size() - sequences[i]->position();
      if (left == 0 || random.Below(4) == 0) continue;
      const size_t count = std::min<size_t>(left, random.Below(3) == 0 ? random.Below(40) + 1 : 1);
      steps.push_back(sequences[i]->Next(
          std::span(prompts[i]).subspan(sequences[i]->position(), count), WantedRows::kAll));
      members.push_back(i);
    }
    if (steps.empty()) {
      const bool done = std::all_of(prompts.begin(), prompts.end(),
                                    [&, i = size_t{0}](const auto& prompt) mutable {
                                      return sequences[i++]->position() == prompt.size();
                                    });
      if (done) break;
      continue;
    }
    forward.Run(steps);
    uint32_t first = 0;
    for (size_t s = 0; s < steps.size(); ++s) {
      const auto rows = static_cast<uint32_t>(steps[s].tokens.size());
      AppendLogits(&forward, model.shape(), first, rows, &outcomes[members[s]].logits);
      first += rows;
      sequences[members[s]]->Done();
    }
  }
  for (size_t i = 0; i < prompts.size(); ++i) outcomes[i].state = sequences[i]->StateBytes();
  return outcomes;
}

TEST(Forward, CompanyDoesNotShow) {
  ThreadPool one(1);
  const std::vector<std::vector<TokenId>> prompts = {Prompt(60, 1), Prompt(35, 2), Prompt(90, 3),
                                                     Prompt(1, 4), Prompt(48, 5)};
  for (const Toy& toy : Toys()) {
    const ToyModel model = ToyModel::Make(toy.options, one);
    std::vector<Outcome> references;
    RunOptions options;
    options.state_type = toy.state_type;
    for (const auto& prompt : prompts) {
      references.push_back(RunAlone(*model.model, prompt, options));
    }
    for (const KernelTable* kernels : AvailableKernels()) {
      for (uint64_t seed : {1, 2, 3}) {
        options.kernels = kernels;
        options.threads = static_cast<int>(seed);
        const auto outcomes = RunTogether(*model.model, prompts, options, seed);
        for (size_t i = 0; i < prompts.size(); ++i) {
          ExpectSameBits(outcomes[i], references[i],
                         toy.name + " " + kernels->isa + " seed " + std::to_string(seed));
        }
      }
    }
  }
}

// The type is part of what is computed: the first token, whose state nobody has read yet, has the
// same logits, later ones have others, and the SSM part of the state is half as long.
TEST(Forward, StateTypeShowsFromTheSecondTokenOn) {
  ThreadPool threads(1);
  const ToyModel model = ToyModel::Make(ToyOptions(Architecture::kMamba2), threads);
  const std::vector<TokenId> tokens = Prompt(40, 1);
  const Outcome fp32 = RunAlone(*model.model, tokens, {});
  const Outcome bf16 = RunAlone(*model.model, tokens, {.state_type = StateType::kBF16});
  const size_t vocab = model.model->shape().vocab_size;
  EXPECT_EQ(0, std::memcmp(fp32.logits.data(), bf16.logits.data(), vocab * sizeof(float)));
  EXPECT_NE(0, std::memcmp(fp32.logits.data() + vocab, bf16.logits.data() + vocab,
                           39 * vocab * sizeof(float)));
  const StateShape wide = model.model->shape().state_shape(StateType::kF32);
  EXPECT_EQ(fp32.state.size() - bf16.state.size(), wide.ssm_bytes() / 2);
}

TEST(Forward, LastRowIsTheLastOfAllRows) {
  ThreadPool threads(2);
  const ToyModel model = ToyModel::Make(ToyOptions(Architecture::kFalconH1), threads);
  Forward forward(*model.model, StateType::kF32, ScalarKernels(), threads, kLimits);
  const std::vector<TokenId> a = Prompt(20, 1);
  const std::vector<TokenId> b = Prompt(5, 2);
  const std::vector<TokenId> c = Prompt(9, 3);
  SequenceRunner first(model.model->shape(), 64);
  SequenceRunner second(model.model->shape(), 64);
  SequenceRunner third(model.model->shape(), 64);
  const SequenceStep steps[] = {first.Next(a, WantedRows::kLast), second.Next(b, WantedRows::kNone),
                                third.Next(c, WantedRows::kAll)};
  ASSERT_EQ(forward.Run(steps), 1u + 0 + 9);
  const uint32_t d = model.model->shape().width;
  const std::vector<float> rows(forward.norm_rows(), forward.norm_rows() + 10 * d);
  SequenceRunner alone(model.model->shape(), 64);
  ASSERT_EQ(alone.Run(&forward, a, WantedRows::kAll), 20u);
  EXPECT_EQ(0, std::memcmp(rows.data(), forward.norm_rows() + 19 * d, d * sizeof(float)));
  SequenceRunner other(model.model->shape(), 64);
  ASSERT_EQ(other.Run(&forward, c, WantedRows::kAll), 9u);
  EXPECT_EQ(0, std::memcmp(rows.data() + d, forward.norm_rows(), 9 * d * sizeof(float)));
}

TEST(Forward, ForkLeavesTheSourceAsItWas) {
  ThreadPool threads(2);
  const ToyModel model = ToyModel::Make(ToyOptions(Architecture::kFalconH1), threads);
  Forward forward(*model.model, StateType::kF32, ScalarKernels(), threads, kLimits);
  const std::vector<TokenId> tokens = Prompt(40, 1);
  SequenceRunner sequence(model.model->shape(), 64, {true, 3, 5});
  sequence.Run(&forward, std::span(tokens).subspan(0, 20), WantedRows::kNone);
  sequence.state().Fork();
  sequence.Run(&forward, std::span(tokens).subspan(20, 1), WantedRows::kNone);
  const std::vector<std::byte> at_20 = sequence.state().OtherImage();
  for (uint32_t i = 21; i < 40; ++i) {
    sequence.Run(&forward, std::span(tokens).subspan(i, 1), WantedRows::kNone);
  }
  EXPECT_TRUE(sequence.state().OtherImage() == at_20);
  SequenceRunner twin(model.model->shape(), 64);
  twin.Run(&forward, std::span(tokens).subspan(0, 20), WantedRows::kNone);
  twin.state().Fork();
  twin.Run(&forward, std::span(tokens).subspan(20, 1), WantedRows::kNone);
  EXPECT_TRUE(twin.state().OtherImage() == at_20);
}

TEST(Forward, ActivationBytesAreWhatItHolds) {
  for (int thread_count : {1, 3}) {
    ThreadPool threads(thread_count);
    for (const Toy& toy : Toys()) {
      const ToyModel model = ToyModel::Make(toy.options, threads);
      const Forward forward(*model.model, toy.state_type, ScalarKernels(), threads, kLimits);
      EXPECT_EQ(forward.activation_bytes(),
                Forward::ActivationBytes(model.model->shape(), kLimits, thread_count))
          << toy.name;
    }
  }
}

TEST(Forward, StepsAllocateNothing) {
  ThreadPool threads(2);
  const std::vector<TokenId> tokens = Prompt(1100, 3);
  for (const Toy& toy : Toys()) {
    const ToyModel model = ToyModel::Make(toy.options, threads);
    Forward forward(*model.model, toy.state_type, *AvailableKernels().back(), threads, kLimits);
    SequenceRunner sequence(model.model->shape(), 1100, {}, toy.state_type);
    const uint64_t before = AllocationCount();
    for (size_t done = 0; done < 1020; done += 340) {
      sequence.Run(&forward, std::span(tokens).subspan(done, 340), WantedRows::kAll);
      forward.Head(forward.norm_rows(), 16);
    }
    for (size_t i = 1020; i < 1040; ++i) {
      sequence.Run(&forward, std::span(tokens).subspan(i, 1), WantedRows::kLast);
      forward.Head(forward.norm_rows(), 1);
    }
    EXPECT_EQ(AllocationCount() - before, 0u) << toy.name;
  }
}

// Damaged weights are arithmetic, not a crash: whoever samples must cope with such logits. A block
// of int8 with a NaN has an infinite scale, so its products may be infinite instead.
TEST(Forward, NanWeightsGiveNoFiniteLogitForAnyInputForm) {
  ThreadPool threads(1);
  for (const GgufTensorType type :
       {GgufTensorType::kF32, GgufTensorType::kBF16, GgufTensorType::kQ8_0, GgufTensorType::kQ4_0,
        GgufTensorType::kQ4_K}) {
    RandomModel random = RandomModel::Make(ToyOptions(Architecture::kFalconH1, type)).value();
    RandomModel::Tensor* tensor = FindTensor(&random, "blk.0.attn_norm.weight");
    tensor->low = tensor->high = std::nanf("");
    const ToyModel model = ToyModel::Make(random, threads);
    for (const KernelTable* kernels : AvailableKernels()) {
      RunOptions options;
      options.kernels = kernels;
      const Outcome outcome = RunAlone(*model.model, Prompt(20, 1), options);
      for (float logit : outcome.logits) {
        ASSERT_FALSE(std::isfinite(logit)) << TensorTypeName(type) << " " << kernels->isa;
        if (FindTensorTraits(static_cast<uint32_t>(type))->block_elements > 1) continue;
        ASSERT_TRUE(std::isnan(logit)) << TensorTypeName(type) << " " << kernels->isa;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::testing
