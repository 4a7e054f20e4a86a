// SPDX-License-Identifier: Apache-2.0
#include "verify/evidence.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tessera {
namespace {

std::string_view KindName(EvidenceKind kind) {
  switch (kind) {
    case EvidenceKind::kNormRow:
      return "final-norm row";
    case EvidenceKind::kLogitRow:
      return "logits";
    case EvidenceKind::kSsm:
      return "ssm state";
    case EvidenceKind::kConv:
      return "conv state";
    case EvidenceKind::kAttention:
      return "attention state";
    case EvidenceKind::kCheckpoint:
      return "forked-from state";
    case EvidenceKind::kFloatMode:
      return "MXCSR of the caller";
    case EvidenceKind::kReuse:
      return "reuse";
  }
  return "?";
}

bool IsRow(EvidenceKind kind) {
  return kind == EvidenceKind::kNormRow || kind == EvidenceKind::kLogitRow;
}

std::span<const std::byte> BytesOf(std::span<const float> row) { return std::as_bytes(row); }

const std::map<uint32_t, std::vector<float>>& RowsOf(const SequenceEvidence& evidence,
                                                     EvidenceKind kind) {
  return kind == EvidenceKind::kNormRow ? evidence.norm_rows : evidence.logit_rows;
}

}  // namespace

std::string Difference::ToString() const {
  if (place.kind == EvidenceKind::kFloatMode) {
    return fmt::format("{}: expected {:04x}, got {:04x}", KindName(place.kind), expected, actual);
  }
  std::string text = fmt::format("{}, sequence {}{}, ", KindName(place.kind), place.sequence,
                                 place.sequence == 0 ? " (subject)" : "");
  if (place.kind == EvidenceKind::kReuse) return text + note;
  text += IsRow(place.kind) ? fmt::format("position {}", place.position)
                            : fmt::format("after {} tokens, plane {}", place.position, place.plane);
  if (!note.empty()) return text + ": " + note;
  const int digits = static_cast<int>(bits) / 4;
  return text + fmt::format(", element {}: expected {:0{}x}, got {:0{}x}", element, expected,
                            digits, actual, digits);
}

std::optional<Difference> FirstDifference(const EvidencePlace& place, uint64_t offset,
                                          std::span<const std::byte> expected,
                                          std::span<const std::byte> actual,
                                          uint32_t element_bits) {
  TESSERA_CHECK(expected.size() == actual.size());
  if (expected.empty() || std::memcmp(expected.data(), actual.data(), expected.size()) == 0) {
    return std::nullopt;
  }
  size_t at = 0;
  while (expected[at] == actual[at]) ++at;
  const uint64_t element_bytes = element_bits / 8;
  Difference difference{.place = place, .bits = element_bits};
  difference.element = (offset + at) / element_bytes;
  const size_t begin = at - (offset + at) % element_bytes;
  for (size_t i = 0; i < element_bytes && begin + i < expected.size(); ++i) {
    difference.expected |= std::to_integer<uint64_t>(expected[begin + i]) << (8 * i);
    difference.actual |= std::to_integer<uint64_t>(actual[begin + i]) << (8 * i);
  }
  return difference;
}

void ReferenceRecorder::Row(const EvidencePlace& place, std::span<const float> row) {
  SequenceEvidence& evidence = sequences_[place.sequence];
  auto& rows = place.kind == EvidenceKind::kNormRow ? evidence.norm_rows : evidence.logit_rows;
  rows[place.position].assign(row.begin(), row.end());
}

void ReferenceRecorder::State(const EvidencePlace& place, uint64_t offset,
                              std::span<const std::byte> bytes, uint32_t) {
  auto& part = sequences_[place.sequence].state[SequenceEvidence::Key(place)];
  TESSERA_CHECK(offset == part.size());
  part.insert(part.end(), bytes.begin(), bytes.end());
}

const SequenceEvidence* ReferenceRecorder::Find(uint32_t sequence) const {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? nullptr : &found->second;
}

bool ReferenceRecorder::HasNonFiniteLogits() const {
  for (const auto& [sequence, evidence] : sequences_) {
    for (const auto& [position, row] : evidence.logit_rows) {
      for (float value : row) {
        if (!std::isfinite(value)) return true;
      }
    }
  }
  return false;
}

