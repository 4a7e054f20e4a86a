// SPDX-License-Identifier: Apache-2.0
//
// Seeded random admissions, steps, forks and drops over every organisation and several shapes. Each
// sequence writes a pattern of its own into every byte it owns, through the StateView alone, and
// checks it whenever it steps or goes: whoever else wrote there, or was given the same bytes, is
// found.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "base/random.h"
#include "memory/geometry/model_shapes.h"
#include "memory/store/state_store.h"

namespace tessera {
namespace {

struct Setup {
  StateShape shape;
  const char* organisation;
  uint64_t shuffle_seed;
};

void WritePattern(std::byte* at, uint64_t bytes, uint64_t key) {
  for (uint64_t i = 0; i < bytes; i += 8) {
    const uint64_t value = key * 0x9E3779B97F4A7C15u + i;
    std::memcpy(at + i, &value, 8);
  }
}

bool HasPattern(const std::byte* at, uint64_t bytes, uint64_t key) {
  for (uint64_t i = 0; i < bytes; i += 8) {
    const uint64_t value = key * 0x9E3779B97F4A7C15u + i;
    if (std::memcmp(at + i, &value, 8) != 0) return false;
  }
  return true;
}

uint64_t Key(uint64_t a, uint64_t b, uint64_t c) {
  return SplitMix64(SplitMix64(a) ^ b * 1024 ^ c);
}

class Tenant {
 public:
  Tenant(uint64_t id, SequenceState state, bool may_fork)
      : id_(id), state_(std::move(state)), may_fork_(may_fork) {}

  uint64_t left() const { return state_.max_tokens() - state_.position(); }

  void Step(const StateStore& store, uint32_t tokens, bool fork) {
    fork = fork && may_fork_;
    view_ = state_.BeginStep(tokens, fork);
    CheckGroups(store);
    for (uint32_t group = state_.first_new_group(); group < state_.last_new_group(); ++group) {
      for (uint32_t p = 0; p < store.organisation().planes; ++p) {
        WritePattern(view_.GroupAt(p, group), store.organisation().group_bytes, Key(id_, p, group));
      }
    }
    groups_ = state_.last_new_group();
    if (store.organisation().state_pool >= 0) StepImage(store);
    state_.EndStep();
  }

  // Through the addresses of the last step: they stay the sequence's own until it goes.
  void Check(const StateStore& store) const {
    CheckGroups(store);
    if (version_ == 0) return;
    for (uint32_t p = 0; p < store.organisation().planes; ++p) {
      ASSERT_TRUE(ImageHas(store, view_.Destination(p), p, version_)) << "tenant " << id_;
    }
  }

 private:
  void CheckGroups(const StateStore& store) const {
    for (uint32_t group = 0; group < groups_; ++group) {
      for (uint32_t p = 0; p < store.organisation().planes; ++p) {
        ASSERT_TRUE(HasPattern(view_.GroupAt(p, group), store.organisation().group_bytes,
                               Key(id_, p, group)))
            << "tenant " << id_ << " group " << group << " plane " << p;
      }
    }
  }

  void StepImage(const StateStore& store) {
    for (uint32_t p = 0; p < store.organisation().planes; ++p) {
      ASSERT_EQ(view_.Source(p).is_zero(), version_ == 0);
      if (version_ > 0) {
        ASSERT_TRUE(ImageHas(store, view_.Source(p), p, version_)) << "tenant " << id_;
      }
      WriteImage(store, view_.Destination(p), p, version_ + 1);
      const bool forked = view_.source_offsets != view_.destination_offsets;
      if (version_ > 0 && forked) {  // the source is as it was
        ASSERT_TRUE(ImageHas(store, view_.Source(p), p, version_)) << "tenant " << id_;
      }
    }
    ++version_;
  }

  // SSM and conv by their own starts, in steps that no member boundary divides.
  template <typename Visit>
  static void ForEachPiece(const StateStore& store, Visit visit) {
    const Organisation& table = store.organisation();
    for (uint64_t x = 0; x < store.shape().ssm_image_bytes(); x += 64) visit(table.ssm_start + x);
    for (uint64_t x = 0; x < store.shape().conv_image_bytes(); x += 32) visit(table.conv_start + x);
  }

