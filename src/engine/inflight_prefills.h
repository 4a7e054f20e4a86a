// SPDX-License-Identifier: Apache-2.0
//
// InflightPrefills knows the prompts that are being computed now, so that a request with the same
// beginning can wait for it instead of computing it a second time.
//
//   Add --> in flight at `position` --Advance*--> (prompt done: forgotten)
//              |
//              +--Remove (cancelled, failed)--> (forgotten)
//
// Best finds, for a request that is about to be admitted, the running prefill that will have
// computed most of what the request needs: its producer, and where they part. The caller sees to it
// that the producer's state is published there, and holds the request back until WillReach is
// false. A producer that takes no more boundaries (SequenceState::AddCut) is not waited for.
//
// J1  Only prompts of equal salt, or what both of them declare public, are ever compared, and only
//     whole tokens from the first one on.
// J2  What Best returns lies ahead of the producer, on the grid, within what the request may use,
//     and saves it more than kLeastJoinTokens.
// J3  A producer arrived before the request that waits for it. So waits form no cycle, and a
//     request waits for finitely many others, whatever arrives later.
// J4  Nothing is allocated once as many prefills as run together have been seen.
//
// Failure: none; misuse is a CHECK. Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/strong_id.h"

namespace tessera {

// Waiting costs a request its place in the steps until the producer is there; a group of tokens,
// what one page of attention holds, is recomputed within any step beside what runs anyway.
inline constexpr uint32_t kLeastJoinTokens = 16;

struct JoinQuery {
  SequenceId id;
  std::span<const TokenId> prompt;
  std::string_view salt;
  uint32_t public_tokens = 0;  // of the prompt, that all may find (PublicTokens)
  // The longest prefix of use: the prompt's size when its last row is (the request starts from the
  // kept row), one less otherwise.
  uint32_t usable_limit = 0;
  uint32_t already_reusable = 0;  // tokens that need no producer
};

struct Join {
  SequenceId producer;
  uint32_t position = 0;  // the request's first `position` tokens are the producer's
};

class InflightPrefills {
 public:
  // Boundaries exist at multiples of `grid` only.
  explicit InflightPrefills(uint32_t grid = 1);

  // A prefill starts with `position` tokens known, fewer than the prompt has. The bytes that
  // `prompt` and `salt` view stay where they are until it is forgotten.
  void Add(SequenceId id, std::span<const TokenId> prompt, std::string_view salt,
           uint32_t public_tokens, uint32_t position);
  // More of it is computed. Does nothing for one that is not in flight.
  void Advance(SequenceId id, uint32_t position);
  void Remove(SequenceId id);

  // Whether `id` is in flight and behind `position`.
  bool WillReach(SequenceId id, uint32_t position) const;
  // The longest join; of equal ones, with the producer that arrived first. None when none is worth
  // waiting for. Compares as many tokens as the two prompts share, and with most others one.
  std::optional<Join> Best(const JoinQuery& query) const;

  size_t size() const { return prefills_.size(); }

 private:
  struct Prefill {
    SequenceId id;
    std::span<const TokenId> prompt;
    std::string_view salt;
    uint32_t public_tokens = 0;
    uint32_t position = 0;
  };
  size_t IndexOf(SequenceId id) const;  // size() when it is not in flight
  // The join with one producer, when it is longer than `floor`; else 0.
  uint32_t JoinPosition(const JoinQuery& query, const Prefill& producer, uint32_t floor) const;

  const uint32_t grid_;
  std::vector<Prefill> prefills_;  // by id: in order of arrival
};

}  // namespace tessera
