// SPDX-License-Identifier: Apache-2.0
#include "memory/geometry/organisation_builders.h"

#include <algorithm>

namespace tessera::geometry {
namespace {

PoolTable& Pool(Organisation* table, int pool) { return table->pools[static_cast<size_t>(pool)]; }

// A count beyond any pool's stays beyond it: hostile metadata may ask for 2^40 bytes in 128 B
// pages.
uint32_t Saturate(uint64_t count) {
  return static_cast<uint32_t>(std::min<uint64_t>(count, std::numeric_limits<uint32_t>::max()));
}

}  // namespace

uint64_t MemberAlignment(const StateShape& shape) {
  const bool has_rows = shape.recurrent_layers > 0 && shape.ssm_rows_per_layer() > 0;
  return has_rows ? std::max<uint64_t>(64, shape.ssm_row_bytes()) : 64;
}

uint64_t BlockBytes(const StateShape& shape, const OrganisationSpec& spec) {
  return shape.group_bytes() * (spec.block_tokens / kGroupTokens);
}

void AddSharedPool(const StateShape& shape, uint64_t unit_bytes, Organisation* table) {
  table->pools.push_back({"shared", RoundUp(unit_bytes, MemberAlignment(shape))});
}

void PutAttention(const StateShape& shape, int pool, uint32_t groups_per_page,
                  Organisation* table) {
  if (shape.attention_layers == 0) return;
  table->attention_pool = pool;
  table->groups_per_page = groups_per_page;
  table->group_bytes = shape.group_bytes();
}

void PutWholeImage(const StateShape& shape, int pool, Organisation* table) {
  if (shape.recurrent_layers == 0) return;
  table->state_pool = pool;
  table->state_unit_bytes = Pool(table, pool).unit_bytes;
  table->state_pages = Saturate(DivideUp(shape.image_bytes(), table->state_unit_bytes));
  table->conv_start = shape.ssm_image_bytes();
}

void PutSplitImage(const StateShape& shape, int pool, Organisation* table) {
  if (shape.recurrent_layers == 0) return;
  const uint64_t unit = Pool(table, pool).unit_bytes;
  const uint64_t ssm_pages = DivideUp(shape.ssm_image_bytes(), unit);
  table->state_pool = pool;
  table->state_unit_bytes = unit;
  table->state_pages = Saturate(ssm_pages + DivideUp(shape.conv_image_bytes(), unit));
  table->conv_start = ssm_pages * unit;
}

bool PutSlot(uint64_t slot_bytes, Organisation* table) {
  const uint64_t per_page = table->state_unit_bytes / slot_bytes;
  if (per_page < 2) return false;
  table->slot_bytes = slot_bytes;
  table->slots_per_page = Saturate(per_page);
  return true;
}

}  // namespace tessera::geometry
