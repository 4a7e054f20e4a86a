// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/prefix_tree.h"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace tessera {
namespace {

// What a namespace node's key holds: 64 bytes of (contract id, length of the salt, salt, zeros).
constexpr size_t kKeyBytes = kGroupTokens * sizeof(TokenId);
constexpr size_t kHeaderBytes = 16;

// Fills the `part`-th key; false when the salt ends before it.
bool NamespaceKey(uint64_t contract_id, std::string_view salt, size_t part,
                  std::array<TokenId, kGroupTokens>* key) {
  key->fill(0);
  std::byte* out = reinterpret_cast<std::byte*>(key->data());
  size_t room = kKeyBytes;
  size_t begin = 0;
  if (part == 0) {
    const uint64_t length = salt.size();
    std::memcpy(out, &contract_id, sizeof contract_id);
    std::memcpy(out + sizeof contract_id, &length, sizeof length);
    out += kHeaderBytes;
    room -= kHeaderBytes;
  } else {
    begin = kKeyBytes * part - kHeaderBytes;
    if (begin >= salt.size()) return false;
  }
  const std::string_view piece = salt.substr(begin, room);
  if (!piece.empty()) std::memcpy(out, piece.data(), piece.size());
  return true;
}

}  // namespace

PrefixTree::PrefixTree(uint32_t capacity)
    : nodes_(std::max<uint32_t>(capacity, 1)), paths_(this->capacity()) {
  for (uint32_t i = static_cast<uint32_t>(nodes_.size()); i > 1; --i) {
    nodes_[i - 1].next_sibling = free_;
    free_ = i - 1;
  }
  nodes_[0].flags = kAlive | kNamespace;
  size_ = 1;
}

uint64_t PrefixTree::ChildHash(uint64_t parent_hash, std::span<const TokenId> tokens) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), parent_hash + tokens.size());
}

void PrefixTree::PrefetchNode(uint64_t hash) const {
  paths_.Find(hash, [this](uint32_t index) {
    __builtin_prefetch(&nodes_[index]);
    __builtin_prefetch(&nodes_[index].path_hash);
    return true;
  });
}

void PrefixTree::PrefetchForAdd(const Node& node) {
  __builtin_prefetch(&node, 1);
  __builtin_prefetch(&node.path_hash, 1);
}

bool PrefixTree::Matches(const Node& node, NodeId parent, std::span<const TokenId> tokens,
                         uint8_t flags) {
  return node.parent == parent.index() && node.length == tokens.size() &&
         (node.flags & kNamespace) == flags &&
         std::memcmp(node.tokens.data(), tokens.data(), tokens.size_bytes()) == 0;
}

NodeId PrefixTree::FindKey(NodeId parent, uint64_t hash, std::span<const TokenId> tokens,
                           uint8_t flags) const {
  const uint32_t node = paths_.Find(
      hash, [&](uint32_t index) { return Matches(nodes_[index], parent, tokens, flags); });
  return node == kNone ? NodeId() : NodeId(node);
}

NodeId PrefixTree::Add(NodeId parent, uint64_t hash, std::span<const TokenId> tokens,
                       uint8_t flags) {
  TESSERA_CHECK(!tokens.empty() && tokens.size() <= kGroupTokens);
  if (free_ == kNone) return NodeId();
  const uint32_t index = free_;
  Node& node = nodes_[index];
  free_ = node.next_sibling;
  ++size_;
  if (free_ != kNone) PrefetchForAdd(nodes_[free_]);
  node = Node();
  node.tokens.fill(0);
  std::copy(tokens.begin(), tokens.end(), node.tokens.begin());
  node.path_hash = hash;
  node.length = static_cast<uint8_t>(tokens.size());
  node.flags = kAlive | flags;
  node.parent = parent.index();
  Node& above = at(parent);
  TESSERA_DCHECK(above.length == kGroupTokens || parent == root());  // a tail has no children
  node.position = above.position + ((flags & kNamespace) != 0 ? 0 : node.length);
  Link(index, above);
  paths_.Insert(hash, index);
  return NodeId(index);
}

void PrefixTree::Link(uint32_t index, Node& parent) {
  Node& node = nodes_[index];
  node.next_sibling = parent.first_child;
  if (parent.first_child != kNone) nodes_[parent.first_child].previous_sibling = index;
  parent.first_child = index;
  ++parent.child_count;
  if (node.length < kGroupTokens) parent.tail_mask |= static_cast<uint16_t>(1u << node.length);
}

