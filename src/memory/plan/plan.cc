// SPDX-License-Identifier: Apache-2.0
#include "memory/plan/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "memory/plan/advice.h"
#include "memory/store/arena_layout.h"
#include "memory/store/state_need.h"

namespace tessera {
namespace {

constexpr uint64_t kMany = std::numeric_limits<uint64_t>::max();
constexpr uint32_t kDefaultContext = 8192;
// Sums of bytes of a set stay far from 64 bits below it.
constexpr double kMaxSetBytes = 0x1p60;

Status CheckSet(const StateShape& shape, const StateSet& set) {
  if (set.attention_blocks == 0 && set.checkpoints == 0) {
    return InvalidArgument("the set of state is empty: expected attention blocks or checkpoints");
  }
  if (set.block_tokens == 0 || set.block_tokens % kGroupTokens != 0) {
    return InvalidArgument(fmt::format("a block must be a positive multiple of {} tokens; it is {}",
                                       kGroupTokens, set.block_tokens));
  }
  // The largest page is S0's: a block or an image, with rows rounded up.
  const double block = static_cast<double>(shape.group_bytes()) * set.block_tokens / kGroupTokens;
  const double page = std::max(block, static_cast<double>(shape.image_bytes())) * 2 + 0x1p20;
  const double objects =
      static_cast<double>(set.attention_blocks) + static_cast<double>(set.checkpoints);
  if (page * shape.planes() * objects <= kMaxSetBytes) return Status::Ok();
  return InvalidArgument(
      fmt::format("a set of {} attention blocks of {} tokens and {} checkpoints is beyond 2^60 "
                  "bytes",
                  set.attention_blocks, set.block_tokens, set.checkpoints));
}

Status CheckOptions(const PlanOptions& options) {
  TESSERA_RETURN_IF_ERROR(options.geometry.shape.Validate());
  TESSERA_RETURN_IF_ERROR(CheckSet(options.geometry.shape, options.set));
  if (options.organisations.empty()) return InvalidArgument("no organisation to plan for");
  if (options.users == 0) return InvalidArgument("users: expected at least 1, found 0");
  if (options.checkpoint_grid == 0) {
    return InvalidArgument("checkpoint-grid: expected at least 1, found 0");
  }
  const uint32_t limit = options.geometry.context_length;
  if (options.context_tokens <= limit) return Status::Ok();
  return InvalidArgument(fmt::format("context: expected at most the model's {} tokens, found {}",
                                     limit, options.context_tokens));
}

std::vector<KindPlan> KindsOf(const StateGeometry& geometry, const KeptRows& rows) {
  const StateShape& s = geometry.shape;
  std::vector<KindPlan> kinds;
  if (s.attention_layers > 0) {
    const uint64_t bytes = s.kv_bytes_per_token_layer();
    kinds.push_back({"attention", "token", s.attention_layers, bytes, bytes * s.attention_layers});
  }
  if (s.recurrent_layers > 0 && s.ssm_bytes() > 0) {
    kinds.push_back(
        {"ssm", "checkpoint", s.recurrent_layers, s.ssm_bytes_per_layer(), s.ssm_bytes()});
  }
  if (s.recurrent_layers > 0 && s.conv_bytes() > 0) {
    kinds.push_back(
        {"conv", "checkpoint", s.recurrent_layers, s.conv_bytes_per_layer(), s.conv_bytes()});
  }
  if (rows.unit_bytes() > 0) {
    kinds.push_back({"kept row", "prompt", 1, rows.unit_bytes(), rows.unit_bytes()});
  }
  return kinds;
}

Taken TakenOf(uint64_t bytes, uint64_t own_bytes) {
  // Saturated bytes stay so.
  return {bytes, bytes == kMany ? 0 : bytes - own_bytes};
}

// A sequence that shares nothing.
store::Terms TermsOf(uint64_t tokens) {
  store::Terms terms;
  terms.max_tokens = tokens;
  return terms;
}

uint64_t SlotBytes(const Organisation& table) { return table.slot_bytes * table.planes; }

// What objects take of an organisation, whatever the budget.
void PlanObjects(const Plan& plan, OrganisationPlan* out) {
  const StateGeometry& geometry = plan.geometry;
  const StateShape& shape = geometry.shape;
  const Organisation& table = out->table;
  const StateSet block = {1, 0, plan.set.block_tokens};
  const StateSet checkpoint = {0, 1, plan.set.block_tokens};
  if (table.attention_pool >= 0) {
    out->token_bytes = static_cast<double>(table.page_bytes_all_planes(table.attention_pool)) /
                       (table.groups_per_page * kGroupTokens);
  }
  out->block = TakenOf(StateSetBytes(table, 1, plan.set.block_tokens, 0), IdealBytes(shape, block));
  if (table.state_pool >= 0) {
    const uint64_t pages = table.state_pages * table.page_bytes_all_planes(table.state_pool);
    out->checkpoint = TakenOf(pages + SlotBytes(table), IdealBytes(shape, checkpoint));
  }
  const uint64_t own =
      uint64_t{plan.context_tokens} * shape.kv_bytes_per_token_layer() * shape.attention_layers +
      IdealBytes(shape, checkpoint);
  out->sequence = TakenOf(store::NeedOf(table, TermsOf(plan.context_tokens)).bytes, own);
  out->set = TakenOf(
      StateSetBytes(table, plan.set.attention_blocks, plan.set.block_tokens, plan.set.checkpoints),
      IdealBytes(shape, plan.set));
  const uint64_t prefix = std::min<uint64_t>(plan.least_prefix_tokens, geometry.context_length);
  out->least_prefix_bytes = store::NeedOf(table, TermsOf(prefix)).bytes;
  if (table.slots_per_page > 0 && out->least_prefix_bytes != kMany) {  // the whole slab
    out->least_prefix_bytes += table.page_bytes_all_planes(table.state_pool) - SlotBytes(table);
  }
}

// The largest n in [0, most] of which the pools hold what `needed(n)` says; it never falls.
template <typename Needed>
uint64_t Largest(uint64_t most, uint64_t pool_bytes, const Needed& needed) {
  uint64_t low = 0;
  uint64_t high = most;
  while (low < high) {
    const uint64_t middle = low + (high - low + 1) / 2;
    if (needed(middle) <= pool_bytes) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

void PlanUsers(const Plan& plan, OrganisationPlan* out) {
  const Organisation& table = out->table;
  const auto bytes_for = [&](uint64_t users, uint64_t tokens) {
    return store::PoolBytesOf(table, TermsOf(tokens), users);
  };
  const uint64_t needed = bytes_for(plan.users, plan.context_tokens);
  out->budget_for_users_bytes = needed == kMany ? kMany : plan.rows.BudgetFor(needed);
  if (!out->fits.ok()) return;
  out->longest_context = static_cast<uint32_t>(
      Largest(plan.geometry.context_length, plan.pool_bytes,
              [&](uint64_t tokens) { return bytes_for(plan.users, tokens); }));
  // Each sequence takes a page or a slot of some pool.
  out->users = Largest(kMaxPoolIndices, plan.pool_bytes,
                       [&](uint64_t users) { return bytes_for(users, plan.context_tokens); });
}

Result<OrganisationPlan> PlanOrganisation(const Plan& plan, const OrganisationSpec& spec) {
  OrganisationPlan out;
  TESSERA_ASSIGN_OR_RETURN(out.table, DescribeOrganisation(spec, plan.geometry.shape));
  Result<Organisation> cut = MakeOrganisation(spec, plan.geometry.shape, plan.pool_bytes);
  if (cut.has_value()) {
    out.table = *std::move(cut);
    const uint64_t row_bytes = plan.budget_bytes - plan.pool_bytes;
    out.arena_bytes = store::LayOutPools(out.table, plan.budget_bytes, row_bytes).bytes;
    out.copies = CopiesOf(out.table, plan.set);
  } else {
    out.fits = cut.error();
  }
  PlanObjects(plan, &out);
  PlanUsers(plan, &out);
  return out;
}

Result<PagingTrade> TradeOf(const StateShape& shape, const StateSet& set) {
  PagingTrade trade;
  if (shape.attention_layers == 0 || shape.recurrent_layers == 0) return trade;
  OrganisationSpec s0;
  s0.kind = OrganisationSpec::Kind::kS0;
  s0.block_tokens = set.block_tokens;
  OrganisationSpec s1 = s0;
  s1.kind = OrganisationSpec::Kind::kS1;
  TESSERA_ASSIGN_OR_RETURN(const Organisation coarse, DescribeOrganisation(s0, shape));
  TESSERA_ASSIGN_OR_RETURN(const Organisation paged, DescribeOrganisation(s1, shape));
  const auto bytes = [&](const Organisation& table, uint64_t blocks, uint64_t checkpoints) {
    return static_cast<int64_t>(StateSetBytes(table, blocks, set.block_tokens, checkpoints));
  };
  trade.applies = true;
  trade.gain_per_block = bytes(coarse, 1, 0) - bytes(paged, 1, 0);
  trade.loss_per_checkpoint = bytes(paged, 0, 1) - bytes(coarse, 0, 1);
  trade.delta_bytes = bytes(coarse, set.attention_blocks, set.checkpoints) -
                      bytes(paged, set.attention_blocks, set.checkpoints);
  return trade;
}

// Page unification makes one page of a checkpoint and of a block of attention, a multiple of 256
// tokens: Falcon-H1-7B 1,792 with 2-byte state, 3,328 with fp32.
uint64_t UnifiedPageTokens(const StateShape& shape) {
  constexpr uint64_t kTokens = 256;
  if (shape.attention_layers == 0 || shape.recurrent_layers == 0) return 0;
  const uint64_t layer = shape.ssm_bytes_per_layer() + shape.conv_bytes_per_layer();
  return kTokens * DivideUp(layer, kTokens * shape.kv_bytes_per_token_layer());
}

Status PlanBudget(const PlanOptions& options, Plan* plan) {
  plan->budget_given = options.budget_bytes > 0;
  plan->budget_bytes = options.budget_bytes;
  if (!plan->budget_given) {
    TESSERA_ASSIGN_OR_RETURN(
        const Organisation table,
        DescribeOrganisation(options.organisations.back(), plan->geometry.shape));
    const uint64_t needed = store::PoolBytesOf(table, TermsOf(plan->context_tokens), plan->users);
    plan->budget_bytes = plan->rows.BudgetFor(needed);
    if (plan->budget_bytes == kMany) {
      return InvalidArgument(
          fmt::format("no budget holds {} users of {} tokens", plan->users, plan->context_tokens));
    }
  }
  plan->kept_rows = plan->rows.Units(plan->budget_bytes);
  plan->pool_bytes = plan->rows.PoolBytes(plan->budget_bytes);
  return Status::Ok();
}

void PlanPrice(Plan* plan) {
  const StateShape& s = plan->geometry.shape;
  if (s.attention_layers == 0 || s.recurrent_layers == 0) return;
  const uint64_t token = s.kv_bytes_per_token_layer() * s.attention_layers;
  const uint64_t checkpoint = s.ssm_bytes() + s.conv_bytes();
  plan->checkpoint_price_tokens = static_cast<double>(checkpoint) / static_cast<double>(token);
  plan->checkpoint_spacing =
      static_cast<uint32_t>(RoundUp(DivideUp(checkpoint, token), kGroupTokens));
}

}  // namespace

double Taken::waste_percent() const {
  const double own = static_cast<double>(bytes) - static_cast<double>(waste_bytes);
  return own == 0 ? 0 : 100 * static_cast<double>(waste_bytes) / own;
}

double PagingTrade::switching_ratio() const {
  if (loss_per_checkpoint <= 0) return 0;
  if (gain_per_block <= 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(loss_per_checkpoint) / static_cast<double>(gain_per_block);
}

Result<Plan> MakePlan(const PlanOptions& options) {
  TESSERA_RETURN_IF_ERROR(CheckOptions(options));
  const StateGeometry& geometry = options.geometry;
  Plan plan;
  plan.geometry = geometry;
  plan.set = options.set;
  plan.users = options.users;
  plan.context_tokens = options.context_tokens > 0
                            ? options.context_tokens
                            : std::min(kDefaultContext, geometry.context_length);
  plan.checkpoint_grid = options.checkpoint_grid;
  plan.rows = options.reuse ? KeptRows(geometry.width) : KeptRows();
  plan.kinds = KindsOf(geometry, plan.rows);
  PlanPrice(&plan);
  TESSERA_RETURN_IF_ERROR(PlanBudget(options, &plan));
  // Attention alone is valid at any token.
  plan.least_prefix_tokens = geometry.shape.recurrent_layers > 0 ? options.checkpoint_grid : 1;
  plan.unified_page_tokens = UnifiedPageTokens(geometry.shape);
  for (const OrganisationSpec& spec : options.organisations) {
    TESSERA_ASSIGN_OR_RETURN(OrganisationPlan planned, PlanOrganisation(plan, spec));
    plan.organisations.push_back(std::move(planned));
  }
  TESSERA_ASSIGN_OR_RETURN(plan.paging, TradeOf(geometry.shape, options.set));
  if (plan.paging.applies) {
    plan.best_split = BestSplitFor(geometry.shape, options.set, plan.pool_bytes);
  }
  TESSERA_ASSIGN_OR_RETURN(const Organisation s3, DescribeOrganisation({}, geometry.shape));
  plan.s3_bound_bytes = S3BoundBytes(s3, options.set);
  TESSERA_ASSIGN_OR_RETURN(plan.advice, AdviseOn(plan));
  return plan;
}

}  // namespace tessera
