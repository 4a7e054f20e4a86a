// SPDX-License-Identifier: Apache-2.0
//
// SpecialTokens finds the places where text is a special token, before anything else looks at it.
//
// The rule, llama.cpp's: take the tokens longest first (lowest id among equal lengths); each one
// claims, from the left, every place where its text stands in bytes nobody has claimed. That is
// not leftmost-longest: with tokens "ab" and "bcd", "abcd" is "a" + bcd.
//
// Cost: every position walks a trie once, O(text · longest token), and holds one candidate in a
// heap; a candidate that is blocked falls back to the next shorter token at its position. Thousands
// of tokens cost what one does, and memory is 16 bytes per candidate position.
//
// Threads: const after creation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong_id.h"

namespace tessera {

struct SpecialToken {
  std::string_view text;  // not empty
  TokenId token = 0;
};

class SpecialTokens {
 public:
  struct Match {
    size_t begin = 0;
    size_t size = 0;
    TokenId token = 0;
  };

  explicit SpecialTokens(std::span<const SpecialToken> tokens);

  // In order of place, disjoint.
  std::vector<Match> FindIn(std::string_view text) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Node {
    uint32_t first_child = kNone;
    uint32_t next_sibling = kNone;
    uint32_t order = kNone;    // index into by_order_, when a token ends here
    uint32_t shorter = kNone;  // nearest proper prefix that is a token
    uint8_t byte = 0;
  };
  struct Ranked {
    TokenId token;
    uint32_t size;
    uint32_t node;
  };

  void Insert(std::string_view text, uint32_t order);
  uint32_t Child(uint32_t node, uint8_t byte) const;
  uint32_t DeepestAt(std::string_view text) const;  // order of the longest token there, or kNone
  uint32_t Shorter(uint32_t order) const;

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> roots_;  // most positions end here
  std::vector<Ranked> by_order_;     // the order in which tokens claim
};

}  // namespace tessera
