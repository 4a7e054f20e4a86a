// SPDX-License-Identifier: Apache-2.0
#include "compute/model/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "testing/toy_model.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;
using Edit = std::function<void(RandomModel*)>;

Result<ModelShape> ReadEdited(Architecture architecture, const Edit& edit) {
  auto random = RandomModel::Make(ToyOptions(architecture)).value();
  edit(&random);
  return ReadModelShape(WriteAndOpen(random));
}

Edit Set(const std::string& key, RandomModel::Value value) {
  return [=](RandomModel* model) { SetKey(model, key, value); };
}

void ExpectRefusal(Architecture architecture, const Edit& edit,
                   const std::vector<std::string>& parts) {
  auto shape = ReadEdited(architecture, edit);
  ASSERT_FALSE(shape) << parts[0];
  EXPECT_EQ(shape.error().code(), StatusCode::kBadFile);
  for (const std::string& part : parts) EXPECT_THAT(shape.error().message(), HasSubstr(part));
  EXPECT_EQ(shape.error().message().find('\n'), std::string::npos);
}

TEST(ModelShape, ReadsWhatTheFileSays) {
  for (Architecture architecture :
       {Architecture::kFalconH1, Architecture::kMamba2, Architecture::kLlama}) {
    const ModelShape expected = ToyShape(architecture);
    auto shape = ReadEdited(architecture, [](RandomModel*) {});
    ASSERT_TRUE(shape) << shape.error().message();
    EXPECT_EQ(shape->architecture, architecture);
    EXPECT_EQ(shape->name, "toy");
    EXPECT_EQ(shape->layers, expected.layers);
    EXPECT_EQ(shape->width, expected.width);
    EXPECT_EQ(shape->vocab_size, expected.vocab_size);
    EXPECT_EQ(shape->context_length, expected.context_length);
    EXPECT_EQ(shape->rms_eps, expected.rms_eps);
    EXPECT_EQ(shape->heads, expected.heads);
    EXPECT_EQ(shape->kv_heads, expected.kv_heads);
    EXPECT_EQ(shape->head_dim, expected.head_dim);
    EXPECT_EQ(shape->n_rot, expected.n_rot);
    EXPECT_EQ(shape->rope_neox, architecture == Architecture::kFalconH1);
    EXPECT_EQ(shape->ssm_inner, expected.ssm_inner);
    EXPECT_EQ(shape->ssm_heads, expected.ssm_heads);
    EXPECT_EQ(shape->ssm_state, expected.ssm_state);
    EXPECT_EQ(shape->ssm_groups, expected.ssm_groups);
    EXPECT_EQ(shape->conv_kernel, expected.conv_kernel);
    EXPECT_EQ(shape->feed_forward, expected.feed_forward);
    if (shape->has_attention()) {
      EXPECT_EQ(shape->attention_scale, 0.25f);
      EXPECT_EQ(shape->rope_base, 10000.0);
    }
  }
}

TEST(ModelShape, StateShapeHasEachPartThatTheArchitectureHas) {
  const StateShape hybrid = ToyShape(Architecture::kFalconH1).state_shape(StateType::kF32);
  EXPECT_EQ(hybrid.attention_layers, 2u);
  EXPECT_EQ(hybrid.recurrent_layers, 2u);
  EXPECT_EQ(hybrid.conv_channels, 96u + 2 * 2 * 24);
  EXPECT_EQ(hybrid.conv_taps, 3u);
  EXPECT_EQ(hybrid.ssm_head_dim, 16u);
  const StateShape recurrent = ToyShape(Architecture::kMamba2).state_shape(StateType::kBF16);
  EXPECT_EQ(recurrent.attention_layers, 0u);
  EXPECT_EQ(recurrent.state_type, StateType::kBF16);
  EXPECT_EQ(ToyShape(Architecture::kLlama).state_shape(StateType::kF32).recurrent_layers, 0u);
}

