// SPDX-License-Identifier: Apache-2.0
//
// D0, native dual pools: 16-token units in an attention pool, whole images in a state pool, the
// split fixed at start. Falcon-H1-7B with 2-byte state: units of 16 KiB and of 1557 KiB. A request
// must fit both pools, even when the sum of what is free would hold it.
#include <cmath>

#include "memory/geometry/organisation_builders.h"

namespace tessera::geometry {

void BuildD0(const StateShape& shape, const OrganisationSpec& spec, Organisation* table) {
  if (shape.attention_layers > 0) {
    table->pools.push_back({"attention", shape.group_bytes()});
    PutAttention(shape, 0, 1, table);
  }
  if (shape.recurrent_layers > 0) {
    if (!table->pools.empty()) {
      const double share = std::round(spec.split * static_cast<double>(kShareScale));
      table->pools[0].share = static_cast<uint64_t>(share);
    }
    table->pools.push_back({"state", RoundUp(shape.image_bytes(), MemberAlignment(shape))});
    PutWholeImage(shape, static_cast<int>(table->pools.size()) - 1, table);
  }
}

}  // namespace tessera::geometry
