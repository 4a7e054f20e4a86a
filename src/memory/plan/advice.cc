// SPDX-License-Identifier: Apache-2.0
#include "memory/plan/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/bytes.h"

namespace tessera {
namespace {

using Kind = OrganisationSpec::Kind;

// Packing is worth its invalidation work when the object is an order of magnitude below the page.
constexpr double kFarBelow = 10;
// The study's conv slot.
constexpr uint64_t kStudySlotBytes = 32 * kKiB;
// How far demand is moved when a split is judged: four times the attention, or the checkpoints.
constexpr uint64_t kPhase = 4;

// What the rules look at: the tables of the set's block, D0 and S3 with the budget's pages.
struct Facts {
  const Plan& plan;
  Organisation s0, s1, s2, s3;

  const StateShape& shape() const { return plan.geometry.shape; }
  bool hybrid() const { return plan.paging.applies; }
  uint64_t BytesOf(const Organisation& table) const {
    return StateSetBytes(table, plan.set.attention_blocks, plan.set.block_tokens,
                         plan.set.checkpoints);
  }
};

OrganisationSpec SpecOf(Kind kind, const StateSet& set) {
  OrganisationSpec spec;
  spec.kind = kind;
  spec.block_tokens = set.block_tokens;
  return spec;
}

Result<Facts> FactsOf(const Plan& plan) {
  const StateShape& shape = plan.geometry.shape;
  const auto describe = [&](Kind kind) {
    return DescribeOrganisation(SpecOf(kind, plan.set), shape);
  };
  TESSERA_ASSIGN_OR_RETURN(Organisation s0, describe(Kind::kS0));
  TESSERA_ASSIGN_OR_RETURN(Organisation s1, describe(Kind::kS1));
  TESSERA_ASSIGN_OR_RETURN(Organisation s2, describe(Kind::kS2));
  TESSERA_ASSIGN_OR_RETURN(Organisation s3, describe(Kind::kS3));
  return Facts{plan, std::move(s0), std::move(s1), std::move(s2), std::move(s3)};
}

// 0 when the budget is too small for it.
uint64_t Copies(const Facts& facts, const OrganisationSpec& spec, const StateSet& set) {
  const Result<Organisation> table = MakeOrganisation(spec, facts.shape(), facts.plan.pool_bytes);
  return table.has_value() ? CopiesOf(*table, set) : 0;
}

void AdvisePacking(const Facts& facts, std::vector<Advice>* advice) {
  const uint64_t conv = facts.shape().conv_image_bytes();
  if (!facts.hybrid() || conv == 0) return;
  const uint64_t page = facts.s1.pools[0].unit_bytes;
  const double below = static_cast<double>(page) / static_cast<double>(conv);
  if (below >= kFarBelow) {
    advice->push_back(
        {"packing",
         fmt::format("Packing pays: a plane's conv state of {} is {:.0f} times below the page of "
                     "{}; for this set S2 takes {} and S1 {}.",
                     FormatBytes(conv), below, FormatBytes(page),
                     FormatBytes(facts.BytesOf(facts.s2)), FormatBytes(facts.BytesOf(facts.s1)))});
    return;
  }
  advice->push_back(
      {"packing", fmt::format("Packing may cost more invalidations than it saves bytes: a plane's "
                              "conv state of {} is only {:.1f} times below the page of {}.",
                              FormatBytes(conv), below, FormatBytes(page))});
}

void AdviseSlot(const Facts& facts, std::vector<Advice>* advice) {
  const uint64_t conv = facts.shape().conv_image_bytes();
  if (!facts.hybrid() || conv <= kStudySlotBytes) return;
  const std::string breaks = fmt::format(
      "A plane's conv state of {} breaks the slot of {} that S2 is known for: ", FormatBytes(conv),
      FormatBytes(kStudySlotBytes));
  const std::string instead =
      facts.s2.slots_per_page > 0
          ? fmt::format("here a slot is {}, {} to a page of {}.", FormatBytes(facts.s2.slot_bytes),
                        facts.s2.slots_per_page, FormatBytes(facts.s2.pools[0].unit_bytes))
          : fmt::format("no two slots that hold it fit a page of {}, so conv takes pages as in S1.",
                        FormatBytes(facts.s2.pools[0].unit_bytes));
  advice->push_back({"conv-slot", breaks + instead});
}

std::string RatioText(const PagingTrade& trade) {
  const double ratio = trade.switching_ratio();
  if (ratio == 0) return "S1 never takes more than S0";
  if (std::isinf(ratio)) return "S1 never takes less than S0";
  return fmt::format("S1 takes less than S0 from {:.2f} attention blocks per checkpoint on", ratio);
}

void AdvisePaging(const Facts& facts, std::vector<Advice>* advice) {
  if (!facts.hybrid()) return;
  const PagingTrade& trade = facts.plan.paging;
  const StateSet& set = facts.plan.set;
  const auto magnitude = static_cast<uint64_t>(std::abs(trade.delta_bytes));
  std::string verdict = "this set takes the same in both";
  if (trade.delta_bytes > 0) verdict = fmt::format("this set saves {}", FormatBytes(magnitude));
  if (trade.delta_bytes < 0) {
    verdict = fmt::format("not S1 for this set, which would take {} more", FormatBytes(magnitude));
  }
  advice->push_back(
      {"paging", fmt::format("{}; the set has {} for {} checkpoints: {}.", RatioText(trade),
                             set.attention_blocks, set.checkpoints, verdict)});
}

void AdvisePoolShape(const Facts& facts, std::vector<Advice>* advice) {
  if (!facts.hybrid()) return;
  const StateSet& set = facts.plan.set;
  const BestSplit& best = facts.plan.best_split;
  OrganisationSpec d0 = SpecOf(Kind::kD0, set);
  d0.split = best.split;
  const OrganisationSpec s3 = SpecOf(Kind::kS3, set);
  const StateSet more_attention = {kPhase * set.attention_blocks, set.checkpoints,
                                   set.block_tokens};
  const StateSet more_checkpoints = {set.attention_blocks, kPhase * set.checkpoints,
                                     set.block_tokens};
  advice->push_back(
      {"pool-shape",
       fmt::format("Demand that is known and steady suits two pools, demand that changes a shared "
                   "one: D0 holds {} copies of the set at its best split of {:.4f}, S3 {}; with {} "
                   "times the attention that split holds {}, S3 {}, with {} times the checkpoints "
                   "{}, S3 {}.",
                   best.copies, best.split, Copies(facts, s3, set), kPhase,
                   Copies(facts, d0, more_attention), Copies(facts, s3, more_attention), kPhase,
                   Copies(facts, d0, more_checkpoints), Copies(facts, s3, more_checkpoints))});
}

void AdviseLifetimes(const Facts& facts, std::vector<Advice>* advice) {
  if (facts.s2.slots_per_page == 0) return;
  advice->push_back(
      {"lifetimes", fmt::format("Very short lifetimes and frequent invalidation may suit S1 better "
                                "than S2: reassigning one slab page of S2 invalidates up to {} "
                                "checkpoints.",
                                facts.s2.slots_per_page)});
}

void AdviseS3(const Facts& facts, std::vector<Advice>* advice) {
  if (facts.s3.state_pool < 0) return;
  const uint64_t bytes = facts.BytesOf(facts.s3);
  const uint64_t own = IdealBytes(facts.shape(), facts.plan.set);
  advice->push_back(
      {"s3", fmt::format("S3 takes {} for the set, {:.2f} % over its own bytes; its rounding can "
                         "cost at most {} beyond any of S0, S1, S2 and D0 at its best split.",
                         FormatBytes(bytes),
                         100 * (static_cast<double>(bytes) / static_cast<double>(own) - 1),
                         FormatBytes(facts.plan.s3_bound_bytes))});
}

void AdviseDensity(const Facts& facts, std::vector<Advice>* advice) {
  const Plan& plan = facts.plan;
  if (!facts.hybrid()) return;
  advice->push_back(
      {"density",
       fmt::format("A checkpoint takes the bytes of {:.0f} tokens of attention: keep one every {} "
                   "tokens at most; a denser grid starves attention.",
                   plan.checkpoint_price_tokens, plan.checkpoint_spacing)});
}

void AdvisePrefix(const Facts& facts, std::vector<Advice>* advice) {
  const Plan& plan = facts.plan;
  if (plan.least_prefix_tokens > plan.geometry.context_length) {
    advice->push_back(
        {"least-prefix", fmt::format("Nothing can be reused: the grid of {} tokens is beyond the "
                                     "model's context of {}.",
                                     plan.checkpoint_grid, plan.geometry.context_length)});
    return;
  }
  std::string text =
      fmt::format("The least prefix that can be reused is {} token{}", plan.least_prefix_tokens,
                  plan.least_prefix_tokens == 1 ? "" : "s");
  if (plan.unified_page_tokens > 0) {
    text += fmt::format("; a grid forced by one page for both kinds would make it {}",
                        plan.unified_page_tokens);
  }
  advice->push_back({"least-prefix", text + "."});
}

}  // namespace

Result<std::vector<Advice>> AdviseOn(const Plan& plan) {
  TESSERA_ASSIGN_OR_RETURN(const Facts facts, FactsOf(plan));
  std::vector<Advice> advice;
  for (auto* rule : {AdvisePacking, AdviseSlot, AdvisePaging, AdvisePoolShape, AdviseLifetimes,
                     AdviseS3, AdviseDensity, AdvisePrefix}) {
    rule(facts, &advice);
  }
  advice.push_back({"scope",
                    "No organisation wins over all budgets, loads and headrooms, and no ranking "
                    "carries to another geometry: this is for this set, model and budget."});
  return advice;
}

}  // namespace tessera
