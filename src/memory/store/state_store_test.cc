// SPDX-License-Identifier: Apache-2.0
#include "memory/store/state_store.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "memory/geometry/model_shapes.h"

namespace {

// Every heap allocation of this binary, for S3.
std::atomic<uint64_t> allocation_count{0};

void* CountedAllocate(std::size_t size) {
  allocation_count.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) std::abort();
  return memory;
}

}  // namespace

void* operator new(std::size_t size) { return CountedAllocate(size); }
void* operator new[](std::size_t size) { return CountedAllocate(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace tessera {
namespace {

using testing::Harbour;

// Blocks of 32 tokens, so that a page holds two groups and a conv slot (2 KiB of 8) shares one.
constexpr const char* kAll[] = {"s0:block=32", "s1:block=32", "s2:block=32", "d0:split=0.6", "s3"};

// Conv state only, 384 B an image in pages of 4 KiB: slots in S3 too.
StateShape ConvOnly() {
  StateShape s = Harbour(StateType::kF32);
  s.ssm_heads = s.ssm_head_dim = s.ssm_state = 0;
  s.conv_channels = 64;
  return s;
}

StateShape RecurrentOnly() {
  StateShape s = Harbour(StateType::kBF16);
  s.attention_layers = 0;
  s.recurrent_layers = 3;
  return s;
}

StateShape AttentionOnly() {
  StateShape s = Harbour(StateType::kF32);
  s.recurrent_layers = 0;
  return s;
}

StateShape Uneven() {
  StateShape s = Harbour(StateType::kF32);
  s.attention_layers = 2;
  s.recurrent_layers = 4;
  return s;
}

std::unique_ptr<StateStore> MakeStore(const StateShape& shape, const char* organisation,
                                      uint64_t budget_bytes, bool poison = false) {
  StoreOptions options;
  options.shape = shape;
  options.organisation = OrganisationSpec::Parse(organisation).value();
  options.budget_bytes = budget_bytes;
  options.poison = poison;
  Result<std::unique_ptr<StateStore>> store = StateStore::Create(options);
  EXPECT_TRUE(store.has_value()) << store.error().ToString();
  return std::move(store).value();
}

void ExpectEmpty(const StateStore& store) {
  EXPECT_TRUE(store.Validate(3).ok()) << store.Validate(3).ToString();
  for (const PoolStats& pool : store.Stats().pools) {
    EXPECT_EQ(pool.free_pages, pool.total_pages) << pool.name;
    EXPECT_EQ(pool.reserved_pages + pool.held_attention_pages + pool.held_state_pages, 0u);
    EXPECT_EQ(pool.slab_pages + pool.used_slots, 0u);
  }
  EXPECT_EQ(store.Stats().sequences, 0u);
}

SequenceState MustAdmit(StateStore* store, uint64_t max_tokens, bool may_fork = false) {
  AdmitResult result = store->Admit(max_tokens, may_fork);
  EXPECT_EQ(result.outcome, Admission::kAdmitted) << result.reason;
  return *std::move(result.sequence);
}

// Whether some pool has nothing left: a budget that is the least leaves one so.
bool SomePoolIsFull(const StateStore& store) {
  for (const PoolStats& pool : store.Stats().pools) {
    if (pool.free_pages == 0) return true;
  }
  return false;
}

bool MessageHas(const std::string& message, uint64_t number) {
  return message.find(std::to_string(number)) != std::string::npos;
}

// --- Admission ------------------------------------------------------------------------------

TEST(StateStore, BudgetForIsTheLeastThatAdmitsInEveryOrganisationAndShape) {
  for (const StateShape& shape : {Harbour(StateType::kF32), Harbour(StateType::kBF16), ConvOnly(),
                                  RecurrentOnly(), AttentionOnly(), Uneven()}) {
    for (const char* name : kAll) {
      for (bool may_fork : {false, true}) {
        for (uint64_t tokens : {1u, 16u, 17u, 32u, 33u, 500u}) {
          SCOPED_TRACE(std::string(name) + " " + std::to_string(tokens));
          const OrganisationSpec spec = OrganisationSpec::Parse(name).value();
          const uint64_t budget =
              StateStore::BudgetForSequences(shape, spec, 1, tokens, may_fork).value();
          std::unique_ptr<StateStore> store = MakeStore(shape, name, budget);
          EXPECT_EQ(store->BudgetFor(tokens, may_fork), budget);
          EXPECT_LE(store->Stats().arena_bytes, budget);
          const AdmitResult admitted = store->Admit(tokens, may_fork);
          EXPECT_EQ(admitted.outcome, Admission::kAdmitted) << admitted.reason;
          EXPECT_TRUE(SomePoolIsFull(*store));
          EXPECT_TRUE(store->Validate(3).ok());

          StoreOptions less;
          less.shape = shape;
          less.organisation = spec;
          less.budget_bytes = budget - 1;
          Result<std::unique_ptr<StateStore>> small = StateStore::Create(less);
          if (!small.has_value()) {  // not even a page of each pool
            EXPECT_EQ(small.error().code(), StatusCode::kNoMemory);
            continue;
          }
          const AdmitResult refused = (*small)->Admit(tokens, may_fork);
          EXPECT_EQ(refused.outcome, Admission::kNeverFits);
          EXPECT_FALSE(refused.sequence.has_value());
          EXPECT_TRUE(MessageHas(refused.reason, budget)) << refused.reason;
        }
      }
    }
  }
}

TEST(StateStore, ARefusalNamesThePagesNeededAndThePagesThereAre) {
  // S3 on the bundled shape: 9 image pages and 7 of attention for 112 tokens.
  std::unique_ptr<StateStore> store = MakeStore(Harbour(StateType::kF32), "s3", 15 * 5 * 4096);
  const AdmitResult refused = store->Admit(112);
  EXPECT_EQ(refused.outcome, Admission::kNeverFits);
  EXPECT_EQ(refused.reason,
            "112 tokens need 16 pages of pool 'shared', which has 15; the budget is 307200 bytes "
            "and must be at least 327680");
  EXPECT_EQ(store->Admit(96).outcome, Admission::kAdmitted);
}

TEST(StateStore, BudgetForSequencesHoldsExactlySoMany) {
  for (const StateShape& shape : {Harbour(StateType::kF32), ConvOnly(), RecurrentOnly()}) {
    for (const char* name : kAll) {
      for (uint32_t count : {1u, 3u, 5u, 12u}) {
        SCOPED_TRACE(name);
        const uint64_t budget =
            StateStore::BudgetForSequences(shape, OrganisationSpec::Parse(name).value(), count, 50)
                .value();
        std::unique_ptr<StateStore> store = MakeStore(shape, name, budget);
        std::vector<SequenceState> held;
        for (uint32_t i = 0; i < count; ++i) held.push_back(MustAdmit(store.get(), 50));
        EXPECT_TRUE(SomePoolIsFull(*store));
        for (SequenceState& sequence : held) sequence.BeginStep(50);
        EXPECT_TRUE(store->Validate(3).ok()) << store->Validate(3).ToString();
      }
    }
  }
}

TEST(StateStore, NeedForIsWhatAdmissionReserves) {
  for (const char* name : kAll) {
    for (bool may_fork : {false, true}) {
      SCOPED_TRACE(name);
      std::unique_ptr<StateStore> store = MakeStore(Harbour(StateType::kF32), name, 16 * kMiB);
      const StateNeed need = store->NeedFor(100, may_fork);
      SequenceState sequence = MustAdmit(store.get(), 100, may_fork);
      const StoreStats stats = store->Stats();
      uint64_t bytes = 0;
      for (size_t i = 0; i < stats.pools.size(); ++i) {
        const bool slab = need.slots > 0 && static_cast<int>(i) == store->organisation().state_pool;
        EXPECT_EQ(stats.pools[i].reserved_pages, need.pages[i] + (slab ? 1 : 0));
        bytes += need.pages[i] * stats.pools[i].unit_bytes;
      }
      bytes += need.slots * store->organisation().slot_bytes * 5;
      EXPECT_EQ(need.bytes, bytes);
    }
  }
}

TEST(StateStore, AFullStoreSaysWaitAndAdmitsAfterADrop) {
  for (const char* name : kAll) {
    SCOPED_TRACE(name);
    std::unique_ptr<StateStore> store = MakeStore(Harbour(StateType::kF32), name, 4 * kMiB);
    std::vector<SequenceState> held;
    AdmitResult result;
    while ((result = store->Admit(64)).outcome == Admission::kAdmitted) {
      held.push_back(*std::move(result.sequence));
    }
    EXPECT_EQ(result.outcome, Admission::kMustWait);
    EXPECT_NE(result.reason.find("cached now"), std::string::npos) << result.reason;
    ASSERT_GT(held.size(), 2u);
    EXPECT_TRUE(store->Validate(3).ok());
    held.pop_back();
    EXPECT_EQ(store->Admit(64).outcome, Admission::kAdmitted);
  }
}

TEST(StateStore, D0RefusesThoughTheSumOfBothPoolsWouldFit) {
  std::unique_ptr<StateStore> store =
      MakeStore(Harbour(StateType::kF32), "d0:split=0.2", 10 * kMiB);
  const StateNeed need = store->NeedFor(3200);  // 200 units of 20 KiB: 4 MiB of 10, but of 2
  EXPECT_LT(need.bytes, 10 * kMiB);
  const AdmitResult refused = store->Admit(3200);
  EXPECT_EQ(refused.outcome, Admission::kNeverFits);
  EXPECT_NE(refused.reason.find("'attention'"), std::string::npos) << refused.reason;
  EXPECT_EQ(MakeStore(Harbour(StateType::kF32), "s3", 10 * kMiB)->Admit(3200).outcome,
            Admission::kAdmitted);
}

TEST(StateStore, AbsurdLengthsNeverFitAndNothingWraps) {
  for (const char* name : kAll) {
    std::unique_ptr<StateStore> store = MakeStore(Harbour(StateType::kF32), name, 4 * kMiB);
    for (uint64_t tokens : {uint64_t{1} << 32, uint64_t{1} << 45, UINT64_MAX - 5, UINT64_MAX}) {
      EXPECT_EQ(store->Admit(tokens, true).outcome, Admission::kNeverFits) << name;
      EXPECT_GT(store->BudgetFor(tokens), 1u * kGiB);
      EXPECT_GT(store->NeedFor(tokens).bytes, 1u * kGiB);
    }
    ExpectEmpty(*store);
  }
}

TEST(StateStore, CreateNamesTheBytesABudgetLacks) {
  for (const char* name : kAll) {
    StoreOptions options;
    options.shape = Harbour(StateType::kF32);
    options.organisation = OrganisationSpec::Parse(name).value();
    options.budget_bytes = 100;
    const Result<std::unique_ptr<StateStore>> store = StateStore::Create(options);
    ASSERT_FALSE(store.has_value());
    EXPECT_EQ(store.error().code(), StatusCode::kNoMemory) << store.error().ToString();
  }
  StoreOptions options;
  options.budget_bytes = kMiB;
  EXPECT_EQ(StateStore::Create(options).error().code(), StatusCode::kBadFile);
}

// --- Steps ----------------------------------------------------------------------------------

TEST(SequenceState, AFreshSequenceReadsZerosAndLaterStepsUpdateInPlace) {
  for (const char* name : kAll) {
    SCOPED_TRACE(name);
    std::unique_ptr<StateStore> store = MakeStore(Harbour(StateType::kF32), name, 4 * kMiB);
    SequenceState sequence = MustAdmit(store.get(), 40);
    StateView first = sequence.BeginStep(17);
    EXPECT_TRUE(first.Source(4).is_zero());
    EXPECT_FALSE(first.Destination(4).is_zero());
    EXPECT_EQ(sequence.position(), 0u);
    EXPECT_EQ(sequence.first_new_group(), 0u);
    EXPECT_EQ(sequence.last_new_group(), 2u);
    sequence.EndStep();
    EXPECT_EQ(sequence.position(), 17u);

    StateView second = sequence.BeginStep(15);
    EXPECT_EQ(second.source_offsets, second.destination_offsets);
    EXPECT_EQ(second.destination_offsets, first.destination_offsets);
    EXPECT_EQ(sequence.first_new_group(), 2u);
    EXPECT_EQ(sequence.last_new_group(), 2u);  // tokens 17-31 are in groups that exist
    sequence.EndStep();

    sequence.BeginStep(1);
    EXPECT_EQ(sequence.first_new_group(), 2u);
    EXPECT_EQ(sequence.last_new_group(), 3u);
    sequence.EndStep();
    EXPECT_EQ(sequence.position(), 33u);
    EXPECT_TRUE(store->Validate(3).ok());
  }
}

TEST(SequenceState, AForkWritesFreshMembersAndEndStepFreesTheOldOnes) {
  for (const StateShape& shape : {Harbour(StateType::kF32), ConvOnly()}) {
    for (const char* name : kAll) {
      SCOPED_TRACE(name);
      std::unique_ptr<StateStore> store = MakeStore(shape, name, 4 * kMiB);
      SequenceState sequence = MustAdmit(store.get(), 100, /*may_fork=*/true);
      sequence.BeginStep(10);
      sequence.EndStep();
      const uint64_t one_image = store->Stats().conv_bytes;
      for (int step = 0; step < 20; ++step) {
        const StateView view = sequence.BeginStep(1, /*fork=*/true);
        ASSERT_NE(view.source_offsets, nullptr);
        const uint32_t members = store->organisation().state_members();
        for (uint32_t m = 0; m < members; ++m) {
          for (uint32_t k = 0; k < members; ++k) {
            EXPECT_NE(view.source_offsets[m], view.destination_offsets[k]);
          }
        }
        EXPECT_EQ(store->Stats().conv_bytes, 2 * one_image);
        EXPECT_TRUE(store->Validate(3).ok()) << store->Validate(3).ToString();
        sequence.EndStep();
        EXPECT_EQ(store->Stats().conv_bytes, one_image);
        EXPECT_TRUE(store->Validate(3).ok()) << store->Validate(3).ToString();
      }
    }
  }
}

TEST(SequenceState, DroppingReturnsEveryPageInAndOutOfAStep) {
  for (const StateShape& shape :
       {Harbour(StateType::kF32), ConvOnly(), RecurrentOnly(), AttentionOnly(), Uneven()}) {
    for (const char* name : kAll) {
      SCOPED_TRACE(name);
      std::unique_ptr<StateStore> store = MakeStore(shape, name, 16 * kMiB);
      { SequenceState never_stepped = MustAdmit(store.get(), 100, true); }
      ExpectEmpty(*store);
      {
        SequenceState between = MustAdmit(store.get(), 100, true);
        between.BeginStep(30);
        between.EndStep();
        SequenceState moved = std::move(between);
        EXPECT_EQ(moved.position(), 30u);
      }
      ExpectEmpty(*store);
      {
        SequenceState in_fork = MustAdmit(store.get(), 100, true);
        in_fork.BeginStep(30);
        in_fork.EndStep();
        in_fork.BeginStep(70, true);
      }
      ExpectEmpty(*store);
    }
  }
}

TEST(SequenceState, AModelWithoutAttentionNeedsTheSameForEveryLength) {
  for (const char* name : kAll) {
    SCOPED_TRACE(name);
    std::unique_ptr<StateStore> store = MakeStore(RecurrentOnly(), name, 8 * kMiB);
    EXPECT_EQ(store->NeedFor(1).bytes, store->NeedFor(uint64_t{1} << 40).bytes);
    SequenceState sequence = MustAdmit(store.get(), uint64_t{1} << 40);
    const StateView view = sequence.BeginStep(1000);
    EXPECT_EQ(view.attention_base, nullptr);
    EXPECT_EQ(sequence.first_new_group(), sequence.last_new_group());
    EXPECT_NE(view.state_base, nullptr);
    sequence.EndStep();
  }
}

TEST(SequenceState, AModelWithoutRecurrentLayersHasNoImage) {
  for (const char* name : kAll) {
    SCOPED_TRACE(name);
    std::unique_ptr<StateStore> store = MakeStore(AttentionOnly(), name, 8 * kMiB);
    SequenceState sequence = MustAdmit(store.get(), 100, true);
    const StateView view = sequence.BeginStep(100, true);
    EXPECT_EQ(view.state_base, nullptr);
    EXPECT_EQ(view.destination_offsets, nullptr);
    EXPECT_EQ(sequence.last_new_group(), 7u);
    sequence.EndStep();
    EXPECT_EQ(store->Stats().ssm_bytes + store->Stats().conv_bytes, 0u);
  }
}

TEST(SequenceState, ConvSlotsOfS2SequencesShareASlabAndItGoesWithTheLast) {
  std::unique_ptr<StateStore> store = MakeStore(Harbour(StateType::kF32), "s2:block=32", 8 * kMiB);
  ASSERT_EQ(store->organisation().slots_per_page, 4u);
  std::vector<SequenceState> held;
  std::vector<uint64_t> slot_offsets;
  const uint32_t slot_member = store->organisation().state_pages;
  const uint64_t unit = store->organisation().pools[0].unit_bytes;
  for (int i = 0; i < 4; ++i) {
    held.push_back(MustAdmit(store.get(), 16));
    slot_offsets.push_back(held.back().BeginStep(16).destination_offsets[slot_member]);
    held.back().EndStep();
    EXPECT_EQ(slot_offsets[static_cast<size_t>(i)] / unit, slot_offsets[0] / unit);
  }
  EXPECT_EQ(slot_offsets[1] - slot_offsets[0], 2048u);
  EXPECT_EQ(store->Stats().pools[0].slab_pages, 1u);
  EXPECT_EQ(store->Stats().pools[0].used_slots, 4u);
  while (held.size() > 1) held.pop_back();
  EXPECT_EQ(store->Stats().pools[0].slab_pages, 1u);
  held.clear();
  EXPECT_EQ(store->Stats().pools[0].slab_pages, 0u);
  ExpectEmpty(*store);
}

TEST(SequenceState, NoStepAllocatesFromTheHeap) {
  for (const StateShape& shape : {Harbour(StateType::kF32), ConvOnly(), Uneven()}) {
    for (const char* name : kAll) {
      SCOPED_TRACE(name);
      std::unique_ptr<StateStore> store = MakeStore(shape, name, 16 * kMiB);
      SequenceState sequence = MustAdmit(store.get(), 3000, true);
      const uint64_t before = allocation_count.load();
      for (uint32_t i = 0; i < 1000; ++i) {
        sequence.BeginStep(1 + i % 5, i % 3 == 0);
        sequence.EndStep();
      }
      EXPECT_EQ(allocation_count.load(), before);
      const std::string some_text(100, 'x');
      EXPECT_GT(allocation_count.load(), before);  // the counter counts
    }
  }
}

TEST(SequenceStateDeathTest, MisuseOfAStepAborts) {
  std::unique_ptr<StateStore> store = MakeStore(Harbour(StateType::kF32), "s3", 4 * kMiB);
  SequenceState sequence = MustAdmit(store.get(), 20);
  EXPECT_DEATH(sequence.EndStep(), "step_tokens_ > 0");
  EXPECT_DEATH(sequence.BeginStep(0), "tokens > 0");
  EXPECT_DEATH(sequence.BeginStep(21), "reserve_tokens");
  EXPECT_DEATH(sequence.BeginStep(1, true), "may_fork");
  sequence.BeginStep(15);
  EXPECT_DEATH(sequence.BeginStep(1), "step_tokens_ == 0");
  EXPECT_DEATH(store.reset(), "sequences_ == nullptr");
}

// --- Bytes ----------------------------------------------------------------------------------

bool AllPoison(const std::byte* bytes, uint64_t size) {
  for (uint64_t i = 0; i < size; ++i) {
    if (bytes[i] != std::byte{0xFF}) return false;
  }
  return true;
}

TEST(StateStore, PoisonFillsFreedMembersInEveryPlane) {
  for (const StateShape& shape : {Harbour(StateType::kF32), ConvOnly()}) {
    for (const char* name : kAll) {
      SCOPED_TRACE(name);
      std::unique_ptr<StateStore> store = MakeStore(shape, name, 4 * kMiB, /*poison=*/true);
      const uint64_t image_end = store->organisation().conv_start + shape.conv_image_bytes();
      std::byte* group[5];
      std::byte* state_base = nullptr;
      uint64_t state_stride = 0;
      std::vector<uint64_t> members;
      SequenceState other = MustAdmit(store.get(), 16);  // keeps a slab page in use
      other.BeginStep(16);
      {
        SequenceState sequence = MustAdmit(store.get(), 16);
        const StateView view = sequence.BeginStep(16);
        for (uint32_t p = 0; p < 5; ++p) {
          group[p] = view.GroupAt(p, 0);
          std::memset(group[p], 1, shape.group_bytes());
          for (uint64_t x = 0; x < image_end; x += 64) *view.Destination(p).At(x) = std::byte{1};
        }
        state_base = view.state_base;
        state_stride = view.state_plane_stride;
        members.assign(view.destination_offsets,
                       view.destination_offsets + store->organisation().state_members());
      }
      const uint64_t slot_bytes = store->organisation().slot_bytes;
      for (uint32_t p = 0; p < 5; ++p) {
        EXPECT_TRUE(AllPoison(group[p], shape.group_bytes()));
        for (size_t m = 0; m < members.size(); ++m) {
          const bool slot = slot_bytes > 0 && m + 1 == members.size();
          EXPECT_TRUE(AllPoison(state_base + p * state_stride + members[m],
                                slot ? slot_bytes : store->organisation().state_unit_bytes));
        }
      }
    }
  }
}

TEST(StateStore, PoisonAlsoFillsPagesNobodyHasUsedAndIsOffByDefault) {
  for (bool poison : {false, true}) {
    std::unique_ptr<StateStore> store = MakeStore(Harbour(StateType::kF32), "s3", kMiB, poison);
    SequenceState sequence = MustAdmit(store.get(), 16);
    const StateView view = sequence.BeginStep(16);
    EXPECT_EQ(*view.GroupAt(3, 0), poison ? std::byte{0xFF} : std::byte{0});
    EXPECT_EQ(*view.Destination(4).At(100), poison ? std::byte{0xFF} : std::byte{0});
  }
}

TEST(StateStore, StatsCountLiveBytesByKindAndWholePagesByPool) {
  const StateShape shape = Harbour(StateType::kF32);
  std::unique_ptr<StateStore> store = MakeStore(shape, "s3", 4 * kMiB + 1000);
  SequenceState sequence = MustAdmit(store.get(), 100);
  sequence.BeginStep(33);
  EXPECT_EQ(store->Stats().attention_bytes, 0u);  // nothing is complete yet
  sequence.EndStep();
  const StoreStats stats = store->Stats();
  EXPECT_EQ(stats.budget_bytes, 4 * kMiB + 1000);
  EXPECT_EQ(stats.arena_bytes, 4 * kMiB / 20480 * 20480);
  EXPECT_EQ(stats.attention_bytes, 33u * 256 * 5);
  EXPECT_EQ(stats.ssm_bytes, 5u * 32768);
  EXPECT_EQ(stats.conv_bytes, 5u * 1920);
  EXPECT_EQ(stats.pools[0].held_attention_pages, 3u);
  EXPECT_EQ(stats.pools[0].held_state_pages, 9u);
  EXPECT_EQ(stats.pools[0].reserved_pages, 4u);
  EXPECT_EQ(stats.sequences, 1u);
  EXPECT_EQ(stats.mean_run_bytes, 9 * 4096.0);  // a fresh arena gives one run
}

}  // namespace
}  // namespace tessera
