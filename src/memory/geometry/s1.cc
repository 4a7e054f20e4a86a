// SPDX-License-Identifier: Apache-2.0
//
// S1, pages inside the checkpoint: the page is an attention block, SSM and conv take whole pages of
// their own. Falcon-H1-7B with 2-byte state: 3 + 1 pages of 512 KiB, 491 KiB of it rounding.
#include "memory/geometry/organisation_builders.h"

namespace tessera::geometry {

void BuildS1(const StateShape& shape, const OrganisationSpec& spec, Organisation* table) {
  const bool attention = shape.attention_layers > 0;
  AddSharedPool(shape, attention ? BlockBytes(shape, spec) : 512 * kKiB, table);
  PutAttention(shape, 0, spec.block_tokens / kGroupTokens, table);
  PutSplitImage(shape, 0, table);
}

}  // namespace tessera::geometry
