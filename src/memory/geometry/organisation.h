// SPDX-License-Identifier: Apache-2.0
//
// An Organisation is a table: the pools that share the budget, and how the attention state and the
// recurrent image of a plane are cut into members of them. S0, S1, S2, D0 and S3 differ in nothing
// else: allocator, store, kernels and planner read the table and never ask which one it is.
//
//            pools   attention page (per plane)        image (per plane)
//   S0       1       max(T·kv·a, image), one block     1 page
//   S1       1       T·kv·a, one block                 ⌈ssm/page⌉ + ⌈conv/page⌉ pages
//   S2       1       T·kv·a, one block                 ⌈ssm/page⌉ pages + 1 conv slot
//   D0       2       16·kv·a, one group                1 unit of the other pool
//   S3       1       U = t·kv·a, t/16 groups           ⌈image/U⌉ pages, or 1 slot if image < U/2
//
// T is the block (default 512 tokens), t the fine page (default 16 tokens: one group), a the
// attention layers per plane. Units of pools that hold images are rounded up to a multiple of
// max(64 B, SSM row), so that no row straddles two members: by 0 for published models. Without
// attention layers S1 and S2 pages are 512 KiB, S0's the image, S3's t KiB; D0 gives all to state.
// Without recurrent layers there is no state pool and D0 gives all to attention. An S2 conv slot is
// the next power of two of the plane's conv image; if fewer than 2 fit a page, conv takes pages as
// in S1. An S3 slot is U/⌊U/image⌋, cut to 64 B.
//
// O1  A pool's page_count = ⌊its bytes / (P · unit)⌋; the sum over pools never exceeds the budget.
// O2  Bytes of a member = its pool's unit, or slot_bytes for a slot; every kind's start and unit
//     are multiples of 64 (32 inside conv rows), and SSM rows never straddle members.
//
// Failure: kInvalidArgument for a spec that does not parse or does not fit the shape; kNoMemory
// when the budget holds no page of a pool that is needed, naming the bytes it takes; the shape's
// own error when it does not validate. Threads: pure functions of their arguments.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "memory/geometry/state_shape.h"

namespace tessera {

// What --organisation says: "s3", "s3:page=64", "s2", "s1:block=256", "s0", "d0:split=0.4".
struct OrganisationSpec {
  enum class Kind : uint8_t { kS0, kS1, kS2, kD0, kS3 };
  Kind kind = Kind::kS3;
  uint32_t block_tokens = 512;  // S0-S2: a positive multiple of 16
  uint32_t page_tokens = 16;    // S3: likewise
  double split = 0.5;           // D0: the attention pool's share, in (0, 1), to six decimals

  static Result<OrganisationSpec> Parse(std::string_view text);
  std::string ToString() const;  // parses back to the same spec
};

// Pages of a pool, and its slots: room to spare below StrongId's invalid value.
inline constexpr uint64_t kMaxPoolIndices = uint64_t{1} << 31;

// Shares of the budget are whole millionths, so that "0.4" is exactly two fifths.
inline constexpr uint64_t kShareScale = 1'000'000;

struct PoolTable {
  std::string name;              // "shared", "attention", "state"
  uint64_t unit_bytes = 0;       // one page in one plane
  uint32_t page_count = 0;       // per plane; a page id names the same index in every plane
  uint64_t share = kShareScale;  // of the budget, rounded down; the last pool takes the rest
};

struct Organisation {
  OrganisationSpec spec;
  uint32_t planes = 0;
  std::vector<PoolTable> pools;

  // Attention: pages of pools[attention_pool], each groups_per_page groups laid end to end.
  int attention_pool = -1;  // -1: the model has no attention layers
  uint32_t groups_per_page = 0;
  uint64_t group_bytes = 0;

  // Image: state_pages whole pages of pools[state_pool], then one slot if slot_bytes > 0.
  int state_pool = -1;  // -1: the model has no recurrent layers
  uint32_t state_pages = 0;
  uint64_t slot_bytes = 0;  // 0: no slot
  uint32_t slots_per_page = 0;
  // Linear layout over the members (see StateView): member = x / state_unit_bytes.
  uint64_t state_unit_bytes = 0;
  uint64_t ssm_start = 0;
  uint64_t conv_start = 0;

  uint32_t state_members() const { return state_pages + (slot_bytes > 0 ? 1 : 0); }
  // 2^32-1, more than any pool has, when it would be more than that.
  uint32_t AttentionPages(uint64_t tokens) const {
    if (attention_pool < 0) return 0;
    uint64_t pages = tokens / kGroupTokens / groups_per_page;  // no overflow near 2^64
    pages += tokens - pages * kGroupTokens * groups_per_page > 0 ? 1 : 0;
    return static_cast<uint32_t>(std::min<uint64_t>(pages, std::numeric_limits<uint32_t>::max()));
  }
  // Bytes of all planes of one page of the pool.
  uint64_t page_bytes_all_planes(int pool) const {
    return pools[static_cast<size_t>(pool)].unit_bytes * planes;
  }
};

// The table of `spec` for `shape` without a budget: every page_count is 0.
Result<Organisation> DescribeOrganisation(const OrganisationSpec& spec, const StateShape& shape);

// The table of `spec` for `shape` within `budget_bytes`.
Result<Organisation> MakeOrganisation(const OrganisationSpec& spec, const StateShape& shape,
                                      uint64_t budget_bytes);

// Bytes of each pool within `budget_bytes`: what MakeOrganisation cuts into pages.
std::vector<uint64_t> PoolBytes(const Organisation& table, uint64_t budget_bytes);

// The least budget whose table has at least pages[i] pages in pool i; 2^64-1 when it is beyond
// that.
uint64_t BudgetForPages(const Organisation& table, std::span<const uint64_t> pages);

// Bytes, all planes, that a set of x_A attention blocks of block_tokens and x_R checkpoints takes
// (slabs counted whole: ⌈x_R / slots_per_page⌉). The study's arithmetic; independent of a budget.
uint64_t StateSetBytes(const Organisation& table, uint64_t attention_blocks, uint32_t block_tokens,
                       uint64_t checkpoints);

}  // namespace tessera
