// SPDX-License-Identifier: Apache-2.0
//
// Random state shapes for property tests: any mix of layer counts, with and without SSM, now and
// then with rows longer than a page or convolutions larger than one. Some do not validate.
#pragma once

#include "base/random.h"
#include "memory/geometry/state_shape.h"

namespace tessera::testing {

inline StateShape RandomShape(Random* random) {
  StateShape s;
  s.attention_layers = static_cast<uint32_t>(random->Below(9));
  s.recurrent_layers = static_cast<uint32_t>(random->Below(9));
  s.kv_heads = 1 + static_cast<uint32_t>(random->Below(8));
  s.head_dim = 2 + 2 * static_cast<uint32_t>(random->Below(64));
  if (random->Below(4) != 0) {
    s.ssm_heads = 1 + static_cast<uint32_t>(random->Below(32));
    s.ssm_head_dim = 1 + static_cast<uint32_t>(random->Below(64));
    s.ssm_state = 1 + static_cast<uint32_t>(random->Below(random->Below(8) == 0 ? 9000 : 256));
  }
  s.conv_channels = 1 + static_cast<uint32_t>(random->Below(random->Below(8) == 0 ? 90000 : 2000));
  s.conv_taps = static_cast<uint32_t>(random->Below(5));
  s.state_type = random->Below(2) == 0 ? StateType::kF32 : StateType::kBF16;
  return s;
}

}  // namespace tessera::testing
