// SPDX-License-Identifier: Apache-2.0
#include "engine/state_salt.h"

#include <fmt/format.h>

namespace tessera {

std::string StateSalt(IsolateKind isolate, std::string_view cache_salt, RequestId id) {
  if (isolate == IsolateKind::kRequest) return fmt::format("r{}", id.index());
  if (cache_salt.empty()) return {};
  return fmt::format("c{}", cache_salt);
}

}  // namespace tessera