void ReuseCounts::Add(const ReuseCounts& other) {
  hits += other.hits;
  boundaries.insert(other.boundaries.begin(), other.boundaries.end());
  tails.insert(other.tails.begin(), other.tails.end());
  from_row += other.from_row;
  resumed += other.resumed;
  recomputed += other.recomputed;
  copied_groups += other.copied_groups;
}

void EvidenceCounts::Add(const EvidenceCounts& other) {
  norm_rows += other.norm_rows;
  logit_rows += other.logit_rows;
  state_bytes += other.state_bytes;
  sequences += other.sequences;
  reuse.Add(other.reuse);
}

void Comparison::Report(const Difference& difference) {
  if (!first_.has_value()) first_ = difference;
}

void Comparison::Row(const EvidencePlace& place, std::span<const float> row) {
  (place.kind == EvidenceKind::kNormRow ? counts_.norm_rows : counts_.logit_rows) += 1;
  const SequenceEvidence* evidence = reference_.Find(place.sequence);
  const std::vector<float>* expected = nullptr;
  if (evidence != nullptr) {
    const auto& rows = RowsOf(*evidence, place.kind);
    if (const auto found = rows.find(place.position); found != rows.end()) {
      expected = &found->second;
    }
  }
  if (expected == nullptr || expected->size() != row.size()) {
    Report({.place = place, .note = "the reference has no such row"});
    return;
  }
  if (auto found = FirstDifference(place, 0, BytesOf(*expected), BytesOf(row), 32)) Report(*found);
}

void Comparison::State(const EvidencePlace& place, uint64_t offset,
                       std::span<const std::byte> bytes, uint32_t element_bits) {
  counts_.state_bytes += bytes.size();
  uint64_t& before = state_bytes_[place.sequence][SequenceEvidence::Key(place)];
  if (offset != before) {
    Report({.place = place, .note = fmt::format("byte {} follows byte {}", offset, before)});
  }
  before = offset + bytes.size();
  const SequenceEvidence* evidence = reference_.Find(place.sequence);
  if (evidence != nullptr) {
    const auto found = evidence->state.find(SequenceEvidence::Key(place));
    if (found != evidence->state.end() && offset + bytes.size() <= found->second.size()) {
      const auto expected = std::span(found->second).subspan(offset, bytes.size());
      if (auto difference = FirstDifference(place, offset, expected, bytes, element_bits)) {
        Report(*difference);
      }
      return;
    }
  }
  Report({.place = place, .note = "more state than the reference has"});
}

void Comparison::End(uint32_t sequence) {
  ++counts_.sequences;
  const std::map<uint32_t, uint64_t> parts = std::exchange(state_bytes_[sequence], {});
  const SequenceEvidence* evidence = reference_.Find(sequence);
  if (evidence == nullptr) return;  // what was handed in has been reported
  for (const auto& [key, bytes] : evidence->state) {
    const auto part = parts.find(key);
    const uint64_t actual = part == parts.end() ? 0 : part->second;
    if (actual == bytes.size()) continue;
    Report({.place = SequenceEvidence::PlaceOf(sequence, key),
            .note = fmt::format("{} bytes of state, the reference has {}", actual, bytes.size())});
  }
}

void Comparison::Adopted(const Adoption& adoption) {
  ReuseCounts& reuse = counts_.reuse;
  if (adoption.from_row) ++reuse.from_row;
  if (adoption.admitted == Adoption::Case::kEvicted) ++reuse.recomputed;
  if (adoption.admitted == Adoption::Case::kResumed) ++reuse.resumed;
  if (adoption.admitted == Adoption::Case::kFirst && adoption.reused > 0) {
    ++reuse.hits;
    reuse.boundaries.insert(adoption.reused);
    reuse.tails.insert(adoption.prompt_tokens - adoption.reused);
  }
  if (adoption.reused == adoption.expected) return;
  Report({.place = {.kind = EvidenceKind::kReuse, .sequence = adoption.sequence},
          .note = fmt::format("{} of {} prompt tokens were found, {} expected", adoption.reused,
                              adoption.prompt_tokens, adoption.expected)});
}

}  // namespace tessera
