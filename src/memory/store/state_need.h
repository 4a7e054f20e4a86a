// SPDX-License-Identifier: Apache-2.0
//
// What a sequence of some length takes of an organisation: the one place where admission, sizing
// and the reported budget get their numbers, so that they cannot drift apart.
//
// Private to memory/store. Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/store/state_store.h"

namespace tessera::store {

// What a sequence asks for.
struct Terms {
  uint64_t max_tokens = 0;
  bool may_fork = false;

  uint32_t images() const { return may_fork ? 2 : 1; }
};

StateNeed NeedOf(const Organisation& table, const Terms& terms);
// Pages, by pool, that an empty store gives `sequences` of such a need: slots as slab pages.
std::vector<uint64_t> PagesFor(const Organisation& table, const StateNeed& need,
                               uint64_t sequences);
// The least budget whose empty store admits `sequences` of such terms.
uint64_t BudgetOf(const Organisation& table, const Terms& terms, uint64_t sequences);

}  // namespace tessera::store
