// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "base/random.h"
#include "bench/serve/workload_kinds.h"

namespace tessera {
namespace {

// Streams of one seed, apart from each other and from those of other seeds.
enum Stream : uint64_t { kPrefix = 1, kLengths, kPrompts, kContexts, kQuestions, kChoices };

uint64_t KeyOf(uint64_t seed, Stream stream, uint64_t index = 0) {
  return CounterRandom(CounterRandom(seed, stream), index);
}

class RandomPrompts : public Workload {
 public:
  explicit RandomPrompts(const RandomWorkload& shape) : shape_(shape) {}

  std::vector<LoadPrompt> Prompts(uint64_t seed, uint32_t vocabulary) const override {
    Random lengths(KeyOf(seed, kLengths));
    std::vector<LoadPrompt> prompts(shape_.prompts);
    for (size_t i = 0; i < prompts.size(); ++i) {
      LoadPrompt& prompt = prompts[i];
      AppendTokens(KeyOf(seed, kPrefix), shape_.prefix_tokens, vocabulary, &prompt.tokens);
      AppendTokens(KeyOf(seed, kPrompts, i), Length(shape_.input_tokens, &lengths), vocabulary,
                   &prompt.tokens);
      prompt.output_tokens = Length(shape_.output_tokens, &lengths);
    }
    return prompts;
  }

  std::string Describe() const override {
    std::string text = fmt::format("random: {} prompts of {} tokens, answers of {}", shape_.prompts,
                                   shape_.input_tokens, shape_.output_tokens);
    if (shape_.prefix_tokens > 0) text += fmt::format(", prefix {}", shape_.prefix_tokens);
    if (shape_.range_ratio > 0) text += fmt::format(", lengths ± {:g}", shape_.range_ratio);
    return text;
  }

 private:
  uint32_t Length(uint32_t mean, Random* random) const {
    const auto low = static_cast<uint32_t>(std::floor(mean * (1 - shape_.range_ratio)));
    const auto high = static_cast<uint32_t>(std::ceil(mean * (1 + shape_.range_ratio)));
    const auto drawn = low + static_cast<uint32_t>(random->Below(uint64_t{high} - low + 1));
    return std::max(drawn, 1u);
  }

  const RandomWorkload shape_;
};

class SharedContexts : public Workload {
 public:
  explicit SharedContexts(const SharedContextWorkload& shape) : shape_(shape) {}

  std::vector<LoadPrompt> Prompts(uint64_t seed, uint32_t vocabulary) const override {
    Random choices(KeyOf(seed, kChoices));
    std::vector<LoadPrompt> prompts(shape_.questions);
    for (size_t i = 0; i < prompts.size(); ++i) {
      LoadPrompt& prompt = prompts[i];
      AppendTokens(KeyOf(seed, kContexts, choices.Below(shape_.contexts)), shape_.context_tokens,
                   vocabulary, &prompt.tokens);
      AppendTokens(KeyOf(seed, kQuestions, i), shape_.question_tokens, vocabulary, &prompt.tokens);
      prompt.output_tokens = shape_.output_tokens;
    }
    return prompts;
  }

  std::string Describe() const override {
    return fmt::format(
        "shared-context: {} questions of {} tokens about {} contexts of {}, answers of {}",
        shape_.questions, shape_.question_tokens, shape_.contexts, shape_.context_tokens,
        shape_.output_tokens);
  }

 private:
  const SharedContextWorkload shape_;
};

}  // namespace

std::unique_ptr<Workload> MakeRandomWorkload(const RandomWorkload& shape) {
  return std::make_unique<RandomPrompts>(shape);
}

std::unique_ptr<Workload> MakeSharedContextWorkload(const SharedContextWorkload& shape) {
  return std::make_unique<SharedContexts>(shape);
}

}  // namespace tessera
