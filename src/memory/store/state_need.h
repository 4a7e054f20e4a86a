// SPDX-License-Identifier: Apache-2.0
//
// What a sequence of some length takes of an organisation: the one place where admission, sizing
// and the reported budget get their numbers, so that they cannot drift apart.
//
// Private to memory/store and memory/plan. Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <vector>

#include "memory/store/state_store.h"

namespace tessera::store {

// What a sequence asks for. NeedOf and what follows from it are of all max_tokens, none shared.
struct Terms {
  uint64_t max_tokens = 0;
  bool may_fork = false;
  uint32_t extra_image_pages = 0;  // of kinds beyond the organisation's, in every image
  uint64_t shared_tokens = 0;      // whole pages of attention that others hold already
  uint64_t reserve_tokens = 0;     // of max_tokens: those that have their memory

  uint32_t images() const { return may_fork ? 2 : 1; }
};

// Pages of an image, extra kinds included.
uint32_t ImagePages(const Organisation& table, const Terms& terms);
StateNeed NeedOf(const Organisation& table, const Terms& terms);
// Pages, by pool, that an empty store gives `sequences` of such a need: slots as slab pages.
std::vector<uint64_t> PagesFor(const Organisation& table, const StateNeed& need,
                               uint64_t sequences);
// The least bytes of pools that admit `sequences` of such terms when nothing else is there.
uint64_t PoolBytesOf(const Organisation& table, const Terms& terms, uint64_t sequences);

}  // namespace tessera::store
