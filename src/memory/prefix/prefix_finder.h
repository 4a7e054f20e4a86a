// SPDX-License-Identifier: Apache-2.0
//
// PrefixFinder is one look-up: it walks a prompt down the tree, keeps the deepest boundary where
// every kind is there, and says why nothing deeper will do. It only reads.
//
// Groups go by kAhead: while the nodes of some are on their way, the next are hashed and their
// bins fetched. Without that each group waits for three cache misses in turn.
//
// Threads: reads the tree; the caller holds the ledger's lock.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <span>

#include "memory/prefix/isolation.h"
#include "memory/prefix/prefix_index.h"

namespace tessera {

class PrefixFinder {
 public:
  struct Rules {
    uint64_t contract_id = 0;
    uint32_t grid = 1;
    bool attention = false;  // kinds the model has
    bool recurrent = false;
  };

  PrefixFinder(const PrefixTree& tree, const Rules& rules, const PrefixQuery& query)
      : tree_(tree),
        rules_(rules),
        query_(query),
        public_tokens_(PublicTokens(query.salt, query.isolate_after)),
        private_group_(public_tokens_ > 0 ? public_tokens_ / kGroupTokens : kNoGroup),
        first_salt_(public_tokens_ == 0 ? query.salt : std::string_view()) {}

  Match Run();

 private:
  static constexpr size_t kAhead = 8;
  static constexpr size_t kNoGroup = std::numeric_limits<size_t>::max();

  std::span<const TokenId> Group(size_t group) const {
    return query_.prompt.subspan(group * kGroupTokens, kGroupTokens);
  }
  using Hashes = std::array<uint64_t, kAhead>;
  // Of the namespace of the query's salt, after a path of `hash`.
  uint64_t SaltHash(uint64_t hash) const {
    return PrefixTree::NamespaceHash(hash, rules_.contract_id, query_.salt);
  }
  void WalkGroups();
  // Of as many groups from `first` on as there are, after a path of `hash`; fetches their bins.
  void HashAhead(uint64_t hash, size_t first, Hashes* hashes) const;
  // One group down; false when it is not there.
  bool Descend(size_t group, uint64_t hash);
  // Where the path ceases to be everybody's: on below the salt. False when nothing is there.
  bool EnterNamespace();
  // What is left after the whole groups, known or not.
  void TryEnd(size_t groups);
  void TryTails();
  // A node of the path (or a tail at it) with `attention` up to its end.
  void Visit(NodeId id, bool attention);
  bool HasAttention(const PrefixTree::Node& node) const;
  void FindDivergence();
  void Explain();
  void AddComputed(uint32_t begin, uint32_t end, ComputeReason reason);
  ComputeReason KnownReason() const;
  ComputeReason UnknownReason() const;

  const PrefixTree& tree_;
  const Rules rules_;
  const PrefixQuery& query_;
  const uint32_t public_tokens_;
  const size_t private_group_;         // the first after public ones
  const std::string_view first_salt_;  // of the namespace that the walk begins in
  Match match_;
  NodeId node_;              // the last full node of the path
  bool attention_ = true;    // it has attention state from token 0 on
  uint32_t known_node_ = 0;  // position of the deepest node or tail on the path
  uint32_t lost_ = 0;        // the deepest boundary whose checkpoint was taken back
  uint64_t next_hash_ = 0;   // of the first group that has no node
};

}  // namespace tessera
