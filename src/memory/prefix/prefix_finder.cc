// SPDX-License-Identifier: Apache-2.0
#include "memory/prefix/prefix_finder.h"

#include <algorithm>
#include <bit>

namespace tessera {

Match PrefixFinder::Run() {
  match_.report.prompt_tokens = static_cast<uint32_t>(query_.prompt.size());
  const NodeId root = tree_.root();
  next_hash_ = PrefixTree::NamespaceHash(tree_.at(root).path_hash, rules_.contract_id, first_salt_);
  node_ = tree_.FindNamespace(root, rules_.contract_id, first_salt_);
  if (node_.valid()) {
    WalkGroups();
    FindDivergence();
  } else {  // its first tokens may have been there
    const size_t first = std::min<size_t>(query_.prompt.size(), kGroupTokens);
    next_hash_ = PrefixTree::ChildHash(next_hash_, query_.prompt.first(first));
  }
  Explain();
  return match_;
}

void PrefixFinder::HashAhead(uint64_t hash, size_t first, Hashes* hashes) const {
  const size_t groups = query_.prompt.size() / kGroupTokens;
  for (size_t i = 0; i < kAhead && first + i < groups; ++i) {
    if (first + i == private_group_) hash = SaltHash(hash);
    hash = (*hashes)[i] = PrefixTree::ChildHash(hash, Group(first + i));
    tree_.Prefetch(hash);
  }
}

bool PrefixFinder::EnterNamespace() {
  const NodeId space = tree_.FindNamespace(node_, rules_.contract_id, query_.salt);
  if (space.valid()) node_ = space;
  return space.valid();
}

bool PrefixFinder::Descend(size_t group, uint64_t hash) {
  const std::span<const TokenId> tokens = Group(group);
  next_hash_ = hash;
  if (group == private_group_ && !EnterNamespace()) return false;
  TryTails();
  const NodeId child = tree_.Find(node_, hash, tokens);
  if (!child.valid()) return false;
  node_ = child;
  attention_ = attention_ && HasAttention(tree_.at(child));
  Visit(child, attention_);
  return true;
}

void PrefixFinder::WalkGroups() {
  const size_t groups = query_.prompt.size() / kGroupTokens;
  Hashes hashes = {}, next = {};
  HashAhead(next_hash_, 0, &hashes);
  for (size_t first = 0; first < groups; first += kAhead) {
    const size_t count = std::min(kAhead, groups - first);
    for (size_t i = 0; i < count; ++i) tree_.PrefetchNode(hashes[i]);
    HashAhead(hashes[count - 1], first + count, &next);
    for (size_t i = 0; i < count; ++i) {
      if (!Descend(first + i, hashes[i])) return;
    }
    hashes = next;
  }
  TryEnd(groups);
}

void PrefixFinder::TryEnd(size_t groups) {
  const size_t left = query_.prompt.size() - groups * kGroupTokens;
  if (left == 0) return;
  const bool is_private = groups == private_group_;
  if (is_private) next_hash_ = SaltHash(next_hash_);
  next_hash_ = PrefixTree::ChildHash(next_hash_, query_.prompt.last(left));
  if (!is_private || EnterNamespace()) TryTails();
}

bool PrefixFinder::HasAttention(const PrefixTree::Node& node) const {
  return !rules_.attention ||
         (node.block != PrefixTree::kNone && !node.has(PrefixTree::kBlockWithdrawn));
}

void PrefixFinder::TryTails() {
  const PrefixTree::Node& node = tree_.at(node_);
  const std::span<const TokenId> rest = query_.prompt.subspan(node.position);
  for (uint32_t mask = node.tail_mask; mask != 0; mask &= mask - 1) {
    const size_t length = static_cast<size_t>(std::countr_zero(mask));
    if (length > rest.size()) return;
    const std::span<const TokenId> tokens = rest.first(length);
    const NodeId tail = tree_.Find(node_, PrefixTree::ChildHash(node.path_hash, tokens), tokens);
    if (tail.valid()) Visit(tail, attention_ && HasAttention(tree_.at(tail)));
  }
}

void PrefixFinder::Visit(NodeId id, bool attention) {
  const PrefixTree::Node& node = tree_.at(id);
  MatchReport& report = match_.report;
  known_node_ = std::max(known_node_, node.position);
  if (attention && rules_.attention) report.attention = std::max(report.attention, node.position);
  bool recurrent = true;
  if (rules_.recurrent) {
    recurrent = node.checkpoint != PrefixTree::kNone && !node.has(PrefixTree::kCheckpointWithdrawn);
    if (recurrent) report.recurrent = std::max(report.recurrent, node.position);
    if (node.has(PrefixTree::kCheckpointLost)) lost_ = std::max(lost_, node.position);
  }
  if (!attention || !recurrent || node.position <= report.reused) return;
  const bool whole = node.position == report.prompt_tokens;
  // The logits of the last token come from computing it or from its kept row.
  if (whole &&
      (!query_.from_row || node.row == PrefixTree::kNone || node.has(PrefixTree::kRowWithdrawn))) {
    return;
  }
  report.reused = node.position;
  report.from_row = whole;
  match_.boundary = id;
}

void PrefixFinder::FindDivergence() {
  MatchReport& report = match_.report;
  const uint32_t position = tree_.at(node_).position;
  // Everybody's ways on are not those of a path that ceases to be everybody's here.
  const bool at_end = position == public_tokens_ && !tree_.at(node_).has(PrefixTree::kNamespace);
  const uint32_t shared =
      at_end ? 0 : tree_.SharedWithChildren(node_, query_.prompt.subspan(position));
  report.diverged_at = std::max(known_node_, position + shared);
  match_.own_way = tree_.at(node_).child_count > 0 || report.diverged_at >= report.prompt_tokens;
  if (!rules_.recurrent) report.recurrent = report.attention;
  if (!rules_.attention) report.attention = report.diverged_at;
}

void PrefixFinder::AddComputed(uint32_t begin, uint32_t end, ComputeReason reason) {
  if (begin >= end) return;
  match_.report.computed[match_.report.computed_count++] = {begin, end, reason};
}

void PrefixFinder::Explain() {
  const MatchReport& report = match_.report;
  const uint32_t known = std::max(report.reused, report.diverged_at);
  AddComputed(report.reused, known, KnownReason());
  AddComputed(known, report.prompt_tokens, UnknownReason());
}

// Why what is known beyond the boundary cannot be used.
ComputeReason PrefixFinder::KnownReason() const {
  const MatchReport& report = match_.report;
  const uint32_t known = report.diverged_at;
  const bool whole_groups_missing =
      rules_.attention && report.attention / kGroupTokens < known_node_ / kGroupTokens;
  if (whole_groups_missing) return ComputeReason::kEvicted;
  if (report.recurrent > report.reused || lost_ > report.reused) {
    // A whole prompt without its row has everything but that.
    if (report.recurrent < report.prompt_tokens) return ComputeReason::kEvicted;
  }
  const uint32_t usable = std::min(known, report.prompt_tokens - 1);
  const uint32_t grid = rules_.recurrent ? rules_.grid : kGroupTokens;
  if (grid > 1 && usable / grid * grid <= report.reused) return ComputeReason::kBelowGrid;
  return ComputeReason::kNoCheckpoint;
}

// Why the rest is not known at all.
ComputeReason PrefixFinder::UnknownReason() const {
  const uint32_t known = match_.report.diverged_at;
  if (tree_.WasThere(next_hash_)) return ComputeReason::kEvicted;
  if (known == public_tokens_) return ComputeReason::kSalt;
  if (known == 0) return ComputeReason::kCold;
  return tree_.at(node_).child_count > 0 ? ComputeReason::kDiverged : ComputeReason::kCold;
}

}  // namespace tessera
