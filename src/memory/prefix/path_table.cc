// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/path_table.h"

namespace tessera {

void PathTable::Insert(uint64_t hash, uint32_t node) {
  uint32_t at = Home(hash);
  while (bins_[at].full()) at = After(at);
  const size_t place = static_cast<size_t>(std::countr_zero(Equal(bins_[at].nodes, kNone)));
  bins_[at].tags[place] = Tag(hash);
  bins_[at].nodes[place] = node;
}

void PathTable::Erase(uint64_t hash, uint32_t node) {
  uint32_t at = Home(hash);
  while (Equal(bins_[at].nodes, node) == 0) at = After(at);
  bool was_full = bins_[at].full();
  size_t place = static_cast<size_t>(std::countr_zero(Equal(bins_[at].nodes, node)));
  bins_[at].nodes[place] = kNone;
  // A node behind a bin that was full may lie there because of that: it moves into the hole, which
  // is then where it was.
  for (uint32_t next = After(at); was_full; next = After(next)) {
    Bin& bin = bins_[next];
    was_full = bin.full();
    for (size_t i = 0; i < bin.nodes.size(); ++i) {
      const uint32_t home = bin.tags[i] & mask();
      // Distances from `home`, round the end of the array.
      if (bin.nodes[i] == kNone || ((next - home) & mask()) < ((next - at) & mask())) continue;
      bins_[at].tags[place] = bin.tags[i];
      bins_[at].nodes[place] = bin.nodes[i];
      bin.nodes[i] = kNone;
      at = next;
      place = i;
      break;
    }
  }
}

uint32_t PathTable::CountNodes() const {
  uint32_t count = 0;
  for (const Bin& bin : bins_) {
    count += static_cast<uint32_t>(bin.nodes.size()) -
             static_cast<uint32_t>(std::popcount(Equal(bin.nodes, kNone)));
  }
  return count;
}

}  // namespace tessera
