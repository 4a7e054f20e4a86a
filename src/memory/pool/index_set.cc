// SPDX-License-Identifier: Apache-2.0
#include "memory/pool/index_set.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace tessera {
namespace {

constexpr uint32_t kWordBits = 64;

// Bit i of the result is set when bits i .. i+length-1 of `word` are; 1 <= length <= 64.
uint64_t RunStarts(uint64_t word, uint32_t length) {
  for (uint32_t done = 1; done < length && word != 0;) {
    const uint32_t step = std::min(done, length - done);
    word &= word >> step;
    done += step;
  }
  return word;
}

}  // namespace

IndexSet::IndexSet(uint32_t size) : size_(size) {
  uint32_t bits = size;
  do {
    bits = bits / kWordBits + (bits % kWordBits != 0 ? 1 : 0);
    levels_.emplace_back(std::max<uint32_t>(bits, 1), 0);
  } while (bits > 1);
}

bool IndexSet::Contains(uint32_t index) const {
  return index < size_ && (levels_[0][index / kWordBits] >> (index % kWordBits) & 1) != 0;
}

void IndexSet::Insert(uint32_t index) {
  TESSERA_CHECK(index < size_ && !Contains(index));
  ++count_;
  for (std::vector<uint64_t>& level : levels_) {
    uint64_t& word = level[index / kWordBits];
    const bool was_empty = word == 0;
    word |= uint64_t{1} << (index % kWordBits);
    if (!was_empty) return;
    index /= kWordBits;
  }
}

void IndexSet::Erase(uint32_t index) {
  TESSERA_CHECK(Contains(index));
  --count_;
  for (std::vector<uint64_t>& level : levels_) {
    uint64_t& word = level[index / kWordBits];
    word &= ~(uint64_t{1} << (index % kWordBits));
    if (word != 0) return;
    index /= kWordBits;
  }
}

void IndexSet::InsertAll() {
  for (uint32_t index = 0; index < size_; ++index) {
    if (!Contains(index)) Insert(index);
  }
}

uint32_t IndexSet::FindFirst(uint32_t from) const {
  if (from >= size_) return kNone;
  uint32_t at = from;
  for (size_t k = 0; k < levels_.size(); ++k) {
    const uint32_t word = at / kWordBits;
    if (word >= levels_[k].size()) return kNone;
    const uint64_t rest = levels_[k][word] & (~uint64_t{0} << (at % kWordBits));
    if (rest == 0) {
      at = word + 1;  // the next word, one level up
      continue;
    }
    at = word * kWordBits + static_cast<uint32_t>(std::countr_zero(rest));
    while (k > 0) {
      --k;
      at = at * kWordBits + static_cast<uint32_t>(std::countr_zero(levels_[k][at]));
    }
    return at;
  }
  return kNone;
}

uint32_t IndexSet::FindLast(uint32_t end) const {
  uint32_t below = std::min(end, size_);  // exclusive, in bits of the level
  for (size_t k = 0; k < levels_.size() && below > 0; ++k) {
    const uint32_t word = (below - 1) / kWordBits;
    const uint32_t bits = below - word * kWordBits;  // 1..64
    const uint64_t rest = levels_[k][word] & (~uint64_t{0} >> (kWordBits - bits));
    if (rest == 0) {
      below = word;
      continue;
    }
    uint32_t at = word * kWordBits + 63 - static_cast<uint32_t>(std::countl_zero(rest));
    while (k > 0) {
      --k;
      at = at * kWordBits + 63 - static_cast<uint32_t>(std::countl_zero(levels_[k][at]));
    }
    return at;
  }
  return kNone;
}

uint64_t IndexSet::MaskedWord(uint32_t word, uint32_t end) const {
  const uint32_t bits = std::min(end - word * kWordBits, kWordBits);
  return levels_[0][word] & (~uint64_t{0} >> (kWordBits - bits));
}

uint32_t IndexSet::CountIn(uint32_t begin, uint32_t end) const {
  end = std::min(end, size_);
  uint32_t members = 0;
  for (uint32_t at = begin; at < end;) {
    const uint32_t word = at / kWordBits;
    const uint64_t bits = MaskedWord(word, end) & (~uint64_t{0} << (at % kWordBits));
    members += static_cast<uint32_t>(std::popcount(bits));
    at = (word + 1) * kWordBits;
  }
  return members;
}

IndexSet::Run IndexSet::ExtendDown(uint32_t run_end, uint32_t length, uint32_t most) const {
  length = std::min(length, most);
  while (length < most && length < run_end && Contains(run_end - length - 1)) ++length;
  return {run_end - length, length};
}

// Word by word from the top. `open` is the length of the run that reaches down to the bottom of the
// word above; a run inside one word is found by eroding it.
IndexSet::Run IndexSet::FindRunDown(uint32_t end, uint32_t least, uint32_t most) const {
  TESSERA_DCHECK(least >= 1 && least <= most);
  end = std::min(end, size_);
  uint32_t open = 0;
  uint32_t above = kNone;  // the word `open` reaches down through
  for (uint32_t at = FindLast(end); at != kNone; at = FindLast(above * kWordBits)) {
    const uint32_t word = at / kWordBits;
    const uint32_t base = word * kWordBits;
    const uint64_t bits = MaskedWord(word, end);
    const uint32_t top = static_cast<uint32_t>(std::countl_one(bits));
    if (word + 1 != above) open = 0;
    above = word;
    if (open > 0 && open + top >= least) return ExtendDown(base + kWordBits + open, open, most);
    const uint64_t starts = least <= kWordBits ? RunStarts(bits, least) : 0;
    if (starts != 0) {
      const uint32_t start = 63 - static_cast<uint32_t>(std::countl_zero(starts));
      return ExtendDown(base + start + least, least, most);
    }
    open = top == kWordBits ? open + top : static_cast<uint32_t>(std::countr_one(bits));
  }
  return {};
}

bool IndexSet::IsConsistent() const {
  uint32_t members = 0;
  for (uint64_t word : levels_[0]) members += static_cast<uint32_t>(std::popcount(word));
  if (members != count_) return false;
  for (size_t k = 0; k + 1 < levels_.size(); ++k) {
    for (size_t word = 0; word < levels_[k].size(); ++word) {
      const bool summary = (levels_[k + 1][word / kWordBits] >> (word % kWordBits) & 1) != 0;
      if (summary != (levels_[k][word] != 0)) return false;
    }
  }
  return true;
}

}  // namespace tessera