  bool ImageHas(const StateStore& store, const PagedBytes& image, uint32_t p,
                uint64_t version) const {
    bool has = true;
    ForEachPiece(store, [&](uint64_t x) {
      has = has && HasPattern(image.At(x), 32, Key(id_ ^ version << 20, p, x));
    });
    return has;
  }
  void WriteImage(const StateStore& store, const PagedBytes& image, uint32_t p, uint64_t version) {
    ForEachPiece(store, [&](uint64_t x) {
      EXPECT_GE(image.ContiguousFrom(x), 32u);
      WritePattern(image.At(x), 32, Key(id_ ^ version << 20, p, x));
    });
  }

  uint64_t id_;
  SequenceState state_;
  bool may_fork_;
  StateView view_;
  uint32_t groups_ = 0;
  uint64_t version_ = 0;  // of the image; 0: none
};

void RunScenario(const Setup& setup, uint64_t seed) {
  Random random(seed);
  StoreOptions options;
  options.shape = setup.shape;
  options.organisation = OrganisationSpec::Parse(setup.organisation).value();
  options.budget_bytes =
      4 * StateStore::BudgetForSequences(setup.shape, options.organisation, 1, 120, true).value();
  options.poison = true;
  options.shuffle_seed = setup.shuffle_seed;
  std::unique_ptr<StateStore> store = StateStore::Create(options).value();
  std::vector<Tenant> tenants;
  uint64_t next_id = 1;
  for (int op = 0; op < 400; ++op) {
    const uint64_t choice = random.Below(10);
    if (choice < 2 || tenants.empty()) {
      const bool may_fork = random.Below(2) == 0;
      AdmitResult result = store->Admit(1 + random.Below(120), may_fork);
      ASSERT_NE(result.outcome, Admission::kNeverFits) << result.reason;
      if (result.outcome == Admission::kAdmitted) {
        tenants.emplace_back(next_id++, *std::move(result.sequence), may_fork);
      } else {
        ASSERT_FALSE(tenants.empty()) << "an empty store must admit: " << result.reason;
      }
    } else if (choice < 9) {
      Tenant& tenant = tenants[random.Below(tenants.size())];
      const uint64_t tokens = std::min<uint64_t>(tenant.left(), 1 + random.Below(25));
      if (tokens > 0) tenant.Step(*store, static_cast<uint32_t>(tokens), random.Below(2) == 0);
    } else {
      const size_t index = random.Below(tenants.size());
      tenants[index].Check(*store);
      std::swap(tenants[index], tenants.back());
      tenants.pop_back();
    }
    const Status valid = store->Validate(3);
    ASSERT_TRUE(valid.ok()) << valid.ToString();
    if (::testing::Test::HasFailure()) return;
  }
  for (const Tenant& tenant : tenants) tenant.Check(*store);
  tenants.clear();
  for (const PoolStats& pool : store->Stats().pools) ASSERT_EQ(pool.free_pages, pool.total_pages);
}

std::vector<StateShape> Shapes() {
  StateShape hybrid = testing::Harbour(StateType::kF32);
  hybrid.attention_layers = 2;
  hybrid.recurrent_layers = 4;
  hybrid.ssm_heads = 3;
  StateShape recurrent = hybrid;
  recurrent.attention_layers = 0;
  recurrent.recurrent_layers = 2;
  StateShape attention = hybrid;
  attention.recurrent_layers = 0;
  StateShape conv = hybrid;
  conv.ssm_heads = conv.ssm_head_dim = conv.ssm_state = 0;
  conv.conv_channels = 50;
  StateShape odd = hybrid;  // rows that need padding, groups that no row divides
  odd.head_dim = 6;
  odd.ssm_state = 37;
  odd.state_type = StateType::kBF16;
  return {hybrid, recurrent, attention, conv, odd};
}

TEST(StateStoreModel, NobodyEverWritesIntoAnothersBytes) {
  uint64_t seed = 1;
  for (const StateShape& shape : Shapes()) {
    for (const char* organisation :
         {"s0:block=32", "s1:block=32", "s2:block=32", "d0:split=0.6", "s3"}) {
      for (uint64_t shuffle_seed : {0, 9}) {
        RunScenario({shape, organisation, shuffle_seed}, seed);
        if (::testing::Test::HasFailure()) {
          std::printf("seed %llu, %s, A %u R %u, shuffle %llu\n",
                      static_cast<unsigned long long>(seed), organisation, shape.attention_layers,
                      shape.recurrent_layers, static_cast<unsigned long long>(shuffle_seed));
          return;
        }
        ++seed;
      }
    }
  }
}

}  // namespace
}  // namespace tessera
