// SPDX-License-Identifier: Apache-2.0
//
// S2, packed conv slots: S1 with the conv image in a slot of a slab page that checkpoints share.
// Falcon-H1-7B: 21 KiB of conv in a slot of 32 KiB, 16 slots in a page of 512 KiB. A conv image too
// large for two slots in a page stays in pages, as in S1.
#include <algorithm>
#include <bit>

#include "memory/geometry/organisation_builders.h"

namespace tessera::geometry {

void BuildS2(const StateShape& shape, const OrganisationSpec& spec, Organisation* table) {
  BuildS1(shape, spec, table);
  const uint64_t conv_bytes = shape.conv_image_bytes();
  if (conv_bytes == 0) return;
  // From 64 B on, so that a slot starts where a vector may.
  if (!PutSlot(std::bit_ceil(std::max<uint64_t>(conv_bytes, 64)), table)) return;
  table->state_pages -= 1;  // a conv image under half a page took exactly one
}

}  // namespace tessera::geometry
