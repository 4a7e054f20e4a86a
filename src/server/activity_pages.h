// SPDX-License-Identifier: Apache-2.0
//
// The bodies of /cache/pages and /requests: whose every page is, and what the last requests took.
// Neither has a token, a text or a salt.
//
// Threads: pure functions of their arguments.
#pragma once

#include <span>
#include <string>

#include "engine/engine.h"

namespace tessera {

// With how many objects of each kind there are, by who holds them.
std::string PagesBody(std::span<const PoolPageMap> pools, const StoreCensus& census);
std::string RequestsBody(const RequestList& list);

}  // namespace tessera
