// SPDX-License-Identifier: Apache-2.0
#include "bench/replay_lru_twin.h"

#include <algorithm>
#include <list>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "base/random.h"

namespace tessera {
namespace {

// A block is keyed by its prefix id, a checkpoint by that of the block it is in: a grid that is no
// finer than the block has one at most in each.
struct Key {
  uint32_t id_space;
  bool is_checkpoint;
  uint64_t id;
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& k) const {
    return CounterRandom(k.id, uint64_t{k.id_space} * 2 + (k.is_checkpoint ? 1 : 0));
  }
};

class LruObjects {
 public:
  LruObjects(uint64_t capacity, uint64_t block_tokens, uint64_t price_tokens)
      : capacity_(capacity), block_tokens_(block_tokens), price_tokens_(price_tokens) {}

  bool Contains(const Key& key) const { return where_.contains(key); }
  void Touch(const Key& key) {
    const auto found = where_.find(key);
    if (found != where_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return;
    }
    order_.push_front(key);
    where_.emplace(key, order_.begin());
    used_ += Cost(key);
    if (key.is_checkpoint) ++made_;
  }
  void Trim() {
    while (used_ > capacity_) {
      used_ -= Cost(order_.back());
      where_.erase(order_.back());
      order_.pop_back();
    }
  }
  uint64_t made() const { return made_; }

 private:
  uint64_t Cost(const Key& key) const { return key.is_checkpoint ? price_tokens_ : block_tokens_; }

  const uint64_t capacity_, block_tokens_, price_tokens_;
  std::list<Key> order_;  // last touched first
  std::unordered_map<Key, std::list<Key>::iterator, KeyHash> where_;
  uint64_t used_ = 0;
  uint64_t made_ = 0;
};

// Which boundaries of a prompt get, or keep, a checkpoint; by the index of their block.
std::vector<bool> Wanted(const LruTwinOptions& options, uint64_t block, uint64_t full_blocks,
                         uint64_t tail, uint64_t left_known_at, uint64_t reused) {
  std::vector<bool> wanted(full_blocks);
  const auto want = [&](uint64_t position) {
    const uint64_t on_grid = position / options.grid * options.grid;
    if (on_grid > 0) wanted[(on_grid - 1) / block] = true;
  };
  want(reused);
  switch (options.placement) {
    case ReferencePlacement::kAttention:
      return std::vector<bool>(full_blocks);
    case ReferencePlacement::kDense:
      for (uint64_t p = options.grid; p <= full_blocks * block; p += options.grid) want(p);
      break;
    case ReferencePlacement::kTailBranch:
      want(left_known_at);
      want(tail);
      break;
    case ReferencePlacement::kTail:
      want(tail);
      break;
  }
  return wanted;
}

}  // namespace

ReferenceReuse ReplayLruTwin(const RequestTrace& trace, const LruTwinOptions& options) {
  const uint64_t block = trace.block_tokens;
  TESSERA_CHECK(options.grid >= block || options.placement == ReferencePlacement::kAttention);
  LruObjects objects(options.capacity_tokens, block, options.price_tokens);
  ReferenceReuse result;
  std::vector<uint64_t> ids;
  for (const uint32_t i : ReplayOrder(trace, options.at_once, options.seed)) {
    const TraceRequest& request = trace.requests[i];
    const uint64_t full = trace.FullBlocks(request);
    const uint64_t most = request.input_tokens == 0 ? 0 : request.input_tokens - 1;
    ids.clear();
    for (const IdRange& range : trace.Ranges(request)) {
      for (uint64_t id = range.first; id <= range.last && ids.size() < full; ++id) {
        ids.push_back(id);
      }
    }
    const uint32_t space = request.id_space;
    uint64_t known = 0;
    while (known < ids.size() && objects.Contains({space, false, ids[known]})) ++known;
    const uint64_t usable = std::min(known * block, most);
    uint64_t reused = usable / options.grid * options.grid;
    if (options.placement != ReferencePlacement::kAttention) {
      while (reused > 0 && !objects.Contains({space, true, ids[(reused - 1) / block]})) {
        reused -= options.grid;
      }
    }
    result.input_tokens += request.input_tokens;
    result.reused_tokens += reused;
    const std::vector<bool> wanted =
        Wanted(options, block, ids.size(), std::min(ids.size() * block, most), usable, reused);
    for (size_t k = ids.size(); k-- > 0;) {
      if (wanted[k]) objects.Touch({space, true, ids[k]});
      objects.Touch({space, false, ids[k]});
    }
    objects.Trim();
  }
  result.checkpoints = objects.made();
  return result;
}

}  // namespace tessera
