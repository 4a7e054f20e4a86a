// SPDX-License-Identifier: Apache-2.0
#include "engine/state_budget.h"

#include <gtest/gtest.h>

#include "memory/store/state_store.h"

namespace tessera {
namespace {

// Falcon-H1-7B: KV 44 KiB a token, fp32 image 3,167,232 B in each of 44 planes.
StateShape FalconH1Shape() {
  StateShape shape;
  shape.attention_layers = shape.recurrent_layers = 44;
  shape.kv_heads = 2;
  shape.head_dim = 128;
  shape.ssm_heads = 24;
  shape.ssm_head_dim = 128;
  shape.ssm_state = 256;
  shape.conv_channels = 3584;
  shape.conv_taps = 3;
  return shape;
}

BudgetRequest FalconH1Request() {
  BudgetRequest request;
  request.shape = FalconH1Shape();
  request.available_bytes = 100 * kGiB;
  request.fixed_bytes = 16 * kGiB;
  request.max_running = 16;
  request.context_length = 8192;
  return request;
}

TEST(StateBudget, DefaultIsAllSequencesAtFullContextWhenThatIsLess) {
  const Result<Budget> budget = ChooseBudget(FalconH1Request());
  ASSERT_TRUE(budget);
  // 16 · (8192 · 44 KiB + 44 · 3,167,232 B rounded up to 16 KiB pages: 194 each).
  EXPECT_EQ(budget->bytes, 16 * (8192 * 44 * kKiB + 44 * 194 * 16 * kKiB));
}

TEST(StateBudget, DefaultIsHalfOfWhatIsLeftWhenThatIsLess) {
  BudgetRequest request = FalconH1Request();
  request.available_bytes = 20 * kGiB;
  const Result<Budget> budget = ChooseBudget(request);
  ASSERT_TRUE(budget);
  EXPECT_EQ(budget->bytes, 2 * kGiB);
}

TEST(StateBudget, TooSmallIsRefusedWithTheLeastThatWorks) {
  for (const char* name : {"s0", "s1", "s2", "s3", "d0", "d0:split=0.9"}) {
    for (const KeptRows& rows : {KeptRows(), KeptRows(3072)}) {
      SCOPED_TRACE(name);
      BudgetRequest request = FalconH1Request();
      request.organisation = *OrganisationSpec::Parse(name);
      request.rows = rows;
      const uint64_t least = rows.BudgetFor(
          *StateStore::BudgetForSequences(request.shape, request.organisation, 1, kGroupTokens));
      request.asked_bytes = least;
      EXPECT_TRUE(ChooseBudget(request));
      request.asked_bytes = least - 1;
      const Result<Budget> refused = ChooseBudget(request);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code(), StatusCode::kNoMemory);
      EXPECT_NE(refused.error().message().find(std::to_string(least)), std::string::npos);
    }
  }
}

TEST(StateBudget, KeptRowsComeOnTopOfTheSequencesOfTheDefault) {
  BudgetRequest request = FalconH1Request();
  const uint64_t pools = ChooseBudget(request)->bytes;
  request.rows = KeptRows(3072);
  const uint64_t budget = ChooseBudget(request)->bytes;
  EXPECT_GE(request.rows.PoolBytes(budget), pools);
  EXPECT_LT(request.rows.PoolBytes(budget - 1), pools);
  EXPECT_GT(request.rows.Units(budget), 1000u);
}

TEST(StateBudget, MoreThanTheMachineHasIsRefused) {
  BudgetRequest request = FalconH1Request();
  request.asked_bytes = 85 * kGiB;
  const Result<Budget> refused = ChooseBudget(request);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), StatusCode::kNoMemory);
  EXPECT_NE(refused.error().message().find(std::to_string(101 * kGiB)), std::string::npos);
}

TEST(StateBudget, LongestSequenceIsTheMostABudgetAdmits) {
  const StateShape shape = FalconH1Shape();
  for (const char* name : {"s0", "s1", "s2", "s3", "d0:split=0.6"}) {
    SCOPED_TRACE(name);
    const OrganisationSpec spec = *OrganisationSpec::Parse(name);
    const uint64_t budget = *StateStore::BudgetForSequences(shape, spec, 1, 5000);
    const uint32_t longest = *LongestSequence(shape, spec, budget, 100000);
    EXPECT_GE(longest, 5000u);
    EXPECT_LE(*StateStore::BudgetForSequences(shape, spec, 1, longest), budget);
    EXPECT_GT(*StateStore::BudgetForSequences(shape, spec, 1, longest + 1), budget);
    EXPECT_EQ(*LongestSequence(shape, spec, budget, 4096), 4096u);
  }
}

}  // namespace
}  // namespace tessera
