// SPDX-License-Identifier: Apache-2.0
#include "verify/evidence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera {
namespace {

constexpr EvidencePlace kRow{.kind = EvidenceKind::kLogitRow, .sequence = 2, .position = 40};
constexpr EvidencePlace kConv{
    .kind = EvidenceKind::kConv, .sequence = 2, .position = 64, .plane = 3};

const std::byte kBytes[] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};

TEST(Comparison, EqualEvidenceIsCountedAndEqual) {
  ReferenceRecorder reference;
  const float row[] = {1, -0.0f, std::numeric_limits<float>::quiet_NaN()};
  reference.Row(kRow, row);
  reference.State(kConv, 0, kBytes, 16);
  Comparison comparison(reference);
  comparison.Row(kRow, row);
  comparison.State(kConv, 0, std::span(kBytes).first(2), 16);
  comparison.State(kConv, 2, std::span(kBytes).last(2), 16);
  comparison.End(2);
  EXPECT_FALSE(comparison.first().has_value()) << comparison.first()->ToString();
  EXPECT_EQ(comparison.counts().logit_rows, 1u);
  EXPECT_EQ(comparison.counts().state_bytes, 4u);
}

TEST(Comparison, ZerosOfDifferentSignDiffer) {
  ReferenceRecorder reference;
  reference.Row(kRow, std::vector<float>{1, 0.0f});
  Comparison comparison(reference);
  comparison.Row(kRow, std::vector<float>{1, -0.0f});
  ASSERT_TRUE(comparison.first().has_value());
  EXPECT_EQ(comparison.first()->ToString(),
            "logits, sequence 2, position 40, element 1: expected 00000000, got 80000000");
}

TEST(Comparison, AStateDifferenceNamesItsElement) {
  ReferenceRecorder reference;
  reference.State(kConv, 0, kBytes, 16);
  Comparison comparison(reference);
  const std::byte other[] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{5}};
  comparison.State(kConv, 0, std::span(other).first(2), 16);
  comparison.State(kConv, 2, std::span(other).last(2), 16);
  ASSERT_TRUE(comparison.first().has_value());
  EXPECT_EQ(comparison.first()->ToString(),
            "conv state, sequence 2, after 64 tokens, plane 3, element 1: expected 0403, got 0503");
}

TEST(Comparison, MissingOrExtraEvidenceIsADifference) {
  ReferenceRecorder reference;
  reference.State(kConv, 0, kBytes, 16);
  Comparison no_row(reference);
  no_row.Row(kRow, std::vector<float>{1});
  EXPECT_TRUE(no_row.first().has_value());
  Comparison less_state(reference);
  less_state.State(kConv, 0, std::span(kBytes).first(2), 16);
  less_state.End(2);
  EXPECT_TRUE(less_state.first().has_value());
  Comparison more_state(reference);
  more_state.State(kConv, 2, kBytes, 16);
  EXPECT_TRUE(more_state.first().has_value());
}

TEST(Comparison, APartThatComesTwiceDoesNotMakeUpForOneThatNeverCame) {
  EvidencePlace other = kConv;
  other.plane = 4;
  ReferenceRecorder reference;
  reference.State(kConv, 0, kBytes, 16);
  reference.State(other, 0, kBytes, 16);
  Comparison none(reference);
  none.End(2);
  EXPECT_TRUE(none.first().has_value());
  Comparison missing(reference);
  missing.State(kConv, 0, kBytes, 16);
  missing.End(2);
  ASSERT_TRUE(missing.first().has_value());
  EXPECT_EQ(
      missing.first()->ToString(),
      "conv state, sequence 2, after 0 tokens, plane 4: 0 bytes of state, the reference has 4");
  Comparison twice(reference);
  twice.State(kConv, 0, kBytes, 16);
  twice.State(kConv, 0, kBytes, 16);
  twice.End(2);
  EXPECT_TRUE(twice.first().has_value());
  // As many bytes in all, each equal, one half twice.
  Comparison half(reference);
  half.State(kConv, 0, std::span(kBytes).first(2), 16);
  half.State(kConv, 0, std::span(kBytes).first(2), 16);
  half.State(other, 0, kBytes, 16);
  half.End(2);
  EXPECT_TRUE(half.first().has_value());
}

TEST(ReferenceRecorder, SeesALogitThatIsNoNumber) {
  ReferenceRecorder reference;
  reference.Row(kRow, std::vector<float>{1, 2});
  EXPECT_FALSE(reference.HasNonFiniteLogits());
  reference.Row(kRow, std::vector<float>{1, std::nanf("")});
  EXPECT_TRUE(reference.HasNonFiniteLogits());
}

}  // namespace
}  // namespace tessera
