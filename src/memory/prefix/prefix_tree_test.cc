// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/prefix_tree.h"

#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "memory/ledger/ledger_cases.h"
#include "memory/prefix/prefix_finder.h"
#include "memory/prefix/prefix_index.h"

namespace tessera {
namespace {

std::vector<TokenId> Group(TokenId first, size_t length = kGroupTokens) {
  std::vector<TokenId> tokens(length);
  for (size_t i = 0; i < length; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}

NodeId MustAdd(PrefixTree& tree, NodeId parent, const std::vector<TokenId>& tokens) {
  const NodeId node =
      tree.Add(parent, PrefixTree::ChildHash(tree.at(parent).path_hash, tokens), tokens);
  EXPECT_TRUE(node.valid());
  tree.Hold(node);
  return node;
}

NodeId FindChild(const PrefixTree& tree, NodeId parent, const std::vector<TokenId>& tokens) {
  return tree.Find(parent, PrefixTree::ChildHash(tree.at(parent).path_hash, tokens), tokens);
}

TEST(PrefixTree, ANodeIsFoundByItsWholeKeyOnly) {
  PrefixTree tree(16);
  const NodeId space = tree.AddNamespace(tree.root(), 1, "");
  const NodeId a = MustAdd(tree, space, Group(0));
  const NodeId b = MustAdd(tree, a, Group(100));
  EXPECT_EQ(FindChild(tree, space, Group(0)), a);
  EXPECT_EQ(FindChild(tree, a, Group(100)), b);
  EXPECT_FALSE(FindChild(tree, space, Group(100)).valid());
  for (size_t i = 0; i < kGroupTokens; ++i) {
    std::vector<TokenId> other = Group(0);
    other[i] ^= 1;
    EXPECT_FALSE(FindChild(tree, space, other).valid()) << i;
    // Also where the hash is that of another key.
    EXPECT_FALSE(tree.Find(space, tree.at(a).path_hash, other).valid()) << i;
  }
  EXPECT_FALSE(tree.Find(b, tree.at(a).path_hash, Group(0)).valid());
  EXPECT_EQ(tree.at(b).position, 32u);
  EXPECT_TRUE(tree.Validate().ok()) << tree.Validate().ToString();
}

TEST(PrefixTree, ATailIsNotTheGroupThatBeginsLikeIt) {
  PrefixTree tree(32);
  const NodeId space = tree.AddNamespace(tree.root(), 1, "");
  std::vector<TokenId> zeros(kGroupTokens, 0);  // as the padding of a tail is
  std::vector<NodeId> nodes;
  for (size_t length = 1; length <= kGroupTokens; ++length) {
    nodes.push_back(MustAdd(tree, space, {zeros.begin(), zeros.begin() + ptrdiff_t(length)}));
  }
  for (size_t length = 1; length <= kGroupTokens; ++length) {
    const std::vector<TokenId> key(zeros.begin(), zeros.begin() + ptrdiff_t(length));
    EXPECT_EQ(FindChild(tree, space, key), nodes[length - 1]);
    EXPECT_EQ(tree.at(nodes[length - 1]).position, length);
  }
  EXPECT_TRUE(tree.Validate().ok()) << tree.Validate().ToString();
}

TEST(PrefixTree, NamespacesOfAllContractsAndSaltsAreDifferentNodes) {
  PrefixTree tree(512);
  std::map<uint32_t, std::string> seen;
  for (uint64_t contract : {0u, 1u, 2u}) {
    for (const std::string& salt :
         {std::string(), std::string("a"), std::string("b"), std::string("a\0", 2),
          std::string(48, 'x'), std::string(49, 'x'), std::string(112, 'x'), std::string(113, 'x'),
          std::string(48, 'x') + "a", std::string(400, 'y')}) {
      const NodeId node = tree.AddNamespace(tree.root(), contract, salt);
      ASSERT_TRUE(node.valid());
      EXPECT_EQ(tree.AddNamespace(tree.root(), contract, salt), node);
      EXPECT_EQ(tree.FindNamespace(tree.root(), contract, salt), node);
      EXPECT_EQ(PrefixTree::NamespaceHash(tree.at(tree.root()).path_hash, contract, salt),
                tree.at(node).path_hash);
      EXPECT_EQ(tree.at(node).position, 0u);
      const std::string name = std::to_string(contract) + " " + salt;
      EXPECT_TRUE(seen.emplace(node.index(), name).second) << name;
      tree.Hold(node);
    }
  }
  EXPECT_TRUE(tree.Validate().ok()) << tree.Validate().ToString();
  EXPECT_FALSE(tree.FindNamespace(tree.root(), 9, "a").valid());
}

TEST(PrefixTree, NamespacesBelowAPathAreNeitherItsTokensNorThoseOfAnotherPath) {
  PrefixTree tree(64);
  const NodeId space = tree.AddNamespace(tree.root(), 1, "");
  const NodeId a = MustAdd(tree, space, Group(0)), b = MustAdd(tree, space, Group(100));
  const std::string salt = "salt";
  const NodeId below_a = tree.AddNamespace(a, 7, salt);
  ASSERT_TRUE(below_a.valid());
  EXPECT_EQ(tree.at(below_a).position, 16u);
  EXPECT_FALSE(tree.FindNamespace(b, 7, salt).valid());
  EXPECT_FALSE(tree.FindNamespace(tree.root(), 7, salt).valid());
  EXPECT_FALSE(tree.FindNamespace(a, 8, salt).valid());
  EXPECT_FALSE(tree.FindNamespace(a, 7, "sal").valid());
  // Tokens whose bytes are the namespace's key: the same parent, hash and bytes.
  const std::vector<TokenId> key(tree.at(below_a).tokens.begin(), tree.at(below_a).tokens.end());
  const uint64_t hash = tree.at(below_a).path_hash;
  EXPECT_EQ(hash, PrefixTree::NamespaceHash(tree.at(a).path_hash, 7, salt));
  EXPECT_FALSE(tree.Find(a, hash, key).valid());
  const NodeId tokens = MustAdd(tree, a, key);
  EXPECT_NE(tokens, below_a);
  EXPECT_EQ(tree.at(tokens).path_hash, hash);
  EXPECT_EQ(tree.at(tokens).position, 32u);
  EXPECT_EQ(tree.Find(a, hash, key), tokens);
  EXPECT_EQ(tree.FindNamespace(a, 7, salt), below_a);
  EXPECT_EQ(tree.AddNamespace(a, 7, salt), below_a);
  tree.Hold(below_a);
  EXPECT_TRUE(tree.Validate().ok()) << tree.Validate().ToString();
  // It keeps what it hangs on, and nothing else does.
  tree.Unhold(a);
  EXPECT_EQ(tree.Prune(a, [](NodeId) {}), a);
  tree.Unhold(tokens);
  EXPECT_EQ(tree.Prune(tokens, [](NodeId) {}), a);
  tree.Unhold(below_a);
  EXPECT_EQ(tree.Prune(below_a, [](NodeId) {}), space);
}

TEST(PrefixTree, PruneTakesWhatNothingKeepsAndStopsAtWhatIsKept) {
  PrefixTree tree(16);
  const NodeId space = tree.AddNamespace(tree.root(), 1, "");
  NodeId path[4] = {space};
  for (int i = 1; i < 4; ++i) path[i] = MustAdd(tree, path[i - 1], Group(100 * i));
  for (int i = 1; i < 4; ++i) tree.Unhold(path[i]);
  tree.at(path[1]).block = 7;
  std::vector<NodeId> removed;
  EXPECT_EQ(tree.Prune(path[3], [&](NodeId node) { removed.push_back(node); }), path[1]);
  EXPECT_EQ(removed, (std::vector<NodeId>{path[3], path[2]}));
  EXPECT_EQ(tree.size(), 3u);
  tree.at(path[1]).block = PrefixTree::kNone;
  EXPECT_EQ(tree.Prune(path[1], [](NodeId) {}), tree.root());
  EXPECT_EQ(tree.size(), 1u);
  EXPECT_TRUE(tree.Validate().ok());
}

TEST(PrefixTree, AFullTreeSaysNoAndLeavesNothingHalfDone) {
  PrefixTree tree(3);
  const NodeId space = tree.AddNamespace(tree.root(), 1, "");
  MustAdd(tree, space, Group(0));
  const std::vector<TokenId> tokens = Group(5);
  EXPECT_FALSE(
      tree.Add(space, PrefixTree::ChildHash(tree.at(space).path_hash, tokens), tokens).valid());
  EXPECT_FALSE(tree.AddNamespace(tree.root(), 1, std::string(100, 'x')).valid());
  EXPECT_EQ(tree.size(), 3u);
  EXPECT_TRUE(tree.Validate().ok()) << tree.Validate().ToString();
}

TEST(PrefixTree, SharedWithChildrenIsTheLongestCommonBeginning) {
  PrefixTree tree(16);
  const NodeId space = tree.AddNamespace(tree.root(), 1, "");
  EXPECT_EQ(tree.SharedWithChildren(space, Group(0)), 0u);
  MustAdd(tree, space, Group(0));
  MustAdd(tree, space, Group(0, 5));
  std::vector<TokenId> other = Group(0);
  for (size_t i = kGroupTokens; i > 0; --i) {
    other[i - 1] += 1000;
    EXPECT_EQ(tree.SharedWithChildren(space, other), i - 1);
  }
  EXPECT_EQ(tree.SharedWithChildren(space, Group(0, 3)), 3u);
  EXPECT_EQ(tree.SharedWithChildren(space, {}), 0u);
}

TEST(PrefixTree, EveryNodeIsFoundAfterAnyAddsAndRemovals) {
  // Open addressing without tombstones: a removal moves others back. Half full at most.
  PrefixTree tree(64);
  Random random(3);
  const NodeId space = tree.AddNamespace(tree.root(), 1, "");
  std::map<TokenId, NodeId> twin;
  for (int i = 0; i < 20000; ++i) {
    const TokenId first = static_cast<TokenId>(random.Below(200));
    const auto it = twin.find(first);
    if (it != twin.end()) {
      EXPECT_EQ(FindChild(tree, space, Group(first)), it->second);
      tree.Unhold(it->second);
      tree.Hold(space);
      EXPECT_EQ(tree.Prune(it->second, [](NodeId) {}), space);
      tree.Unhold(space);
      twin.erase(it);
    } else if (tree.size() < tree.capacity()) {
      EXPECT_FALSE(FindChild(tree, space, Group(first)).valid());
      tree.Hold(space);
      twin[first] = MustAdd(tree, space, Group(first));
      tree.Unhold(space);
    }
    if (i % 64 != 0) continue;
    for (const auto& [key, node] : twin) ASSERT_EQ(FindChild(tree, space, Group(key)), node);
    ASSERT_TRUE(tree.Validate().ok()) << tree.Validate().ToString();
    if (twin.empty()) return;
  }
}

// The rule of 55 tokens where references can be counted.
TEST(PrefixIndex, ASharedBlockOfTwoSequencesHasTwoRefs) {
  const testing::LedgerCase c = testing::LedgerCases()[0];
  Ledger ledger(c.Options());
  PrefixIndex index(&ledger,
                    {.node_capacity = 32, .attention_pool = 0, .state_pool = -1, .row_pool = 1});
  LedgerLock lock(ledger);
  std::vector<TokenId> prompt = Group(0, 55);
  PublishPath path = index.OpenPath(lock, {}, Lease());
  Reservation pages = *ledger.pool(0).Reserve(4);
  std::vector<PageId> own;
  for (uint32_t g = 0; g < 3; ++g) {
    own.push_back(ledger.TakeAttention(lock, 0, &pages));
    ASSERT_TRUE(index.PublishGroup(
        lock, &path, std::span(prompt).subspan(g * kGroupTokens, kGroupTokens), own.back()));
    EXPECT_EQ(ledger.refs(0, own.back()), 1u);
  }
  prompt[50] = 9000;
  const Match match = index.Find(lock, {.prompt = prompt, .salt = {}});
  EXPECT_EQ(match.report.reused, 48u);
  for (PageId page : own) EXPECT_EQ(ledger.refs(0, page), 1u);  // finding holds nothing
  Lease lease = index.Adopt(lock, match);
  EXPECT_EQ(lease.shared_tokens(), 48u);
  for (PageId page : own) EXPECT_EQ(ledger.refs(0, page), 2u);
  Lease third = index.Adopt(lock, match);
  for (PageId page : own) EXPECT_EQ(ledger.refs(0, page), 3u);
  index.Release(lock, &third);
  index.ReleaseSource(lock, &lease);  // whole blocks stay shared
  for (PageId page : own) EXPECT_EQ(ledger.refs(0, page), 2u);
  index.Release(lock, &lease);
  for (PageId page : own) {
    EXPECT_EQ(ledger.refs(0, page), 1u);
    ledger.Unref(lock, 0, page);
  }
  index.ClosePath(lock, &path);
  EXPECT_EQ(ledger.cached_pages(0), 3u);
  EXPECT_TRUE(index.Validate(lock, 3).ok());
}

// What an index publishes hangs under its contract, and a look-up of another contract in the very
// same tree finds nothing of it: other weights, another state type or other arithmetic, same tokens.
TEST(PrefixIndex, WhatIsPublishedUnderOneContractIsFoundUnderNoOther) {
  const testing::LedgerCase c = testing::LedgerCases()[0];
  constexpr uint64_t kContract = 0x123456789abcdef0;
  for (const std::string_view salt : {"", "a"}) {
    Ledger ledger(c.Options());
    PrefixIndex index(&ledger, {.node_capacity = 32,
                                .contract_id = kContract,
                                .attention_pool = 0,
                                .state_pool = -1,
                                .row_pool = 1});
    LedgerLock lock(ledger);
    PublishPath path = index.OpenPath(lock, {.prompt = {}, .salt = salt}, Lease());
    const testing::Members block = *testing::TakeMembers(lock, ledger, EntryType::kBlock);
    ASSERT_TRUE(index.PublishGroup(lock, &path, Group(0), block.pages[0]));
    testing::UnrefAll(lock, ledger, EntryType::kBlock, block);
    index.ClosePath(lock, &path);
    const std::vector<TokenId> prompt = Group(0, 20);
    const PrefixQuery query{.prompt = prompt, .salt = salt};
    EXPECT_EQ(index.Find(lock, query).report.reused, 16u);
    PrefixFinder::Rules rules{.attention = true};
    // Neighbours in every bit, and none at all.
    for (int bit = -1; bit <= 64; ++bit) {
      rules.contract_id = bit < 0 ? kContract : bit == 64 ? 0 : kContract ^ uint64_t { 1 } << bit;
      const MatchReport report = PrefixFinder(index.tree(), rules, query).Run().report;
      EXPECT_EQ(report.reused, bit < 0 ? 16u : 0u) << bit;
      EXPECT_EQ(report.diverged_at, bit < 0 ? 16u : 0u) << bit;
    }
  }
}

// In whatever order its node's members are taken back, and not by the index (N8).
TEST(PrefixIndex, ARowDoesNotKeepANodeThatNobodyCanStartFrom) {
  const testing::LedgerCase c = testing::LedgerCases()[0];
  for (const bool recurrent : {true, false}) {
    for (const bool block_first : {true, false}) {
      Ledger ledger(c.Options());
      PrefixIndex index(&ledger, {.node_capacity = 32,
                                  .attention_pool = 0,
                                  .state_pool = recurrent ? 0 : -1,
                                  .row_pool = 1});
      LedgerLock lock(ledger);
      PublishPath path = index.OpenPath(lock, {}, Lease());
      const testing::Members block = *testing::TakeMembers(lock, ledger, EntryType::kBlock);
      const testing::Members image = *testing::TakeMembers(lock, ledger, EntryType::kCheckpoint);
      const testing::Members row = *testing::TakeMembers(lock, ledger, EntryType::kRow);
      ASSERT_TRUE(index.PublishGroup(lock, &path, Group(0), block.pages[0]));
      const NodeId node = index.NodeOf(path);
      EXPECT_EQ(index.HasStart(node), !recurrent);
      if (recurrent) index.PublishCheckpoint(lock, node, image.pages, image.slot, false);
      index.PublishRow(lock, node, row.pages[0]);
      testing::UnrefAll(lock, ledger, EntryType::kBlock, block);
      testing::UnrefAll(lock, ledger, EntryType::kCheckpoint, image);
      testing::UnrefAll(lock, ledger, EntryType::kRow, row);
      index.ClosePath(lock, &path);
      EXPECT_EQ(ledger.idle_count(EntryType::kRow), 1u);
      for (const bool of_block : {block_first, !block_first}) {
        if (!of_block && !recurrent) continue;
        EXPECT_EQ(ledger.ReclaimPage(lock, 0, of_block ? block.pages[0] : image.pages[0]), 1);
        EXPECT_EQ(ledger.count(EntryType::kRow), recurrent && of_block && block_first ? 1u : 0u);
        EXPECT_TRUE(index.Validate(lock, 3).ok());
        EXPECT_TRUE(ledger.Validate(lock, 3).ok());
      }
      EXPECT_EQ(index.tree().size(), 1u);
    }
  }
}

}  // namespace
}  // namespace tessera
