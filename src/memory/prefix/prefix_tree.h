// SPDX-License-Identifier: Apache-2.0
//
// PrefixTree is the tree of token prefixes that have state: a node stands for one path of tokens
// from its root and is found by (parent, its own tokens). A full node has 16 tokens, a tail fewer;
// a tail has no children. It knows no pages: a node carries the indices of up to three entries.
//
//   (global root) ── namespace nodes (contract id and salt) ── full nodes … ── tail
//                                                                  └── namespace nodes ── …
//
// Namespaces are themselves paths: contract id, length and bytes of the salt are the keys of their
// nodes, so that two salts cannot meet in a node whatever their hashes are. They begin at the root
// or at a full node, and add nothing to the position.
//
// T1  A node is found only by its whole key: parent, length, every token and whether it is one of a
//     namespace are compared; hashes only say where to look.
// T2  A node lives while it has a member, a child or a hold, or is the global root. Prune removes
//     it and every ancestor that then has none.
// T3  No call after construction allocates; Add says no when every node is in use.
// T4  Path hashes depend on the keys from the root down only, so they can be computed before any
//     node is read, and their cache lines fetched ahead.
//
// T5  Paths whose node was removed are remembered for a while: WasThere.
//
// Cost: a look-up reads one line of the PathTable and the two lines of the node. 128 B a node and
// 21 to 43 B of the table.
//
// Threads: none of its own.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "base/strong_id.h"
#include "memory/geometry/state_shape.h"
#include "memory/prefix/path_table.h"
#include "port/huge_pages.h"

namespace tessera {

using NodeId = StrongId<struct NodeIdTag>;

class PrefixTree {
 public:
  static constexpr uint32_t kNone = PathTable::kNone;

  enum Flag : uint8_t {
    kAlive = 1,
    kNamespace = 2,
    kBlockWithdrawn = 4,  // the entry is being reclaimed: not offered
    kCheckpointWithdrawn = 8,
    kCheckpointLost = 16,  // there was one here and it was taken back
    kSpare = 32,           // the checkpoint was placed because memory was plentiful
    kRowWithdrawn = 64,
  };

  struct alignas(128) Node {
    std::array<TokenId, kGroupTokens> tokens;  // the first `length`; the rest are zero
    uint64_t path_hash = 0;
    uint32_t parent = kNone;
    uint32_t first_child = kNone;
    uint32_t next_sibling = kNone;
    uint32_t previous_sibling = kNone;
    uint32_t block = kNone;  // indices of entries
    uint32_t checkpoint = kNone;
    uint32_t row = kNone;
    uint32_t position = 0;  // tokens from the root to the end of this node
    uint32_t child_count = 0;
    uint32_t last_use = 0;   // look-up clock: a checkpoint placed here, or last started from
    uint32_t last_seen = 0;  // the same, of any path through here
    uint16_t tail_mask = 0;  // bit l: a tail of length l may be among the children
    uint16_t holds = 0;
    uint16_t hits = 0;      // requests that started from here
    uint16_t branches = 0;  // those that then took a way of their own
    uint8_t length = 0;
    uint8_t flags = 0;

    bool has(Flag flag) const { return (flags & flag) != 0; }
    bool has_member() const { return block != kNone || checkpoint != kNone || row != kNone; }
  };
  static_assert(sizeof(Node) == 128);

  explicit PrefixTree(uint32_t capacity);

  uint32_t capacity() const { return static_cast<uint32_t>(nodes_.size()); }
  uint32_t size() const { return size_; }
  uint64_t metadata_bytes() const { return nodes_.size() * sizeof(Node) + paths_.bytes(); }
  NodeId root() const { return NodeId(0); }
  Node& at(NodeId node) { return nodes_[node.index()]; }
  const Node& at(NodeId node) const { return nodes_[node.index()]; }

  static uint64_t ChildHash(uint64_t parent_hash, std::span<const TokenId> tokens);
  // Fetches what Find of this hash will read: its place in the table, then the likely node.
  void Prefetch(uint64_t hash) const { paths_.Prefetch(hash); }
  void PrefetchNode(uint64_t hash) const;
  // `hash` is ChildHash(parent's path_hash, tokens). Invalid when there is none; namespaces are not
  // found so.
  NodeId Find(NodeId parent, uint64_t hash, std::span<const TokenId> tokens) const {
    return FindKey(parent, hash, tokens, 0);
  }
  // Whether there was a node of this path hash that has been removed, as far as is remembered; no
  // namespaces are.
  bool WasThere(uint64_t hash) const { return paths_.Remembers(hash); }
  // A child that is not there yet; invalid when every node is in use.
  NodeId Add(NodeId parent, uint64_t hash, std::span<const TokenId> tokens, uint8_t flags = 0);

  // The node under which the paths of a contract and salt begin, after those to `parent`: the root
  // or a full node. Invalid when it is not there; when every node is in use.
  NodeId FindNamespace(NodeId parent, uint64_t contract_id, std::string_view salt) const;
  NodeId AddNamespace(NodeId parent, uint64_t contract_id, std::string_view salt);
  // Its path hash, there or not.
  static uint64_t NamespaceHash(uint64_t parent_hash, uint64_t contract_id, std::string_view salt);

  void Hold(NodeId node);
  void Unhold(NodeId node) { --at(node).holds; }
  // Removes the node if nothing keeps it (T2), then its parents likewise. `removed` is called for
  // each before it goes. Returns the first node that stays.
  template <typename Removed>
  NodeId Prune(NodeId node, Removed&& removed) {
    while (node != root() && !Kept(at(node))) {
      const NodeId parent(at(node).parent);
      removed(node);
      Remove(node);
      node = parent;
    }
    return node;
  }

  // Tokens that `tokens` shares with the children of `node`, at most 16. Looks at the newest
  // kSiblingsSeen children: a node with more diverges at once in practice.
  uint32_t SharedWithChildren(NodeId node, std::span<const TokenId> tokens) const;
  static constexpr uint32_t kSiblingsSeen = 32;

  // Links, the table and counters, in O(n).
  Status Validate() const;

 private:
  static bool Kept(const Node& node) {
    return node.has_member() || node.child_count > 0 || node.holds > 0;
  }
  // A path is published node after node: the one that is added next.
  static void PrefetchForAdd(const Node& node);
  // `flags`: 0 or kNamespace.
  NodeId FindKey(NodeId parent, uint64_t hash, std::span<const TokenId> tokens,
                 uint8_t flags) const;
  static bool Matches(const Node& node, NodeId parent, std::span<const TokenId> tokens,
                      uint8_t flags);
  void Link(uint32_t index, Node& parent);
  void Unlink(const Node& node);
  void Remove(NodeId node);

  HugeVector<Node> nodes_;
  PathTable paths_;
  uint32_t free_ = kNone;  // unused nodes, chained through next_sibling
  uint32_t size_ = 0;
};

}  // namespace tessera
