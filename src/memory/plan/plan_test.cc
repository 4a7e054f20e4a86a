// SPDX-License-Identifier: Apache-2.0
//
// A plan against the store it plans for, byte for byte and sequence for sequence, and against the
// figures that are published of known models.
#include "memory/plan/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "memory/geometry/model_shapes.h"
#include "memory/store/state_store.h"

namespace tessera {
namespace {

constexpr uint64_t kMany = std::numeric_limits<uint64_t>::max();

std::vector<OrganisationSpec> Specs(std::vector<std::string> names) {
  std::vector<OrganisationSpec> specs;
  for (const std::string& name : names) specs.push_back(OrganisationSpec::Parse(name).value());
  return specs;
}

const std::vector<OrganisationSpec> kFive = Specs({"s0", "s1", "s2", "d0", "s3"});

PlanOptions Options(std::string_view name, StateType type) {
  PlanOptions options;
  options.geometry = FindGeometry(name).value();
  options.geometry.shape.state_type = type;
  options.organisations = kFive;
  return options;
}

const std::string* Find(const Plan& plan, std::string_view rule) {
  for (const Advice& advice : plan.advice) {
    if (advice.rule == rule) return &advice.text;
  }
  return nullptr;
}

bool Says(const Plan& plan, std::string_view rule, std::string_view part) {
  const std::string* text = Find(plan, rule);
  return text != nullptr && text->find(part) != std::string::npos;
}

// Small models of every kind, so that a store of thousands of pages is a few MiB.
std::vector<StateGeometry> SmallGeometries() {
  const auto of = [](std::string_view name, StateShape shape) {
    return StateGeometry{
        .name = std::string(name), .shape = shape, .width = 192, .context_length = 700};
  };
  StateShape fp32 = testing::Harbour(StateType::kF32);
  StateShape bf16 = testing::Harbour(StateType::kBF16);
  StateShape uneven = bf16;  // 1 plane of 3 and 4 layers
  uneven.attention_layers = 3;
  uneven.recurrent_layers = 4;
  StateShape conv_only = fp32;  // slots in S3 too
  conv_only.ssm_heads = conv_only.ssm_head_dim = conv_only.ssm_state = 0;
  conv_only.conv_channels = 64;
  StateShape recurrent = bf16;
  recurrent.attention_layers = 0;
  StateShape attention = fp32;
  attention.recurrent_layers = 0;
  return {of("fp32", fp32),           of("bf16", bf16),           of("uneven", uneven),
          of("conv only", conv_only), of("recurrent", recurrent), of("attention", attention)};
}

uint64_t SequencesAdmitted(StateStore* store, uint64_t tokens, uint64_t most) {
  std::vector<SequenceState> held;
  while (held.size() < most) {
    AdmitResult result = store->Admit(tokens);
    if (result.outcome != Admission::kAdmitted) break;
    held.push_back(std::move(*result.sequence));
  }
  return held.size();
}

void ExpectTheStoresFigures(const Plan& plan, const OrganisationPlan& planned) {
  StoreOptions options;
  options.shape = plan.geometry.shape;
  options.organisation = planned.table.spec;
  options.budget_bytes = plan.budget_bytes;
  options.reuse.enabled = plan.rows.unit_bytes() > 0;
  options.reuse.row_width = plan.geometry.width;
  const auto store = StateStore::Create(options);
  ASSERT_EQ(store.has_value(), planned.fits.ok());
  if (!store.has_value()) {
    EXPECT_EQ(store.error().message(), planned.fits.message());
    return;
  }
  const StoreStats stats = (*store)->Stats();
  EXPECT_EQ(stats.arena_bytes, planned.arena_bytes);
  EXPECT_EQ(stats.row_bytes, plan.kept_rows * plan.rows.unit_bytes());
  ASSERT_EQ(stats.pools.size(), planned.table.pools.size());
  for (size_t i = 0; i < stats.pools.size(); ++i) {
    EXPECT_EQ(stats.pools[i].name, planned.table.pools[i].name);
    EXPECT_EQ(stats.pools[i].total_pages, planned.table.pools[i].page_count);
    EXPECT_EQ(stats.pools[i].unit_bytes, planned.table.page_bytes_all_planes(static_cast<int>(i)));
  }
  EXPECT_EQ((*store)->NeedFor(plan.context_tokens).bytes, planned.sequence.bytes);
  // Filled to the last sequence.
  EXPECT_EQ(SequencesAdmitted(store->get(), plan.context_tokens, planned.users + 1), planned.users);
  if (planned.longest_context > 0) {
    EXPECT_EQ(SequencesAdmitted(store->get(), planned.longest_context, plan.users), plan.users);
  }
  if (planned.longest_context < plan.geometry.context_length) {
    EXPECT_LT(SequencesAdmitted(store->get(), planned.longest_context + 1, plan.users), plan.users);
  }
}

TEST(Plan, EqualsTheStoreToTheByteAndTheSequence) {
  for (const StateGeometry& geometry : SmallGeometries()) {
    for (uint64_t budget : {300 * kKiB, 1'234'567ul, 5 * kMiB, 16 * kMiB + 12'345}) {
      for (bool reuse : {true, false}) {
        PlanOptions options;
        options.geometry = geometry;
        options.organisations = Specs({"s0:block=32", "s1:block=32", "s2:block=32", "s2",
                                       "d0:split=0.6", "d0", "s3", "s3:page=64"});
        options.budget_bytes = budget;
        options.users = 3;
        options.context_tokens = 100;
        options.reuse = reuse;
        const auto plan = MakePlan(options);
        ASSERT_TRUE(plan.has_value()) << plan.error().message();
        EXPECT_EQ(plan->pool_bytes, reuse ? KeptRows(192).PoolBytes(budget) : budget);
        for (const OrganisationPlan& planned : plan->organisations) {
          SCOPED_TRACE(geometry.name + " " + planned.table.spec.ToString() + " " +
                       std::to_string(budget));
          ExpectTheStoresFigures(*plan, planned);
        }
      }
    }
  }
}

TEST(Plan, TheBudgetForNUsersIsTheLeastThatAdmitsThem) {
  for (const StateGeometry& geometry : SmallGeometries()) {
    PlanOptions options;
    options.geometry = geometry;
    options.organisations = Specs({"s0:block=32", "s1:block=32", "s2:block=32", "d0", "s3"});
    options.users = 5;
    options.context_tokens = 333;
    const Plan first = MakePlan(options).value();
    for (size_t i = 0; i < options.organisations.size(); ++i) {
      SCOPED_TRACE(geometry.name + " " + options.organisations[i].ToString());
      options.budget_bytes = first.organisations[i].budget_for_users_bytes;
      EXPECT_GE(MakePlan(options)->organisations[i].users, 5u);
      EXPECT_GE(MakePlan(options)->organisations[i].longest_context, 333u);
      options.budget_bytes -= 1;
      EXPECT_LT(MakePlan(options)->organisations[i].users, 5u);
      options.budget_bytes = 0;
    }
    // Without a budget it is that of the last organisation.
    EXPECT_FALSE(first.budget_given);
    EXPECT_EQ(first.budget_bytes, first.organisations.back().budget_for_users_bytes);
  }
}

TEST(Plan, FalconH1_7BWithTwoByteStateIsTheStudys) {
  const Plan plan = MakePlan(Options("falcon-h1-7b", StateType::kBF16)).value();
  ASSERT_EQ(plan.kinds.size(), 4u);
  EXPECT_EQ(plan.kinds[0].layer_bytes, 1024u);
  EXPECT_EQ(plan.kinds[1].layer_bytes, 1536 * kKiB);
  EXPECT_EQ(plan.kinds[2].layer_bytes, 21 * kKiB);
  EXPECT_EQ(plan.kinds[3].model_bytes, 12 * kKiB);
  EXPECT_EQ(plan.checkpoint_price_tokens, 1557);
  EXPECT_EQ(plan.unified_page_tokens, 1792u);
  // The worked example, x_A = 16 and x_R = 4: KiB per layer.
  const uint64_t expected[] = {31'140, 16'384, 14'848, 14'420, 14'464};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(plan.organisations[i].set.bytes, 44 * expected[i] * kKiB);
    EXPECT_EQ(plan.organisations[i].set.waste_bytes, 44 * (expected[i] - 14'420) * kKiB);
  }
  EXPECT_EQ(plan.organisations[0].token_bytes, 44 * 1557 * 1024 / 512.0);
  EXPECT_EQ(plan.organisations[4].token_bytes, 44 * 1024);
  EXPECT_EQ(plan.organisations[0].block.waste_bytes, 44 * 1045 * kKiB);
  EXPECT_EQ(plan.organisations[1].checkpoint.waste_bytes, 44 * 491 * kKiB);
  EXPECT_EQ(plan.organisations[2].checkpoint.waste_bytes, 44 * 11 * kKiB);
  EXPECT_EQ(plan.organisations[4].checkpoint.waste_bytes, 44 * 11 * kKiB);
  EXPECT_EQ(plan.paging.gain_per_block, 44 * 1045 * 1024);
  EXPECT_EQ(plan.paging.loss_per_checkpoint, 44 * 491 * 1024);
  EXPECT_EQ(plan.paging.delta_bytes, 44 * (31'140 - 16'384) * 1024);
  EXPECT_NEAR(plan.paging.switching_ratio(), .47, .005);
  EXPECT_EQ(plan.s3_bound_bytes, 4 * 44 * 16 * kKiB);
  EXPECT_TRUE(Says(plan, "packing", "24 times below the page of 512.00 KiB"));
  EXPECT_EQ(Find(plan, "conv-slot"), nullptr);
  EXPECT_TRUE(Says(plan, "paging", "from 0.47 attention blocks per checkpoint on"));
  EXPECT_TRUE(Says(plan, "least-prefix", "is 1 token; a grid forced"));
  EXPECT_TRUE(Says(plan, "least-prefix", "1792"));
  EXPECT_TRUE(Says(plan, "density", "1557 tokens"));
}

TEST(Plan, FalconH1_7BWithFp32StateSwitchesAtLessAndUnifiesAt3328) {
  const Plan plan = MakePlan(Options("falcon-h1-7b", StateType::kF32)).value();
  EXPECT_EQ(plan.checkpoint_price_tokens, 3093);
  EXPECT_EQ(plan.checkpoint_spacing, 3104u);
  EXPECT_NEAR(plan.paging.switching_ratio(), .19, .005);
  EXPECT_EQ(plan.unified_page_tokens, 3328u);
}

TEST(Plan, FewBlocksAndDenseCheckpointsAreNotForS1) {
  PlanOptions options = Options("falcon-h1-7b", StateType::kBF16);
  options.set = {1, 16};
  const Plan plan = MakePlan(options).value();
  EXPECT_LT(plan.paging.delta_bytes, 0);
  EXPECT_TRUE(Says(plan, "paging", "not S1"));
}

TEST(Plan, AConvStateOver32KiBIsSaidToBreakTheSlot) {
  PlanOptions options = Options("falcon-h1-7b", StateType::kBF16);
  options.geometry.shape.conv_channels = 34133;  // 200 KiB a layer
  Plan plan = MakePlan(options).value();
  EXPECT_TRUE(Says(plan, "conv-slot", "200.06 KiB breaks the slot of 32.00 KiB"));
  EXPECT_TRUE(Says(plan, "conv-slot", "here a slot is 256.00 KiB, 2 to a page"));
  EXPECT_TRUE(Says(plan, "packing", "may cost more"));
  options.geometry.shape.conv_channels = 60000;  // no two fit a page
  plan = MakePlan(options).value();
  EXPECT_TRUE(Says(plan, "conv-slot", "conv takes pages as in S1"));
}

TEST(Plan, AWrongSplitIsPricedInCopies) {
  PlanOptions options = Options("falcon-h1-7b", StateType::kBF16);
  options.budget_bytes = 16 * kGiB;
  const Plan plan = MakePlan(options).value();
  // 8,192 of 14,420 KiB a copy are attention.
  EXPECT_NEAR(plan.best_split.split, 8192.0 / 14420, .02);
  EXPECT_GE(plan.best_split.copies, plan.organisations[3].copies);
  const std::string expected = "D0 holds " + std::to_string(plan.best_split.copies) + " copies";
  EXPECT_TRUE(Says(plan, "pool-shape", expected)) << *Find(plan, "pool-shape");
}

TEST(Plan, TheLeastPrefixIsTheGridAndSaidWhenItCannotHit) {
  PlanOptions options = Options("nemotron-h-8b", StateType::kF32);
  options.checkpoint_grid = 512;
  EXPECT_EQ(MakePlan(options)->least_prefix_tokens, 512u);
  options.checkpoint_grid = 8193;
  EXPECT_TRUE(Says(*MakePlan(options), "least-prefix", "Nothing can be reused"));
  // Attention alone is valid at any token.
  options.geometry = FindGeometry("llama-3.2-1b").value();
  EXPECT_EQ(MakePlan(options)->least_prefix_tokens, 1u);
}

TEST(Plan, ModelsOfOneKindHaveNoPriceNoSplitAndNoTrade) {
  for (const char* name : {"llama-3.2-1b", "mamba2-130m"}) {
    const Plan plan = MakePlan(Options(name, StateType::kF32)).value();
    EXPECT_EQ(plan.checkpoint_price_tokens, 0);
    EXPECT_EQ(plan.best_split.copies, 0u);
    EXPECT_FALSE(plan.paging.applies);
    EXPECT_EQ(plan.unified_page_tokens, 0u);
    EXPECT_EQ(Find(plan, "pool-shape"), nullptr);
    for (const OrganisationPlan& planned : plan.organisations) {
      EXPECT_TRUE(planned.fits.ok() || planned.users == 0) << name;
    }
  }
}

TEST(Plan, ABudgetTooSmallForOneOrganisationLeavesTheOthersPlanned) {
  PlanOptions options = Options("falcon-h1-7b", StateType::kF32);
  options.budget_bytes = 100 * kMiB;  // S0's page takes 132.9 MiB over all planes
  const Plan plan = MakePlan(options).value();
  EXPECT_EQ(plan.organisations[0].fits.code(), StatusCode::kNoMemory);
  EXPECT_EQ(plan.organisations[0].copies, 0u);
  EXPECT_EQ(plan.organisations[0].arena_bytes, 0u);
  EXPECT_GT(plan.organisations[0].checkpoint.bytes, 100 * kMiB);
  EXPECT_TRUE(plan.organisations[4].fits.ok());
  EXPECT_GT(plan.organisations[4].table.pools[0].page_count, 0u);
}

TEST(Plan, WhatNoBudgetHoldsSaturates) {
  PlanOptions options = Options("falcon-h1-7b", StateType::kF32);
  options.users = 4'000'000'000u;
  options.context_tokens = 262144;
  options.budget_bytes = kGiB;
  const Plan plan = MakePlan(options).value();
  for (const OrganisationPlan& planned : plan.organisations) {
    EXPECT_EQ(planned.budget_for_users_bytes, kMany);
    EXPECT_EQ(planned.longest_context, 0u);
  }
}

TEST(Plan, OptionsOutOfRangeAreRefusedByName) {
  const auto refused = [](PlanOptions options, std::string_view part) {
    const auto plan = MakePlan(options);
    ASSERT_FALSE(plan.has_value()) << part;
    EXPECT_EQ(plan.error().code(), StatusCode::kInvalidArgument) << part;
    EXPECT_NE(plan.error().message().find(part), std::string::npos) << plan.error().message();
  };
  const PlanOptions good = Options("falcon-h1-7b", StateType::kF32);
  PlanOptions options = good;
  options.set = {0, 0};
  refused(options, "empty");
  options = good;
  options.set.block_tokens = 24;
  refused(options, "multiple of 16");
  options = good;
  options.set = {kMany, 1};
  refused(options, "2^60");
  options = good;
  options.users = 0;
  refused(options, "users");
  options = good;
  options.checkpoint_grid = 0;
  refused(options, "checkpoint-grid");
  options = good;
  options.context_tokens = 262145;
  refused(options, "262144");
  options = good;
  options.organisations.clear();
  refused(options, "no organisation");
}

}  // namespace
}  // namespace tessera