TEST(ModelShape, DefaultsAreThoseOfTheReference) {
  auto shape = ReadEdited(Architecture::kFalconH1, [](RandomModel* model) {
    RemoveKey(model, "falcon-h1.rope.freq_base");
    RemoveKey(model, "falcon-h1.rope.dimension_count");
    RemoveKey(model, "falcon-h1.attention.value_length");
    RemoveKey(model, "falcon-h1.attention.head_count_kv");
    RemoveKey(model, "general.name");
  });
  ASSERT_TRUE(shape) << shape.error().message();
  EXPECT_EQ(shape->rope_base, 10000.0);
  EXPECT_EQ(shape->n_rot, 16u);
  EXPECT_EQ(shape->kv_heads, 4u);
  EXPECT_THAT(shape->name, HasSubstr("tessera-"));  // the file's stem
  auto llama = ReadEdited(Architecture::kLlama, [](RandomModel* model) {
    RemoveKey(model, "llama.attention.key_length");
  });
  ASSERT_TRUE(llama) << llama.error().message();
  EXPECT_EQ(llama->head_dim, 16u);  // 64 / 4
  auto scaled = ReadEdited(Architecture::kLlama, Set("llama.attention.scale", 0.5f));
  ASSERT_TRUE(scaled) << scaled.error().message();
  EXPECT_EQ(scaled->attention_scale, 0.5f);
}

TEST(ModelShape, AttentionScaleIgnoresTheCallersRoundingMode) {
  auto random = RandomModel::Make(ToyOptions(Architecture::kLlama)).value();
  // 1/sqrt(24): each directed rounding gives another result than nearest.
  SetKey(&random, "llama.attention.key_length", 24u);
  SetKey(&random, "llama.attention.value_length", 24u);
  SetKey(&random, "llama.rope.dimension_count", 24u);
  const GgufFile file = WriteAndOpen(random);
  const float want = ReadModelShape(file).value().attention_scale;
  const uint32_t saved = _mm_getcsr();
  for (const uint32_t rounding : {0x2000u, 0x4000u, 0x6000u}) {  // down, up, toward zero
    _mm_setcsr((saved & ~0x6000u) | rounding);
    const auto shape = ReadModelShape(file);
    _mm_setcsr(saved);
    EXPECT_EQ(shape.value().attention_scale, want) << rounding;
  }
}

TEST(ModelShape, UnknownArchitectureIsNamedWithTheKnownOnes) {
  ExpectRefusal(Architecture::kLlama, Set("general.architecture", std::string("gpt2")),
                {"general.architecture", "falcon-h1, mamba2, llama", "'gpt2'"});
}

TEST(ModelShape, UnfoldedFalconKeysAreRefusedByName) {
  for (const char* key :
       {"falcon-h1.mlp_gate_multiplier", "falcon-h1.ssm.has_mup", "falcon-h1.mamba_rms_norm",
        "falcon-h1.rope_theta", "falcon_h1.attention_in_multiplier"}) {
    ExpectRefusal(Architecture::kFalconH1, Set(key, 1.0f), {key, "multipliers", "convert"});
  }
  // No affair of other architectures.
  EXPECT_TRUE(ReadEdited(Architecture::kLlama, Set("falcon-h1.rope_theta", 1.0f)));
}

TEST(ModelShape, WhatTheForwardPassDoesNotComputeIsRefused) {
  const auto llama = Architecture::kLlama;
  ExpectRefusal(llama, Set("llama.expert_count", uint32_t{8}), {"llama.expert_count", "found 8"});
  ExpectRefusal(llama, Set("llama.rope.scaling.type", std::string("yarn")),
                {"llama.rope.scaling.type", "'yarn'"});
  ExpectRefusal(llama, Set("llama.rope.scaling.factor", 4.0f),
                {"llama.rope.scaling.factor", "found 4"});
  ExpectRefusal(llama, Set("llama.rope.dimension_count", uint32_t{8}),
                {"llama.rope.dimension_count", "16", "found 8"});
  EXPECT_TRUE(ReadEdited(llama, [](RandomModel* model) {
    SetKey(model, "llama.rope.scaling.type", std::string("none"));
    SetKey(model, "llama.rope.scaling.factor", 4.0f);
  }));
}

