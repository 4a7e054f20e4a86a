// SPDX-License-Identifier: Apache-2.0
//
// S3, one fine page: U is 16 tokens of a plane's KV, and an image lies over as many of them as it
// needs, so an object wastes less than U and nothing is split, pinned or moved. Falcon-H1-7B with
// 2-byte state: U = 16 KiB, 98 pages = 1568 KiB for an image of 1557. Images under half a page
// (LFM2's convolutions) share pages as slots. A coarser U (page=64: four groups) is for measuring
// what U costs: docs/decisions/0005.
#include "memory/geometry/organisation_builders.h"

namespace tessera::geometry {

void BuildS3(const StateShape& shape, const OrganisationSpec& spec, Organisation* table) {
  const uint32_t groups = spec.page_tokens / kGroupTokens;
  const uint64_t group_bytes = shape.attention_layers > 0 ? shape.group_bytes() : 16 * kKiB;
  AddSharedPool(shape, groups * group_bytes, table);
  PutAttention(shape, 0, groups, table);
  PutWholeImage(shape, 0, table);
  const uint64_t unit = table->pools[0].unit_bytes;
  const uint64_t image = RoundUp(shape.image_bytes(), 64);
  if (image == 0 || 2 * image >= unit) return;
  const uint64_t per_page = unit / image;
  if (PutSlot(unit / per_page / 64 * 64, table)) table->state_pages = 0;
}

}  // namespace tessera::geometry
