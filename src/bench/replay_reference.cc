// SPDX-License-Identifier: Apache-2.0
#include "bench/replay_reference.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "base/check.h"

namespace tessera {
namespace {

// One prompt as its full blocks' ids.
struct Prompt {
  uint64_t tokens;
  uint32_t block_tokens;
  uint32_t id_space;
  std::vector<uint64_t> ids;

  uint64_t full_tokens() const { return ids.size() * block_tokens; }
  // Of the first `count` tokens, those that may be reused: the last one's logits are wanted.
  uint64_t Reusable(uint64_t count) const {
    return std::min<uint64_t>(count, tokens == 0 ? 0 : tokens - 1);
  }
};

Prompt PromptOf(const RequestTrace& trace, const TraceRequest& request) {
  Prompt prompt{request.input_tokens, trace.block_tokens, request.id_space, {}};
  for (const IdRange& range : trace.Ranges(request)) {
    for (uint64_t id = range.first; id <= range.last; ++id) prompt.ids.push_back(id);
  }
  prompt.ids.resize(std::min<uint64_t>(prompt.ids.size(), trace.FullBlocks(request)));
  return prompt;
}

class Checkpoints {
 public:
  void Add(const Prompt& prompt, uint64_t position) {
    if (position > 0) kept_.insert(Key(prompt, position));
  }
  // The deepest one on the prompt's path that is a multiple of `grid` and at most `most`.
  uint64_t Deepest(const Prompt& prompt, uint64_t most, uint32_t grid) const {
    for (uint64_t p = most / grid * grid; p > 0; p -= grid) {
      if (kept_.contains(Key(prompt, p))) return p;
    }
    return 0;
  }
  uint64_t size() const { return kept_.size(); }

 private:
  using KeyType = std::tuple<uint32_t, uint64_t, uint64_t>;  // id space, id, position
  static KeyType Key(const Prompt& prompt, uint64_t position) {
    return {prompt.id_space, prompt.ids[(position - 1) / prompt.block_tokens], position};
  }
  std::set<KeyType> kept_;
};

}  // namespace

ReferenceReuse ReplayReference(const RequestTrace& trace, ReferencePlacement placement,
                               uint32_t grid) {
  TESSERA_CHECK(grid > 0);
  std::vector<std::unordered_set<uint64_t>> seen(trace.id_spaces);
  Checkpoints checkpoints;
  ReferenceReuse result;
  for (const uint32_t i : ReplayOrder(trace)) {
    const Prompt prompt = PromptOf(trace, trace.requests[i]);
    std::unordered_set<uint64_t>& known = seen[prompt.id_space];
    uint64_t blocks = 0;
    while (blocks < prompt.ids.size() && known.contains(prompt.ids[blocks])) ++blocks;
    const uint64_t reusable = std::min<uint64_t>(blocks * prompt.block_tokens,
                                                 prompt.tokens == 0 ? 0 : prompt.tokens - 1);
    result.input_tokens += prompt.tokens;
    const uint64_t tail = prompt.Reusable(prompt.full_tokens());
    switch (placement) {
      case ReferencePlacement::kAttention:
        result.reused_tokens += reusable / grid * grid;
        break;
      case ReferencePlacement::kDense:
        result.reused_tokens += checkpoints.Deepest(prompt, reusable, grid);
        for (uint64_t p = grid; p <= prompt.full_tokens(); p += grid) checkpoints.Add(prompt, p);
        break;
      case ReferencePlacement::kTailBranch:
        result.reused_tokens += checkpoints.Deepest(prompt, reusable, grid);
        checkpoints.Add(prompt, reusable / grid * grid);
        checkpoints.Add(prompt, tail / grid * grid);
        break;
      case ReferencePlacement::kTail:
        result.reused_tokens += checkpoints.Deepest(prompt, reusable, grid);
        checkpoints.Add(prompt, tail / grid * grid);
        break;
    }
    known.insert(prompt.ids.begin(), prompt.ids.end());
  }
  result.checkpoints = checkpoints.size();
  return result;
}

}  // namespace tessera
