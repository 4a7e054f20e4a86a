// SPDX-License-Identifier: Apache-2.0
//
// How much of a path all may find. A path without a salt is everybody's. One with a salt is found
// by that salt alone, but for its first `isolate_after` tokens: those are in the tree as if it had
// none, so that many tenants who begin with one text compute that once, and what each goes on with
// is its own.
//
//   all     (root) ── "" ── 16 tokens ── 16 tokens ── 16 tokens of somebody without a salt
//   "a"                                      └─ "a" ── 16 tokens
//   "b"                                      └─ "b" ── 16 tokens ── …
//
// Whole groups only: the state of a group that is part public and part private is private.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "memory/geometry/state_shape.h"

namespace tessera {

// A multiple of 16, or all there can be.
inline uint32_t PublicTokens(std::string_view salt, uint32_t isolate_after) {
  if (salt.empty()) return std::numeric_limits<uint32_t>::max();
  return isolate_after / kGroupTokens * kGroupTokens;
}

}  // namespace tessera
