// SPDX-License-Identifier: Apache-2.0
#include "engine/inflight_prefills.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace tessera {
namespace {

// Tokens compared at once: 256 B, where memcmp has long left its start-up behind.
constexpr size_t kCompareTokens = 64;

uint32_t CommonPrefix(std::span<const TokenId> a, std::span<const TokenId> b) {
  const size_t size = std::min(a.size(), b.size());
  size_t at = 0;
  while (at + kCompareTokens <= size &&
         std::memcmp(&a[at], &b[at], kCompareTokens * sizeof(TokenId)) == 0) {
    at += kCompareTokens;
  }
  while (at < size && a[at] == b[at]) ++at;
  return static_cast<uint32_t>(at);
}

}  // namespace

InflightPrefills::InflightPrefills(uint32_t grid) : grid_(grid) { TESSERA_CHECK(grid >= 1); }

size_t InflightPrefills::IndexOf(SequenceId id) const {
  const auto before = [](const Prefill& prefill, SequenceId key) { return prefill.id < key; };
  const auto at = std::lower_bound(prefills_.begin(), prefills_.end(), id, before);
  if (at == prefills_.end() || at->id != id) return prefills_.size();
  return static_cast<size_t>(at - prefills_.begin());
}

void InflightPrefills::Add(SequenceId id, std::span<const TokenId> prompt, std::string_view salt,
                           uint32_t public_tokens, uint32_t position) {
  TESSERA_CHECK(position < prompt.size());
  TESSERA_CHECK(IndexOf(id) == prefills_.size());
  const auto after = [](SequenceId key, const Prefill& prefill) { return key < prefill.id; };
  const auto at = std::upper_bound(prefills_.begin(), prefills_.end(), id, after);
  prefills_.insert(at, {.id = id,
                        .prompt = prompt,
                        .salt = salt,
                        .public_tokens = public_tokens,
                        .position = position});
}

void InflightPrefills::Advance(SequenceId id, uint32_t position) {
  const size_t index = IndexOf(id);
  if (index == prefills_.size()) return;
  prefills_[index].position = position;
  if (position >= prefills_[index].prompt.size()) Remove(id);
}

void InflightPrefills::Remove(SequenceId id) {
  const size_t index = IndexOf(id);
  if (index == prefills_.size()) return;
  prefills_.erase(prefills_.begin() + static_cast<std::ptrdiff_t>(index));
}

bool InflightPrefills::WillReach(SequenceId id, uint32_t position) const {
  const size_t index = IndexOf(id);
  return index < prefills_.size() && prefills_[index].position < position;
}

uint32_t InflightPrefills::JoinPosition(const JoinQuery& query, const Prefill& producer,
                                        uint32_t floor) const {
  const auto size = static_cast<uint32_t>(query.prompt.size());
  uint32_t limit = std::min(query.usable_limit, static_cast<uint32_t>(producer.prompt.size()));
  // The row after the whole prompt is kept only by one whose prompt ends there too.
  if (limit == size && producer.prompt.size() != size) limit = size - 1;
  // Where both are private they meet only in the same place of the same salt.
  if (producer.salt != query.salt || producer.public_tokens != query.public_tokens) {
    limit = std::min({limit, producer.public_tokens, query.public_tokens});
  }
  limit -= limit % grid_;
  floor = std::max(floor, producer.position);
  if (limit <= floor) return 0;
  // Most prompts that agree no further than the best one so far differ right there.
  if (producer.prompt[floor] != query.prompt[floor]) return 0;
  const uint32_t common = CommonPrefix(query.prompt.first(limit), producer.prompt.first(limit));
  const uint32_t position = common - common % grid_;
  return position > floor ? position : 0;
}

std::optional<Join> InflightPrefills::Best(const JoinQuery& query) const {
  TESSERA_CHECK(query.usable_limit <= query.prompt.size());
  Join best = {.producer = SequenceId(), .position = query.already_reusable + kLeastJoinTokens};
  for (const Prefill& producer : prefills_) {
    if (producer.id >= query.id) break;
    const uint32_t position = JoinPosition(query, producer, best.position);
    if (position > 0) best = {.producer = producer.id, .position = position};
  }
  if (!best.producer.valid()) return std::nullopt;
  return best;
}

}  // namespace tessera