void PrefixTree::Unlink(const Node& node) {
  Node& parent = nodes_[node.parent];
  if (node.previous_sibling != kNone) {
    nodes_[node.previous_sibling].next_sibling = node.next_sibling;
  } else {
    parent.first_child = node.next_sibling;
  }
  if (node.next_sibling != kNone)
    nodes_[node.next_sibling].previous_sibling = node.previous_sibling;
  // Other tails of the same length may be left; without children there are none.
  if (--parent.child_count == 0) parent.tail_mask = 0;
}

void PrefixTree::Remove(NodeId id) {
  Node& node = at(id);
  Unlink(node);
  paths_.Erase(node.path_hash, id.index());
  if (!node.has(kNamespace)) paths_.Remember(node.path_hash);
  node.flags = 0;
  node.next_sibling = free_;
  free_ = id.index();
  --size_;
}

uint64_t PrefixTree::NamespaceHash(uint64_t parent_hash, uint64_t contract_id,
                                   std::string_view salt) {
  std::array<TokenId, kGroupTokens> key;
  for (size_t part = 0; NamespaceKey(contract_id, salt, part, &key); ++part) {
    parent_hash = ChildHash(parent_hash, key);
  }
  return parent_hash;
}

NodeId PrefixTree::FindNamespace(NodeId parent, uint64_t contract_id, std::string_view salt) const {
  NodeId node = parent;
  std::array<TokenId, kGroupTokens> key;
  for (size_t part = 0; node.valid() && NamespaceKey(contract_id, salt, part, &key); ++part) {
    node = FindKey(node, ChildHash(at(node).path_hash, key), key, kNamespace);
  }
  return node;
}

NodeId PrefixTree::AddNamespace(NodeId parent, uint64_t contract_id, std::string_view salt) {
  NodeId node = parent;
  std::array<TokenId, kGroupTokens> key;
  for (size_t part = 0; NamespaceKey(contract_id, salt, part, &key); ++part) {
    const uint64_t hash = ChildHash(at(node).path_hash, key);
    NodeId next = FindKey(node, hash, key, kNamespace);
    if (!next.valid()) next = Add(node, hash, key, kNamespace);
    if (!next.valid()) {
      Prune(node, [](NodeId) {});
      return NodeId();
    }
    node = next;
  }
  return node;
}

void PrefixTree::Hold(NodeId node) {
  TESSERA_CHECK(at(node).holds < std::numeric_limits<uint16_t>::max());
  ++at(node).holds;
}

uint32_t PrefixTree::SharedWithChildren(NodeId node, std::span<const TokenId> tokens) const {
  uint32_t longest = 0;
  uint32_t child = at(node).first_child;
  for (uint32_t seen = 0; child != kNone && seen < kSiblingsSeen; ++seen) {
    const Node& other = nodes_[child];
    child = other.next_sibling;
    if (other.has(kNamespace)) continue;
    const size_t most = std::min<size_t>(other.length, tokens.size());
    uint32_t shared = 0;
    while (shared < most && other.tokens[shared] == tokens[shared]) ++shared;
    longest = std::max(longest, shared);
  }
  return longest;
}

Status PrefixTree::Validate() const {
  auto wrong = [](uint32_t node, const char* what) {
    return Status(StatusCode::kFailed, fmt::format("prefix tree: node {}: {}", node, what));
  };
  std::vector<uint32_t> children(nodes_.size(), 0);
  uint32_t alive = 0;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.has(kAlive)) continue;
    ++alive;
    if (i == 0) continue;
    const Node& parent = nodes_[node.parent];
    ++children[node.parent];
    if (!parent.has(kAlive)) return wrong(i, "its parent is not alive");
    if (!Kept(node)) return wrong(i, "nothing keeps it");
    const std::span<const TokenId> key(node.tokens.data(), node.length);
    if (node.path_hash != ChildHash(parent.path_hash, key)) return wrong(i, "its hash is another");
    const uint8_t flags = node.flags & kNamespace;
    if (FindKey(NodeId(node.parent), node.path_hash, key, flags) != NodeId(i)) {
      return wrong(i, "not found");
    }
    const uint32_t own = node.has(kNamespace) ? 0 : node.length;
    if (node.position != parent.position + own) return wrong(i, "its position is another");
    if (node.length < kGroupTokens && (parent.tail_mask >> node.length & 1) == 0) {
      return wrong(i, "its parent knows no tail of this length");
    }
  }
  if (alive != size_) return wrong(0, "the number of nodes alive is another");
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].has(kAlive) && nodes_[i].child_count != children[i]) {
      return wrong(i, "its children are another number");
    }
  }
  const uint32_t used = paths_.CountNodes();
  return used + 1 == size_ ? Status::Ok() : wrong(0, "the table has another number of nodes");
}

}  // namespace tessera
