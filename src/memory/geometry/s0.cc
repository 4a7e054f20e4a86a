// SPDX-License-Identifier: Apache-2.0
//
// S0, the coarse shared page: one unit that holds either a whole block or a whole image. Falcon-H1-
// 7B with 2-byte state: 1557 KiB, of which an attention block wastes 1045 KiB.
#include <algorithm>

#include "memory/geometry/organisation_builders.h"

namespace tessera::geometry {

void BuildS0(const StateShape& shape, const OrganisationSpec& spec, Organisation* table) {
  AddSharedPool(shape, std::max(BlockBytes(shape, spec), shape.image_bytes()), table);
  PutAttention(shape, 0, spec.block_tokens / kGroupTokens, table);
  PutWholeImage(shape, 0, table);
}

}  // namespace tessera::geometry
