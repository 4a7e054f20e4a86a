// SPDX-License-Identifier: Apache-2.0
#include "engine/state_salt.h"

#include <fmt/format.h>

namespace tessera {

std::string StateSalt(IsolateKind isolate, const SaltParts& parts) {
  switch (isolate) {
    case IsolateKind::kOff:
      break;
    case IsolateKind::kKey:
      return fmt::format("k{}:{}{}", parts.isolation_key.size(), parts.isolation_key,
                         parts.cache_salt);
    case IsolateKind::kRequest:
      return fmt::format("r{}", parts.id.index());
  }
  if (parts.cache_salt.empty()) return {};
  return fmt::format("c{}", parts.cache_salt);
}

}  // namespace tessera
