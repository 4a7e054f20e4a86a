// SPDX-License-Identifier: Apache-2.0
#include "memory/geometry/state_shape.h"

#include <gtest/gtest.h>

#include "memory/geometry/model_shapes.h"
#include "memory/geometry/paged_bytes.h"
#include "memory/geometry/state_view.h"

namespace tessera {
namespace {

using testing::FalconH1_7B;

TEST(StateShape, FalconH1_7BImageIs1594368BytesWithBf16State) {
  const StateShape s = FalconH1_7B(StateType::kBF16);
  EXPECT_EQ(s.kv_bytes_per_token_layer(), kKiB);
  EXPECT_EQ(s.group_bytes(), 16 * kKiB);
  EXPECT_EQ(s.ssm_image_bytes(), 1536 * kKiB);
  EXPECT_EQ(s.conv_image_bytes(), 21 * kKiB);
  EXPECT_EQ(s.image_bytes(), 1'594'368u);
}

TEST(StateShape, FalconH1_7BImageIs3167232BytesWithFp32State) {
  const StateShape s = FalconH1_7B(StateType::kF32);
  EXPECT_EQ(s.ssm_image_bytes(), 3'145'728u);
  EXPECT_EQ(s.conv_image_bytes(), 21'504u);
  EXPECT_EQ(s.image_bytes(), 3'167'232u);
}

TEST(StateShape, PlanesAreTheGcdOfTheLayerCounts) {
  EXPECT_EQ(FalconH1_7B(StateType::kBF16).planes(), 44u);
  EXPECT_EQ(testing::Granite4HTiny(StateType::kBF16).planes(), 4u);
  EXPECT_EQ(testing::Qwen3Next80B(StateType::kBF16).planes(), 12u);
  EXPECT_EQ(testing::Lfm2_12B().planes(), 2u);
  EXPECT_EQ(testing::KimiLinear48B(StateType::kBF16).planes(), 1u);
  EXPECT_EQ(testing::Mamba2_130M(StateType::kBF16).planes(), 24u);
  EXPECT_EQ(testing::Llama32_1B().planes(), 16u);
  EXPECT_EQ(testing::Zamba2_27B(StateType::kBF16).recurrent_layers_per_plane(), 6u);
}

TEST(StateShape, HarbourHasFourKiBGroupsAndPaddingFreeRows) {
  const StateShape s = testing::Harbour(StateType::kF32);
  EXPECT_TRUE(s.Validate().ok());
  EXPECT_EQ(s.planes(), 5u);
  EXPECT_EQ(s.group_bytes(), 4096u);
  EXPECT_EQ(s.ssm_row_bytes(), 128u);
  EXPECT_EQ(s.conv_row_bytes(), 640u);
  EXPECT_EQ(s.image_bytes(), 8u * 32 * 128 + 3 * 640);
}

TEST(StateShape, OddRowsAreRoundedUpToWhatTheVectorsRead) {
  StateShape s = testing::Harbour(StateType::kBF16);
  s.ssm_state = 5;       // 10 B of state in a row of 64
  s.conv_channels = 33;  // 66 B of inputs in a row of 96
  EXPECT_EQ(s.ssm_row_bytes(), 64u);
  EXPECT_EQ(s.conv_row_bytes(), 96u);
}

TEST(StateShape, ValidateNamesWhatIsWrongInASentence) {
  struct Case {
    const char* expected;
    void (*damage)(StateShape*);
  };
  for (const Case& c : {
           Case{"no state", [](StateShape* s) { s->attention_layers = s->recurrent_layers = 0; }},
           Case{"head_dim must be even; it is 33", [](StateShape* s) { s->head_dim = 33; }},
           Case{"kv_heads and head_dim", [](StateShape* s) { s->kv_heads = 0; }},
           Case{"ssm heads, head_dim and state", [](StateShape* s) { s->ssm_state = 0; }},
           Case{"channels above 0", [](StateShape* s) { s->conv_channels = 0; }},
           Case{"neither SSM nor conv",
                [](StateShape* s) {
                  s->ssm_heads = s->ssm_head_dim = s->ssm_state = s->conv_taps = 0;
                }},
           Case{"attention state of 16 tokens",
                [](StateShape* s) { s->kv_heads = s->head_dim = 0xFFFFFFFE; }},
           Case{"recurrent state of one sequence",
                [](StateShape* s) { s->ssm_heads = s->ssm_head_dim = s->ssm_state = 1u << 30; }},
       }) {
    StateShape s = testing::Harbour(StateType::kF32);
    ASSERT_TRUE(s.Validate().ok());
    c.damage(&s);
    const Status status = s.Validate();
    EXPECT_EQ(status.code(), StatusCode::kBadFile) << c.expected;
    EXPECT_NE(status.message().find(c.expected), std::string::npos) << status.message();
  }
}

TEST(StateShape, ModelsWithOneKindOfLayerAreValid) {
  EXPECT_TRUE(testing::Mamba2_130M(StateType::kF32).Validate().ok());
  EXPECT_TRUE(testing::Llama32_1B().Validate().ok());
  EXPECT_TRUE(testing::Lfm2_12B().Validate().ok());
}

TEST(PagedBytes, ByteXLiesInItsMemberAndANullBaseIsZero) {
  std::byte memory[64] = {};
  const uint64_t offsets[] = {48, 0};
  const PagedBytes bytes{memory, offsets, 16};
  EXPECT_EQ(bytes.At(3), memory + 51);
  EXPECT_EQ(bytes.At(17), memory + 1);
  EXPECT_EQ(bytes.ContiguousFrom(17), 15u);
  EXPECT_FALSE(bytes.is_zero());
  EXPECT_TRUE(PagedBytes{}.is_zero());
}

TEST(StateView, ANullSourceTableReadsAsZerosWhateverTheBase) {
  std::byte memory[64] = {};
  const uint64_t offsets[] = {0};
  StateView view;
  view.state_base = memory;
  view.state_plane_stride = 32;
  view.destination_offsets = offsets;
  view.unit_bytes = 32;
  EXPECT_TRUE(view.Source(1).is_zero());
  EXPECT_EQ(view.Destination(1).At(5), memory + 37);
}

}  // namespace
}  // namespace tessera
