// SPDX-License-Identifier: Apache-2.0
//
// PromptForest is a ledger and its prefix index as a busy server leaves them, without any bytes
// behind the pages: prompts of 8,192 tokens that share contexts, every one published and let go.
//
//   context  4,096 tokens, shared by 16 prompts     256 groups of 16 tokens
//   branch   2,048 tokens, shared by 4 of those     128
//   leaf     2,048 tokens of the prompt's own       128
//
// A checkpoint stands where each of them ends, so that a look-up of a known prompt and a question
// after it walks 512 nodes and reuses all of them. Tokens are made from (seed, prompt) on demand.
//
// R1  Between calls nothing is held: every entry is cached.  R2  Replace takes a prompt's leaf out,
// page by page, and publishes another in its place: the forest stays as large as it was.
//
// Threads: the ledger's lock, which methods with a LedgerLock want.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "memory/geometry/organisation.h"
#include "memory/ledger/ledger.h"
#include "memory/prefix/prefix_index.h"

namespace tessera {

class PromptForest {
 public:
  static constexpr uint32_t kContextTokens = 4096;
  static constexpr uint32_t kBranchTokens = 2048;
  static constexpr uint32_t kLeafTokens = 2048;
  static constexpr uint32_t kPromptTokens = kContextTokens + kBranchTokens + kLeafTokens;
  static constexpr uint32_t kQuestionTokens = 8;  // after a known prompt: what is looked up
  static constexpr uint32_t kBranches = 4;        // of a context
  static constexpr uint32_t kLeaves = 4;          // of a branch

  // `table` without page counts; as many prompts as have at most `blocks` groups of 16 tokens
  // together, at least one. They come one context after another or, `mixed`, in random order: then
  // checkpoints of many contexts share a slab.
  PromptForest(const Organisation& table, uint64_t blocks, bool mixed = false);
  // Bytes of ledger and index that such a forest takes, at least.
  static uint64_t MetadataBytes(const Organisation& table, uint64_t blocks);

  Ledger& ledger() { return *ledger_; }
  PrefixIndex& index() { return *index_; }
  const PrefixIndex& index() const { return *index_; }
  const Organisation& table() const { return table_; }
  uint32_t prompts() const { return static_cast<uint32_t>(leaves_.size()); }
  uint64_t groups() const { return groups_; }  // of all prompts, shared ones once

  // The prompt and its question.
  std::vector<TokenId> TokensOf(uint32_t prompt) const;
  // Pages of the prompt's leaf, first to last, and its checkpoint: what reclaim is timed on.
  std::span<const PageId> LeafPages(uint32_t prompt) const;
  EntryId LeafCheckpoint(uint32_t prompt) const { return leaves_[prompt].checkpoint; }

  // What publishing a leaf needs, taken beforehand: what a step would have written.
  struct Written {
    std::vector<PageId> pages;  // of attention
    std::vector<PageId> image;
    SlotId slot;
  };
  Written TakeLeaf(LedgerLock& lock);
  // The next tokens for the prompt's leaf; its old one must be gone.
  void Renew(uint32_t prompt);
  // Publishes groups [begin, end) of the prompt's tokens on the path; pages[0] holds the first.
  void PublishGroups(LedgerLock& lock, PublishPath* path, std::span<const TokenId> tokens,
                     std::span<const PageId> pages);
  // The checkpoint at the end of the path; remembered as the leaf's.
  void PublishCheckpoint(LedgerLock& lock, uint32_t prompt, const PublishPath& path,
                         const Written& written);
  // Lets go of what was taken, so that it is cached.
  void LetGo(LedgerLock& lock, const Written& written);
  // Remembers the pages of the leaf.
  void Remember(uint32_t prompt, const Written& written);

 private:
  struct Leaf {
    uint32_t version = 0;
    EntryId checkpoint;
  };

  static uint64_t Prompts(uint64_t blocks);
  static Organisation WithPages(Organisation table, uint64_t prompts);
  uint32_t leaf_pages() const { return table_.AttentionPages(kLeafTokens); }
  // Takes what `tokens` more of a sequence are written to.
  Written Take(LedgerLock& lock, uint32_t tokens);
  void Fill(uint32_t prompt);

  Organisation table_;
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<PrefixIndex> index_;
  std::vector<Leaf> leaves_;
  std::vector<PageId> pages_;  // leaf_pages() of each prompt
  uint64_t groups_ = 0;
};

}  // namespace tessera