TEST(ModelShape, InconsistentDimensionsAreRefused) {
  const auto falcon = Architecture::kFalconH1;
  const std::string p = "falcon-h1.";
  struct Case {
    std::string key;
    RandomModel::Value value;
    std::string part;
  };
  const std::vector<Case> cases = {
      {"block_count", uint32_t{0}, "found 0"},
      {"block_count", uint32_t{100000}, "found 100000"},
      {"context_length", uint32_t{0}, "found 0"},
      {"embedding_length", uint32_t{0xFFFFFFFF}, "found 4294967295"},
      {"attention.head_count", uint32_t{0}, "found 0"},
      {"attention.head_count_kv", uint32_t{3}, "divisor of falcon-h1.attention.head_count = 4"},
      {"attention.head_count_kv", uint32_t{0}, "found 0"},
      {"attention.key_length", uint32_t{15}, "even"},
      {"attention.key_length", uint32_t{1u << 20}, "found 1048576"},
      {"attention.value_length", uint32_t{8}, "found 8"},
      {"rope.dimension_count", uint32_t{18}, "found 18"},
      {"rope.dimension_count", uint32_t{7}, "even"},
      {"rope.freq_base", 0.0f, "found 0"},
      {"rope.freq_base", 1e35f, "1 to 1e+30"},
      {"attention.layer_norm_rms_epsilon", 0.0f, "found 0"},
      {"attention.layer_norm_rms_epsilon", -1.0f, "found -1"},
      {"attention.layer_norm_rms_epsilon", std::nanf(""), "finite"},
      {"attention.scale", -1.0f, "found -1"},
      {"ssm.conv_kernel", uint32_t{1}, "found 1"},
      {"ssm.conv_kernel", uint32_t{17}, "found 17"},
      {"ssm.inner_size", uint32_t{0}, "found 0"},
      {"ssm.time_step_rank", uint32_t{5}, "divisor of falcon-h1.ssm.inner_size = 96"},
      {"ssm.time_step_rank", uint32_t{0}, "found 0"},
      {"ssm.group_count", uint32_t{4}, "divisor of falcon-h1.ssm.time_step_rank = 6"},
      {"ssm.group_count", uint32_t{0}, "found 0"},
      {"ssm.state_size", uint32_t{0}, "found 0"},
      {"ssm.state_size", uint32_t{1u << 20}, "found 1048576"},
      {"feed_forward_length", uint32_t{0}, "found 0"},
      {"block_count", std::string("two"), "expected u32"},
  };
  for (const Case& c : cases) {
    ExpectRefusal(falcon, Set(p + c.key, c.value), {p + c.key, c.part});
  }
  for (const char* key : {"block_count", "attention.key_length", "ssm.group_count",
                          "attention.layer_norm_rms_epsilon", "feed_forward_length"}) {
    ExpectRefusal(falcon, [&](RandomModel* model) { RemoveKey(model, p + key); }, {p + key});
  }
}

TEST(ModelShape, VocabularyComesFromTheEmbeddingRows) {
  ExpectRefusal(Architecture::kLlama,
                [](RandomModel* model) { RemoveTensor(model, "token_embd.weight"); },
                {"missing tensor 'token_embd.weight'"});
  // A tokenizer with more tokens than rows could name one that is not there.
  ExpectRefusal(Architecture::kLlama,
                [](RandomModel* model) { FindTensor(model, "token_embd.weight")->ne[1] = 299; },
                {"tokenizer.ggml.tokens", "at most 299", "found 300"});
  auto padded = ReadEdited(Architecture::kLlama, [](RandomModel* model) {
    FindTensor(model, "token_embd.weight")->ne[1] = 304;
  });
  ASSERT_TRUE(padded) << padded.error().message();
  EXPECT_EQ(padded->vocab_size, 304u);
}

}  // namespace
}  // namespace tessera::testing
