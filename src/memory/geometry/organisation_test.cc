// SPDX-License-Identifier: Apache-2.0
#include "memory/geometry/organisation.h"

#include <gtest/gtest.h>

#include <array>

#include "base/random.h"
#include "memory/geometry/model_shapes.h"
#include "memory/geometry/random_shape.h"

namespace tessera {
namespace {

using testing::FalconH1_7B;
using testing::RandomShape;

constexpr std::array<const char*, 5> kAll = {"s0", "s1", "s2", "d0", "s3"};

OrganisationSpec Spec(const char* text) { return OrganisationSpec::Parse(text).value(); }

Organisation Describe(const char* text, const StateShape& shape) {
  return DescribeOrganisation(Spec(text), shape).value();
}

double SetKiBPerPlane(const Organisation& table, uint64_t blocks, uint64_t checkpoints) {
  return static_cast<double>(StateSetBytes(table, blocks, 512, checkpoints)) / table.planes / 1024;
}

// --- The study's arithmetic -----------------------------------------------------------------

TEST(Organisation, FalconH1_7BBf16UnitsAreTheStudys) {
  const StateShape shape = FalconH1_7B(StateType::kBF16);
  const Organisation s0 = Describe("s0", shape);
  EXPECT_EQ(s0.pools[0].unit_bytes, 1557 * kKiB);
  EXPECT_EQ(s0.state_pages, 1u);
  EXPECT_EQ(s0.groups_per_page, 32u);

  const Organisation s1 = Describe("s1", shape);
  EXPECT_EQ(s1.pools[0].unit_bytes, 512 * kKiB);
  EXPECT_EQ(s1.state_pages * s1.state_unit_bytes, 2048 * kKiB);

  const Organisation s2 = Describe("s2", shape);
  EXPECT_EQ(s2.pools[0].unit_bytes, 512 * kKiB);
  EXPECT_EQ(s2.state_pages, 3u);
  EXPECT_EQ(s2.slot_bytes, 32 * kKiB);
  EXPECT_EQ(s2.slots_per_page, 16u);
  EXPECT_EQ(s2.conv_start, 1536 * kKiB);

  const Organisation d0 = Describe("d0", shape);
  ASSERT_EQ(d0.pools.size(), 2u);
  EXPECT_EQ(d0.pools[0].unit_bytes, 16 * kKiB);
  EXPECT_EQ(d0.pools[1].unit_bytes, 1'594'368u);
  EXPECT_EQ(d0.groups_per_page, 1u);
  EXPECT_EQ(d0.state_pages, 1u);

  const Organisation s3 = Describe("s3", shape);
  EXPECT_EQ(s3.pools[0].unit_bytes, 16 * kKiB);
  EXPECT_EQ(s3.state_pages * s3.state_unit_bytes, 1568 * kKiB);
  EXPECT_EQ(s3.slot_bytes, 0u);
}

TEST(Organisation, FalconH1_7BFp32StateTakesSixSsmPagesAndAnS0UnitOf3093KiB) {
  const StateShape shape = FalconH1_7B(StateType::kF32);
  EXPECT_EQ(Describe("s0", shape).pools[0].unit_bytes, 3093 * kKiB);
  EXPECT_EQ(Describe("s1", shape).state_pages, 7u);
  EXPECT_EQ(Describe("s2", shape).state_pages, 6u);
  EXPECT_EQ(Describe("s2", shape).slots_per_page, 16u);
  EXPECT_EQ(Describe("d0", shape).pools[1].unit_bytes, 3093 * kKiB);
  EXPECT_EQ(Describe("s3", shape).state_pages, 194u);
}

TEST(Organisation, TheWorkedExampleWithBf16StateGivesTheStudysBytes) {
  const StateShape shape = FalconH1_7B(StateType::kBF16);
  EXPECT_EQ(SetKiBPerPlane(Describe("s0", shape), 16, 4), 31'140);
  EXPECT_EQ(SetKiBPerPlane(Describe("s1", shape), 16, 4), 16'384);
  EXPECT_EQ(SetKiBPerPlane(Describe("s2", shape), 16, 4), 14'848);
  EXPECT_EQ(SetKiBPerPlane(Describe("d0", shape), 16, 4), 14'420);
  EXPECT_EQ(SetKiBPerPlane(Describe("s3", shape), 16, 4), 14'464);
}

TEST(Organisation, TheStudysDifferencesHoldForEverySetWithBf16State) {
  const StateShape shape = FalconH1_7B(StateType::kBF16);
  const Organisation s0 = Describe("s0", shape), s1 = Describe("s1", shape);
  const Organisation s2 = Describe("s2", shape);
  for (uint64_t a = 0; a < 40; ++a) {
    for (uint64_t r = 0; r < 40; ++r) {
      const double kib0 = SetKiBPerPlane(s0, a, r), kib1 = SetKiBPerPlane(s1, a, r);
      EXPECT_EQ(kib0 - kib1, 1045.0 * static_cast<double>(a) - 491.0 * static_cast<double>(r));
      EXPECT_EQ(kib1 - SetKiBPerPlane(s2, a, r), 512.0 * static_cast<double>(r - (r + 15) / 16));
    }
  }
}

// C = 2500, A = 512 of the study: five pages, 60 KiB of rounding.
TEST(Organisation, AnImageOf2500KiBInPagesOf512TakesFive) {
  StateShape shape = FalconH1_7B(StateType::kBF16);
  shape.ssm_heads = 1;
  shape.ssm_head_dim = 5000;
  shape.conv_taps = 0;
  ASSERT_EQ(shape.image_bytes(), 2500 * kKiB);
  const Organisation s1 = Describe("s1", shape);
  EXPECT_EQ(s1.state_pages, 5u);
  EXPECT_EQ(s1.state_pages * s1.state_unit_bytes - shape.image_bytes(), 60 * kKiB);
  EXPECT_EQ(Describe("s2", shape).slot_bytes, 0u);  // no conv state, so no slot
}

// --- Shapes off the study's path ------------------------------------------------------------

TEST(Organisation, WithoutAttentionPagesAre512KiB16KiBOrTheImage) {
  const StateShape shape = testing::Mamba2_130M(StateType::kF32);
  EXPECT_EQ(Describe("s0", shape).pools[0].unit_bytes, shape.image_bytes());
  EXPECT_EQ(Describe("s1", shape).pools[0].unit_bytes, 512 * kKiB);
  EXPECT_EQ(Describe("s2", shape).pools[0].unit_bytes, 512 * kKiB);
  EXPECT_EQ(Describe("s3", shape).pools[0].unit_bytes, 16 * kKiB);
  const Organisation d0 = MakeOrganisation(Spec("d0"), shape, 100 * kMiB).value();
  ASSERT_EQ(d0.pools.size(), 1u);
  EXPECT_EQ(d0.pools[0].name, "state");
  EXPECT_EQ(d0.pools[0].page_count, 100 * kMiB / (24 * shape.image_bytes()));
  for (const char* name : kAll) EXPECT_EQ(Describe(name, shape).attention_pool, -1) << name;
  for (const char* name : kAll) EXPECT_EQ(Describe(name, shape).AttentionPages(1000), 0u) << name;
}

TEST(Organisation, WithoutRecurrentLayersS0S1AndS2AreTheSameAndD0IsAllAttention) {
  const StateShape shape = testing::Llama32_1B();
  for (const char* name : kAll) EXPECT_EQ(Describe(name, shape).state_pool, -1) << name;
  for (const char* name : {"s0", "s1", "s2"}) {
    EXPECT_EQ(Describe(name, shape).pools[0].unit_bytes, 512 * shape.kv_bytes_per_token_layer());
  }
  const Organisation d0 = MakeOrganisation(Spec("d0:split=0.1"), shape, 10 * kMiB).value();
  ASSERT_EQ(d0.pools.size(), 1u);
  EXPECT_EQ(d0.pools[0].page_count, 10 * kMiB / (16 * shape.group_bytes()));
}

TEST(Organisation, ConvOnlyImagesUnderHalfAPageLiveInSlots) {
  const StateShape shape = testing::Lfm2_12B();  // 5 layers of 8 KiB per plane, U = 96 KiB
  ASSERT_EQ(shape.image_bytes(), 40 * kKiB);
  const Organisation s3 = Describe("s3", shape);
  EXPECT_EQ(s3.pools[0].unit_bytes, 96 * kKiB);
  EXPECT_EQ(s3.state_pages, 0u);
  EXPECT_EQ(s3.slot_bytes, 48 * kKiB);
  EXPECT_EQ(s3.slots_per_page, 2u);
  EXPECT_EQ(s3.state_members(), 1u);
  const Organisation s2 = Describe("s2", shape);
  EXPECT_EQ(s2.state_pages, 0u);
  EXPECT_EQ(s2.slot_bytes, 64 * kKiB);
  EXPECT_EQ(s2.slots_per_page, 48u);  // a page of 3 MiB
  EXPECT_EQ(s2.conv_start, 0u);
}

TEST(Organisation, AnImageOfExactlyHalfAPageTakesAPageAndOneBelowItASlot) {
  StateShape shape = testing::Harbour(StateType::kF32);
  shape.ssm_heads = shape.ssm_head_dim = shape.ssm_state = 0;
  shape.conv_taps = 2;
  shape.conv_channels = 512;  // 2048 B of 4096
  EXPECT_EQ(Describe("s3", shape).state_pages, 1u);
  EXPECT_EQ(Describe("s3", shape).slot_bytes, 0u);
  shape.conv_channels = 480;  // 1920 B: the slot is the half page all the same
  EXPECT_EQ(Describe("s3", shape).state_pages, 0u);
  EXPECT_EQ(Describe("s3", shape).slot_bytes, 2048u);
}

TEST(Organisation, AConvImageTooLargeForTwoSlotsStaysInPagesAsInS1) {
  StateShape shape = FalconH1_7B(StateType::kBF16);
  shape.conv_channels = 50'000;  // 300,000 B: the slot would be the whole page
  const Organisation s1 = Describe("s1", shape), s2 = Describe("s2", shape);
  EXPECT_EQ(s2.slot_bytes, 0u);
  EXPECT_EQ(s2.slots_per_page, 0u);
  EXPECT_EQ(s2.state_pages, s1.state_pages);
  EXPECT_EQ(s2.state_pages, 4u);
}

TEST(Organisation, AStateRowLongerThanABlockSetsThePage) {
  StateShape shape = testing::Harbour(StateType::kF32);
  shape.ssm_state = 1200;  // rows of 4800 B against groups of 4096
  EXPECT_EQ(Describe("s3", shape).pools[0].unit_bytes, 4800u);
  EXPECT_EQ(Describe("s3", shape).group_bytes, 4096u);
  EXPECT_EQ(Describe("s1:block=16", shape).pools[0].unit_bytes, 4800u);
  EXPECT_EQ(Describe("s1:block=32", shape).pools[0].unit_bytes, 9600u);
  EXPECT_EQ(Describe("d0", shape).pools[0].unit_bytes, 4096u);  // holds no rows
}

TEST(Organisation, HarbourImagesTakeNineFineFp32Pages) {
  const Organisation s3 = Describe("s3", testing::Harbour(StateType::kF32));
  EXPECT_EQ(s3.pools[0].unit_bytes, 4096u);
  EXPECT_EQ(s3.state_pages, 9u);  // 34,688 B
}

TEST(Organisation, ACoarserFinePageIsSoManyGroupsAndTheSameImage) {
  const StateShape shape = FalconH1_7B(StateType::kBF16);
  const Organisation s3 = Describe("s3:page=64", shape);
  EXPECT_EQ(s3.pools[0].unit_bytes, 64 * kKiB);
  EXPECT_EQ(s3.groups_per_page, 4u);
  EXPECT_EQ(s3.AttentionPages(65), 2u);
  EXPECT_EQ(s3.state_pages, 25u);  // 1557 KiB
  EXPECT_EQ(Describe("s3:page=64", testing::Mamba2_130M(StateType::kF32)).pools[0].unit_bytes,
            64 * kKiB);
}

// --- Specs and budgets ----------------------------------------------------------------------

TEST(OrganisationSpec, TextParsesAndPrintsBack) {
  for (const char* text : {"s0", "s1", "s2", "s3", "d0", "s1:block=256", "s0:block=16",
                           "s3:page=64", "d0:split=0.4", "d0:split=0.123456"}) {
    EXPECT_EQ(Spec(text).ToString(), text);
  }
  EXPECT_EQ(Spec("d0:split=0.5").ToString(), "d0");
  EXPECT_EQ(Spec("s2:block=512").ToString(), "s2");
  EXPECT_EQ(Spec("s1:block=256").block_tokens, 256u);
}

TEST(OrganisationSpec, BadTextIsRefusedNamingTheBadPart) {
  struct Case {
    const char* text;
    const char* expected;
  };
  for (const Case& c : {Case{"", "''"},
                        Case{"s4", "'s4'"},
                        Case{"S3", "'S3'"},
                        Case{"s3:block=16", "'page='"},
                        Case{"s3:page=24", "24"},
                        Case{"s3:", "''"},
                        Case{"s2:split=0.5", "'block='"},
                        Case{"s2:block=17", "17"},
                        Case{"s2:block=0", "0"},
                        Case{"s2:block=", "''"},
                        Case{"s2:block", "''"},
                        Case{"s2:block=-16", "'-16'"},
                        Case{"s2:block=16x", "'16x'"},
                        Case{"s2:block=16,block=32", "'16,block=32'"},
                        Case{"s2:", "''"},
                        Case{"s2:block=4294967296", "4294967296"},
                        Case{"d0:split=0", "0"},
                        Case{"d0:split=1", "1"},
                        Case{"d0:split=nan", "nan"},
                        Case{"d0:split=1e-9", "1e-09"}}) {
    const Result<OrganisationSpec> spec = OrganisationSpec::Parse(c.text);
    ASSERT_FALSE(spec.has_value()) << c.text;
    EXPECT_EQ(spec.error().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(spec.error().message().find(c.expected), std::string::npos) << spec.error().message();
  }
}

TEST(Organisation, TheSplitOfABudgetIsExactToTheByte) {
  const StateShape shape = FalconH1_7B(StateType::kBF16);
  const uint64_t unit_a = 44 * 16 * kKiB, unit_r = uint64_t{44} * 1'594'368;
  // 0.4 of this is exactly 1000 attention pages; in binary 0.4 · B rounds either way.
  const uint64_t budget = 1000 * unit_a / 4 * 10;
  const Organisation d0 = MakeOrganisation(Spec("d0:split=0.4"), shape, budget).value();
  EXPECT_EQ(d0.pools[0].page_count, 1000u);
  EXPECT_EQ(d0.pools[1].page_count, (budget - 1000 * unit_a) / unit_r);
}

TEST(Organisation, ABudgetWithoutRoomForAPageNamesTheBytesNeeded) {
  const StateShape shape = FalconH1_7B(StateType::kBF16);
  for (const char* name : kAll) {
    const Organisation table = Describe(name, shape);
    const std::vector<uint64_t> one_each(table.pools.size(), 1);
    const uint64_t needed = BudgetForPages(table, one_each);
    EXPECT_TRUE(MakeOrganisation(Spec(name), shape, needed).has_value()) << name;
    const Result<Organisation> less = MakeOrganisation(Spec(name), shape, needed - 1);
    ASSERT_FALSE(less.has_value()) << name;
    EXPECT_EQ(less.error().code(), StatusCode::kNoMemory);
    EXPECT_NE(less.error().message().find(std::to_string(needed)), std::string::npos)
        << less.error().message();
  }
}

TEST(Organisation, MorePagesThanAnIndexCanNameAreRefused) {
  const Result<Organisation> table =
      MakeOrganisation(Spec("s3"), testing::Harbour(StateType::kBF16), uint64_t{1} << 60);
  ASSERT_FALSE(table.has_value());
  EXPECT_EQ(table.error().code(), StatusCode::kInvalidArgument);
}

TEST(Organisation, AttentionPagesSaturateInsteadOfWrapping) {
  const Organisation table = Describe("s3", FalconH1_7B(StateType::kBF16));
  EXPECT_EQ(table.AttentionPages(0), 0u);
  EXPECT_EQ(table.AttentionPages(1), 1u);
  EXPECT_EQ(table.AttentionPages(16), 1u);
  EXPECT_EQ(table.AttentionPages(17), 2u);
  EXPECT_EQ(table.AttentionPages(UINT64_MAX), UINT32_MAX);
  EXPECT_EQ(Describe("s2", FalconH1_7B(StateType::kBF16)).AttentionPages(513), 2u);
}

// --- Properties over random shapes ----------------------------------------------------------

void ExpectO1(const Organisation& t, uint64_t budget) {
  uint64_t total = 0;
  for (size_t i = 0; i < t.pools.size(); ++i) {
    EXPECT_GE(t.pools[i].page_count, 1u);
    total += t.pools[i].page_count * t.page_bytes_all_planes(static_cast<int>(i));
  }
  EXPECT_LE(total, budget);
  if (t.pools.size() == 1) {
    EXPECT_GT(total + t.page_bytes_all_planes(0), budget);
  }
}

void ExpectO2(const Organisation& t, const StateShape& shape) {
  for (const PoolTable& pool : t.pools) EXPECT_EQ(pool.unit_bytes % 64, 0u);
  if (t.attention_pool >= 0) {
    const PoolTable& pool = t.pools[static_cast<size_t>(t.attention_pool)];
    EXPECT_LE(t.groups_per_page * t.group_bytes, pool.unit_bytes);
    EXPECT_EQ(t.group_bytes % 64, 0u);
  }
  if (t.state_pool < 0) return;
  EXPECT_EQ(t.state_unit_bytes, t.pools[static_cast<size_t>(t.state_pool)].unit_bytes);
  if (shape.ssm_image_bytes() > 0) {
    EXPECT_EQ(t.state_unit_bytes % shape.ssm_row_bytes(), 0u);
  }
  EXPECT_EQ(t.ssm_start, 0u);
  EXPECT_EQ(t.conv_start % 64, 0u);
  EXPECT_GE(t.conv_start, shape.ssm_image_bytes());
  EXPECT_EQ(t.slot_bytes % 64, 0u);
  EXPECT_LE(t.slots_per_page * t.slot_bytes, t.state_unit_bytes);
  // The members cover the image, and the last one is needed.
  const uint64_t end = t.conv_start + shape.conv_image_bytes();
  EXPECT_LE(end, t.state_pages * t.state_unit_bytes + t.slot_bytes);
  EXPECT_GT(end, (t.state_members() - 1) * t.state_unit_bytes);
}

TEST(Organisation, RandomShapesKeepO1AndO2InEveryOrganisation) {
  const uint64_t seed = 20261129;
  SCOPED_TRACE(seed);
  Random random(seed);
  int checked = 0;
  while (checked < 3000) {
    const StateShape shape = RandomShape(&random);
    if (!shape.Validate().ok()) continue;
    ++checked;
    for (const char* name : kAll) {
      OrganisationSpec spec = Spec(name);
      spec.block_tokens = 16 * (1 + static_cast<uint32_t>(random.Below(64)));
      spec.split = 0.01 + 0.98 * random.Uniform();
      const Organisation plain = DescribeOrganisation(spec, shape).value();
      std::vector<uint64_t> pages(plain.pools.size());
      for (uint64_t& count : pages) count = 1 + random.Below(1000);
      const uint64_t budget = BudgetForPages(plain, pages);
      const Organisation table = MakeOrganisation(spec, shape, budget).value();
      ExpectO1(table, budget);
      ExpectO2(table, shape);
      // BudgetForPages is the least: a byte less loses a page of some pool.
      bool enough = true, still_enough = true;
      const Result<Organisation> less = MakeOrganisation(spec, shape, budget - 1);
      for (size_t i = 0; i < pages.size(); ++i) {
        enough = enough && table.pools[i].page_count >= pages[i];
        still_enough = still_enough && less.has_value() && less->pools[i].page_count >= pages[i];
      }
      EXPECT_TRUE(enough);
      EXPECT_FALSE(still_enough);
      if (HasFailure()) {
        FAIL() << spec.ToString() << " A " << shape.attention_layers << " R "
               << shape.recurrent_layers;
      }
    }
  }
}

TEST(Organisation, S3NeverTakesMoreThanAnyOtherPlusOnePagePerCheckpointAndPlane) {
  const uint64_t seed = 7;
  SCOPED_TRACE(seed);
  Random random(seed);
  for (int i = 0; i < 3000; ++i) {
    const StateShape shape = RandomShape(&random);
    if (!shape.Validate().ok()) continue;
    const Organisation s3 = Describe("s3", shape);
    const uint64_t unit = s3.pools[0].unit_bytes;
    const uint64_t blocks = random.Below(50), checkpoints = random.Below(50);
    // Rounding of U to the state row, 0 for every published model, is paid per group.
    const uint64_t rounding =
        shape.attention_layers == 0 ? 0 : 32 * blocks * s3.planes * (unit - shape.group_bytes());
    for (const char* name : {"s0", "s1", "s2", "d0"}) {
      EXPECT_LE(StateSetBytes(s3, blocks, 512, checkpoints),
                StateSetBytes(Describe(name, shape), blocks, 512, checkpoints) +
                    checkpoints * s3.planes * unit + rounding)
          << name << " blocks " << blocks << " checkpoints " << checkpoints;
    }
  }
}

}  // namespace
}  // namespace tessera
