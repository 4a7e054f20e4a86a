// SPDX-License-Identifier: Apache-2.0
//
// Evidence is what a run of sequences leaves behind that must be the same bits in every cell: the
// final-norm row of each position that was asked for, logit rows, and at a sequence's end the bytes
// of its state. A run hands it, piece by piece, to an EvidenceSink: ReferenceRecorder keeps it,
// Comparison holds it against what a recorder kept. Nothing else is stored, so comparing costs no
// memory.
//
// Where state is reused it also says of each admission how much of its prompt was found: a run that
// computed what it should have found has the right bits and proves nothing.
//
// E1  Rows are compared as bits (memcmp): +0 and -0 differ, a NaN equals only the same NaN.
// E2  A piece the reference lacks, one that does not follow the last of its part, or a part of the
//     final state (of each kind and plane) that is missing or of another length, is a difference.
// E3  Several runs of one sequence may be compared, each in itself: the last part of one's final
//     state is followed by its End before another's first.
// E4  An admission that found less or more of its prompt than was there to be found for it is a
//     difference.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace tessera {

enum class EvidenceKind : uint8_t {
  kNormRow,     // final-norm row after a position
  kLogitRow,    // logits after a position
  kSsm,         // SSM part of the image of a plane, at a sequence's end
  kConv,        // conv part
  kAttention,   // the groups of a plane, one after another
  kCheckpoint,  // the image a step forked from: must be as it was before the step
  kFloatMode,   // the caller's MXCSR: likewise
  kReuse,       // tokens of a prompt that an admission found
};

struct EvidencePlace {
  EvidenceKind kind = EvidenceKind::kNormRow;
  uint32_t sequence = 0;  // script
  uint32_t position = 0;  // rows: of the token; state: tokens the sequence had
  uint32_t plane = 0;     // state only
};

// The first element that is not what it should be.
struct Difference {
  EvidencePlace place;
  uint64_t element = 0;   // in the row, or byte / element_bytes in the part of the image
  uint32_t bits = 32;     // of an element
  uint64_t expected = 0;  // bit patterns
  uint64_t actual = 0;
  std::string note = {};  // when there is nothing to compare with

  // "logits, sequence 0 (subject), position 312, element 17: expected 3f800001, got 3f800000"
  std::string ToString() const;
};

// How much of its prompt an admission found.
struct Adoption {
  enum class Case : uint8_t {
    kFirst,    // of a sequence
    kResumed,  // of one that was preempted
    kEvicted,  // of one that was preempted and whose state is gone
  };
  Case admitted = Case::kFirst;
  uint32_t sequence = 0;
  uint32_t prompt_tokens = 0;
  uint32_t expected = 0;
  uint32_t reused = 0;
  bool from_row = false;
};

class EvidenceSink {
 public:
  virtual ~EvidenceSink() = default;
  virtual void Row(const EvidencePlace& place, std::span<const float> row) = 0;
  // Bytes [offset, offset + bytes.size()) of a part of the state, in ascending offsets;
  // element_bits is for messages.
  virtual void State(const EvidencePlace& place, uint64_t offset, std::span<const std::byte> bytes,
                     uint32_t element_bits) = 0;
  // The sequence has handed in all its state.
  virtual void End(uint32_t sequence) = 0;
  // A checkpoint that a step wrote to, or a float mode that it left changed.
  virtual void Spoiled(const Difference& difference) = 0;
  virtual void Adopted(const Adoption&) {}
  // Groups of shared blocks that were copied because somebody appended.
  virtual void Copied(uint64_t) {}
  // True when more evidence would change nothing: the run may stop.
  virtual bool done() const { return false; }
};

struct SequenceEvidence {
  std::map<uint32_t, std::vector<float>> norm_rows;  // by position
  std::map<uint32_t, std::vector<float>> logit_rows;
  std::map<uint32_t, std::vector<std::byte>> state;  // by kind·2^16 + plane

  static uint32_t Key(const EvidencePlace& place) {
    return static_cast<uint32_t>(place.kind) << 16 | place.plane;
  }
  static EvidencePlace PlaceOf(uint32_t sequence, uint32_t key) {
    return {
        .kind = static_cast<EvidenceKind>(key >> 16), .sequence = sequence, .plane = key & 0xFFFF};
  }
};

class ReferenceRecorder : public EvidenceSink {
 public:
  void Row(const EvidencePlace& place, std::span<const float> row) override;
  void State(const EvidencePlace& place, uint64_t offset, std::span<const std::byte> bytes,
             uint32_t element_bits) override;
  void End(uint32_t) override {}
  void Spoiled(const Difference& difference) override { spoiled_ = difference; }

  const SequenceEvidence* Find(uint32_t sequence) const;
  const std::optional<Difference>& spoiled() const { return spoiled_; }
  // A NaN or an infinity in a logit row: a reference that proves nothing.
  bool HasNonFiniteLogits() const;

 private:
  std::map<uint32_t, SequenceEvidence> sequences_;
  std::optional<Difference> spoiled_;
};

struct ReuseCounts {
  uint64_t hits = 0;                // first admissions that started from a boundary
  std::set<uint32_t> boundaries{};  // the different ones
  std::set<uint32_t> tails{};       // prompt tokens that were left to compute
  uint64_t from_row = 0;            // admissions that started from a kept row
  uint64_t copied_groups = 0;
  uint64_t resumed = 0;
  uint64_t recomputed = 0;  // after eviction

  void Add(const ReuseCounts& other);
};

struct EvidenceCounts {
  uint64_t norm_rows = 0;
  uint64_t logit_rows = 0;
  uint64_t state_bytes = 0;
  uint64_t sequences = 0;
  ReuseCounts reuse{};

  void Add(const EvidenceCounts& other);
};

class Comparison : public EvidenceSink {
 public:
  // `reference` must outlive it.
  explicit Comparison(const ReferenceRecorder& reference) : reference_(reference) {}

  void Row(const EvidencePlace& place, std::span<const float> row) override;
  void State(const EvidencePlace& place, uint64_t offset, std::span<const std::byte> bytes,
             uint32_t element_bits) override;
  void End(uint32_t sequence) override;
  void Spoiled(const Difference& difference) override { Report(difference); }
  void Adopted(const Adoption& adoption) override;
  void Copied(uint64_t groups) override { counts_.reuse.copied_groups += groups; }
  bool done() const override { return first_.has_value(); }

  const std::optional<Difference>& first() const { return first_; }
  const EvidenceCounts& counts() const { return counts_; }

 private:
  void Report(const Difference& difference);

  const ReferenceRecorder& reference_;
  std::optional<Difference> first_;
  EvidenceCounts counts_;
  // Bytes handed in since its last End by sequence and part (SequenceEvidence::Key): a sum over the
  // parts would let one that came twice make up for one that never came.
  std::map<uint32_t, std::map<uint32_t, uint64_t>> state_bytes_;
};

// The first differing element of two ranges of equal size; none when they are the same bytes.
std::optional<Difference> FirstDifference(const EvidencePlace& place, uint64_t offset,
                                          std::span<const std::byte> expected,
                                          std::span<const std::byte> actual, uint32_t element_bits);

}  // namespace tessera
