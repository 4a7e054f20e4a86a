// SPDX-License-Identifier: Apache-2.0
//
// MakePlan says what the state memory of a model takes and holds, from its geometry alone, before a
// weight is read: for each kind of state and each organisation the bytes, the waste, what a budget
// holds of a set of reusable state, how long N users' contexts may be in it, and what N users of
// length L need.
//
// P1  Pages, arena and kept rows are those StateStore::Create maps for the same budget, and `users`
//     is how many sequences it admits: the plan calls the store's own sizing and has no formula of
//     its own for it.
// P2  With reuse, kept rows are carved first and the organisation's pools get the rest; without,
//     the pools get everything.
//
// Failure: kInvalidArgument for options that are out of range; the geometry's own error. A budget
// that an organisation cannot use at all is not a failure of the plan: `fits` of that organisation
// says which bytes it would take, and its figures that need pages are 0.
// Threads: a pure function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "memory/geometry/kept_rows.h"
#include "memory/geometry/named_geometries.h"
#include "memory/geometry/organisation.h"
#include "memory/plan/state_set.h"

namespace tessera {

struct PlanOptions {
  StateGeometry geometry;                       // with the state type to plan for
  std::vector<OrganisationSpec> organisations;  // at least one
  uint64_t budget_bytes = 0;  // 0: what `users` of `context_tokens` need with the last organisation
  uint32_t users = 16;        // N
  uint32_t context_tokens = 0;  // L; 0: 8,192, or the model's context if that is shorter
  StateSet set = {16, 4};       // the study's example: 8,192 tokens, four kept checkpoints
  uint32_t checkpoint_grid = 1;
  bool reuse = true;
};

// One sort of state, in its own bytes, without what an organisation rounds.
struct KindPlan {
  std::string name;  // "attention", "ssm", "conv", "kept row"
  std::string unit;  // what the bytes are of: "token", "checkpoint", "prompt"
  uint32_t layers = 0;
  uint64_t layer_bytes = 0;
  uint64_t model_bytes = 0;
};

// Bytes an object takes, all planes, and how many of them are not its own.
struct Taken {
  uint64_t bytes = 0;
  uint64_t waste_bytes = 0;

  // Percent of the object's own bytes; 0 when it has none.
  double waste_percent() const;
};

struct OrganisationPlan {
  Organisation table;        // its pages are those of the budget
  Status fits;               // of the budget; its message has the bytes needed
  uint64_t arena_bytes = 0;  // kept rows included

  double token_bytes = 0;  // of attention in full pages
  Taken block;             // T tokens of attention
  Taken checkpoint;        // a slot by its own bytes
  Taken sequence;          // L tokens and the live state
  Taken set;               // slabs whole: the study's bytes(S)
  uint64_t copies = 0;     // B / M_X(S)

  // A shared prefix of `least_prefix_tokens` and its checkpoint, slabs whole.
  uint64_t least_prefix_bytes = 0;

  uint32_t longest_context = 0;         // for N users; at most the model's
  uint64_t users = 0;                   // of L tokens in the budget
  uint64_t budget_for_users_bytes = 0;  // for N users of L tokens; 2^64-1 when none could do
};

// S0 against S1 for x_A blocks and x_R checkpoints: S0 - S1 = gain·x_A - loss·x_R bytes.
struct PagingTrade {
  bool applies = false;  // the model has both kinds of layers
  int64_t gain_per_block = 0;
  int64_t loss_per_checkpoint = 0;
  int64_t delta_bytes = 0;  // of the set; above 0: S1 takes less

  // x_A / x_R from which S1 takes less; 0: always, infinite: never.
  double switching_ratio() const;
};

struct Advice {
  std::string rule;  // "packing", "conv-slot", …: one word for machines
  std::string text;  // one sentence with its numbers
};

struct Plan {
  StateGeometry geometry;
  StateSet set;
  uint32_t users = 0;
  uint32_t context_tokens = 0;
  uint32_t checkpoint_grid = 1;

  std::vector<KindPlan> kinds;
  double checkpoint_price_tokens = 0;  // KV tokens that take as many bytes; 0 without attention
  uint32_t checkpoint_spacing = 0;     // the price in whole groups: one every so many tokens

  uint64_t budget_bytes = 0;
  bool budget_given = false;
  KeptRows rows;
  uint64_t kept_rows = 0;
  uint64_t pool_bytes = 0;  // what the rows leave

  // The least prefix that can be reused: a boundary of the grid, in any organisation.
  uint64_t least_prefix_tokens = 0;
  uint64_t unified_page_tokens = 0;  // what page unification would make of the grid; 0: no such

  std::vector<OrganisationPlan> organisations;
  PagingTrade paging;           // S0 against S1, whichever are planned
  BestSplit best_split;         // D0's, when the model has both kinds; of the budget
  uint64_t s3_bound_bytes = 0;  // S3BoundBytes of the set
  std::vector<Advice> advice;
};

Result<Plan> MakePlan(const PlanOptions& options);

}  // namespace tessera
