// SPDX-License-Identifier: Apache-2.0
#include "compute/tokenizer/special_tokens.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "base/check.h"

namespace tessera {

SpecialTokens::SpecialTokens(std::span<const SpecialToken> tokens) {
  roots_.fill(kNone);
  std::vector<SpecialToken> sorted(tokens.begin(), tokens.end());
  std::sort(sorted.begin(), sorted.end(), [](const SpecialToken& a, const SpecialToken& b) {
    return std::tuple(b.text.size(), a.token) < std::tuple(a.text.size(), b.token);
  });
  for (const SpecialToken& special : sorted) {
    TESSERA_CHECK(!special.text.empty());
    by_order_.push_back({special.token, static_cast<uint32_t>(special.text.size()), kNone});
    Insert(special.text, static_cast<uint32_t>(by_order_.size() - 1));
  }
  for (const SpecialToken& special : sorted) {
    // Walk each text again now that all prefixes are in.
    uint32_t node = kNone;
    uint32_t shorter = kNone;
    for (const char c : special.text) {
      if (node != kNone && nodes_[node].order != kNone) {
        shorter = nodes_[node].order;
      }
      const uint8_t byte = static_cast<uint8_t>(c);
      node = node == kNone ? roots_[byte] : Child(node, byte);
    }
    nodes_[node].shorter = shorter;
  }
}

void SpecialTokens::Insert(std::string_view text, uint32_t order) {
  uint32_t node = kNone;
  for (const char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    uint32_t child = node == kNone ? roots_[byte] : Child(node, byte);
    if (child == kNone) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.byte = byte});
      if (node == kNone) {
        roots_[byte] = child;
      } else {
        nodes_[child].next_sibling = nodes_[node].first_child;
        nodes_[node].first_child = child;
      }
    }
    node = child;
  }
  TESSERA_CHECK(nodes_[node].order == kNone);  // texts are distinct
  nodes_[node].order = order;
  by_order_[order].node = node;
}

uint32_t SpecialTokens::Child(uint32_t node, uint8_t byte) const {
  uint32_t child = nodes_[node].first_child;
  while (child != kNone && nodes_[child].byte != byte) {
    child = nodes_[child].next_sibling;
  }
  return child;
}

uint32_t SpecialTokens::DeepestAt(std::string_view text) const {
  uint32_t deepest = kNone;
  uint32_t node = roots_[static_cast<uint8_t>(text[0])];
  for (size_t i = 1; node != kNone; ++i) {
    if (nodes_[node].order != kNone) {
      deepest = nodes_[node].order;
    }
    if (i == text.size()) {
      break;
    }
    node = Child(node, static_cast<uint8_t>(text[i]));
  }
  return deepest;
}

uint32_t SpecialTokens::Shorter(uint32_t order) const {
  return nodes_[by_order_[order].node].shorter;
}

std::vector<SpecialTokens::Match> SpecialTokens::FindIn(std::string_view text) const {
  struct Candidate {
    size_t begin;
    uint32_t order;
    // std::priority_queue pops the largest: the first to claim.
    bool operator<(const Candidate& other) const {
      return std::tuple(order, begin) > std::tuple(other.order, other.begin);
    }
  };
  std::vector<Candidate> found;
  for (size_t begin = 0; !by_order_.empty() && begin < text.size(); ++begin) {
    if (const uint32_t order = DeepestAt(text.substr(begin)); order != kNone) {
      found.push_back({begin, order});
    }
  }
  std::vector<Match> matches;
  if (found.empty()) {
    return matches;
  }
  std::priority_queue<Candidate> candidates({}, std::move(found));
  std::vector<bool> claimed(text.size());
  while (!candidates.empty()) {
    const Candidate candidate = candidates.top();
    candidates.pop();
    const size_t begin = candidate.begin;
    const Ranked& ranked = by_order_[candidate.order];
    // Who came before is at least as long, so an overlap covers our first byte or our last.
    if (claimed[begin]) {
      continue;
    }
    if (claimed[begin + ranked.size - 1]) {
      if (const uint32_t shorter = Shorter(candidate.order); shorter != kNone) {
        candidates.push({begin, shorter});
      }
      continue;
    }
    std::fill_n(claimed.begin() + static_cast<ptrdiff_t>(begin), ranked.size, true);
    matches.push_back({begin, ranked.size, ranked.token});
  }
  std::sort(matches.begin(), matches.end(),
            [](const Match& a, const Match& b) { return a.begin < b.begin; });
  return matches;
}

}  // namespace tessera
