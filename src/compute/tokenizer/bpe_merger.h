// SPDX-License-Identifier: Apache-2.0
//
// BpeMerger turns one piece of text into tokens: it starts from single bytes and merges the
// adjacent pair of lowest rank, the leftmost on ties, until no merge applies.
//
// It works on raw bytes and on symbols. A symbol is a token of the vocabulary (same number) or a
// string that only the merges know; the latter come out as the tokens of their bytes, and a byte
// that has no token is dropped, as in llama.cpp. So a merge may name strings that are no tokens.
//
// M1  O(n log n) in the bytes of the piece: a list of symbols, and a heap that gains at most two
//     candidates per merge.
// M2  The result is that of the definition (bpe_merger_test compares with it).
//
// Failure: kBadFile for a merge that is not two strings.
// Threads: const after creation; scratch is the caller's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"

namespace tessera {

class Vocabulary;

class BpeMerger {
 public:
  // Memory that consecutive pieces reuse.
  struct Scratch {
    struct Node {
      uint32_t symbol;
      uint32_t previous;
      uint32_t next;
    };
    std::vector<Node> nodes;
    std::vector<uint64_t> heap;
  };

  // `merges` as in tokenizer.ggml.merges: "left right" over the byte alphabet, the separator being
  // the first space at index 1 or later; the rank is the position, the first of equal pairs counts.
  static Result<BpeMerger> Create(const Vocabulary& vocabulary,
                                  std::span<const std::string_view> merges);

  // Appends the tokens of `piece`.
  void Merge(std::string_view piece, Scratch* scratch, std::vector<TokenId>* tokens) const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Merged {
    uint32_t rank = kNone;
    uint32_t symbol = kNone;
  };
  // Open addressing, at most half full: 16 bytes an entry, 8 MiB for 261,000 merges. The hash is
  // seeded at random, so that no file can be made whose pairs all collide.
  struct Entry {
    uint64_t pair = UINT64_MAX;
    Merged merged;
  };
  class Builder;

  BpeMerger() = default;
  const Merged* Find(uint32_t left, uint32_t right) const;
  void Propose(uint32_t left, Scratch* scratch) const;
  void MergeChunk(std::string_view chunk, Scratch* scratch, std::vector<TokenId>* tokens) const;
  void Emit(uint32_t symbol, std::vector<TokenId>* tokens) const;

  uint64_t seed_ = 0;
  uint32_t token_count_ = 0;
  std::array<uint32_t, 256> byte_symbol_{};
  std::array<std::optional<TokenId>, 256> byte_token_{};
  std::vector<std::string> extra_symbols_;  // bytes of symbol token_count_ + i
  std::vector<Entry> entries_;              // power of two
};

}  // namespace tessera
