// SPDX-License-Identifier: Apache-2.0
//
// Pages of several groups, where the groups of one prefix come from pages of two sequences: a page
// is found again from its deepest citation after what lay between its groups has gone.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "memory/geometry/model_shapes.h"
#include "memory/store/state_store.h"

namespace tessera {
namespace {

SequenceState MustAdmit(StateStore& store, const SequenceRequest& request) {
  AdmitResult result = store.Admit(request);
  EXPECT_EQ(result.outcome, Admission::kAdmitted) << result.reason;
  return *std::move(result.sequence);
}

void Compute(SequenceState& sequence, uint32_t tokens, std::span<const TokenId> history) {
  sequence.BeginStep(tokens);
  sequence.EndStep();
  sequence.Publish(history, {}, /*last=*/false);
}

TEST(BlockCitation, APageOutlivesAGroupOfAnotherPageBetweenItsOwn) {
  StoreOptions options;
  options.shape = testing::Harbour(StateType::kF32);
  options.shape.recurrent_layers = 0;
  options.organisation = *OrganisationSpec::Parse("s1:block=64");
  options.dry = true;
  options.budget_bytes =
      8 * *StateStore::BudgetForSequences(options.shape, options.organisation, 1, 64);
  auto store = std::move(*StateStore::Create(options));
  std::vector<TokenId> tokens(65);
  std::iota(tokens.begin(), tokens.end(), 1);

  {
    // Both cold. `a` leaves the first two groups and the fourth, `b` the third.
    const uint32_t boundaries[] = {32, 64};
    const uint32_t boundary = 48;
    SequenceRequest request;
    request.max_tokens = tokens.size();
    request.prompt = tokens;
    request.checkpoint_at = boundaries;
    SequenceState a = MustAdmit(*store, request);
    request.checkpoint_at = {&boundary, 1};
    SequenceState b = MustAdmit(*store, request);
    Compute(a, 32, tokens);
    Compute(b, 48, tokens);
    Compute(a, 32, tokens);
  }
  ASSERT_TRUE(store->Validate(3).ok()) << store->Validate(3).ToString();
  const PoolStats pool = store->Stats().pools[0];
  ASSERT_EQ(pool.cached_attention_pages, 2u);

  // One page is missing: the fourth group goes, then the third, whose page comes free.
  SequenceRequest large;
  large.max_tokens = 64 * uint64_t{pool.free_pages + 1};
  const SequenceState c = MustAdmit(*store, large);
  EXPECT_EQ(store->Stats().pools[0].cached_attention_pages, 1u);
  EXPECT_TRUE(store->Validate(3).ok()) << store->Validate(3).ToString();
  store->Clear();
  EXPECT_EQ(store->Stats().pools[0].cached_attention_pages, 0u);
  EXPECT_TRUE(store->Validate(3).ok()) << store->Validate(3).ToString();
}

}  // namespace
}  // namespace tessera
