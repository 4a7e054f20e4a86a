// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <vector>

#include "verify/cell_store.h"
#include "verify/evidence.h"
#include "verify/faults.h"
#include "verify/lab.h"
#include "verify/matrix.h"
#include "verify/toy_models.h"
#include "verify/workload.h"

namespace tessera {
namespace {

// One of each architecture; the last has tails in every dimension.
constexpr size_t kToys[] = {0, 5, 6, 7};

std::unique_ptr<Model> Toy(size_t index) {
  auto model = MakeToyModel(ToyModels()[index], 1);
  EXPECT_TRUE(model.has_value()) << model.error().ToString();
  return std::move(*model);
}

Matrix FastMatrix() {
  return Matrix(std::vector<const KernelTable*>{AvailableKernels().back()}, std::vector<int>{1, 2});
}

// A lab, its reference, and what a cell of it gives. The model must outlive it.
class Bench {
 public:
  Bench(const Model& model, StateType state_type, const WorkloadSize& size)
      : matrix_(FastMatrix()), lab_(model, MakeWorkload(model.shape(), size, 1), state_type) {
    EXPECT_TRUE(lab_.RunReference(matrix_.At(matrix_.reference()), &reference_).ok());
  }

  const Workload& workload() const { return lab_.workload(); }
  const Matrix& matrix() const { return matrix_; }

  Comparison Run(const CellRow& row, Fault fault = Fault::kNone) {
    Comparison comparison(reference_);
    EXPECT_TRUE(lab_.Run(matrix_.At(row), fault, &comparison).ok());
    return comparison;
  }

  CellRow Row(Reuse reuse) const {
    CellRow row = matrix_.reference();
    row[Matrix::kReuse] = static_cast<uint32_t>(reuse);
    return row;
  }

 private:
  const Matrix matrix_;
  Lab lab_;
  ReferenceRecorder reference_;
};

// 70 tokens: over the edges of blocks of 32 and 64.
constexpr WorkloadSize kSize{.prompt_tokens = 70, .decode_tokens = 6, .companions = 2};

// S1 and S2 give each image of a model without attention pages of 512 KiB: few of them, then.
WorkloadSize SizeFor(const Model& model) {
  WorkloadSize size = kSize;
  if (!model.shape().has_attention()) size.hits = HitPoints::kFew;
  return size;
}

std::vector<StateType> StateTypesOf(const Model& model) {
  if (!model.shape().has_ssm()) return {StateType::kF32};
  return {StateType::kF32, StateType::kBF16};
}

TEST(Reuse, EveryOrganisationGivesTheBitsOfAColdRunHoweverStateIsReused) {
  for (size_t toy : kToys) {
    const auto model = Toy(toy);
    for (StateType state_type : StateTypesOf(*model)) {
      Bench bench(*model, state_type, SizeFor(*model));
      const Matrix& matrix = bench.matrix();
      for (uint32_t at = 0; at < matrix.sizes()[Matrix::kOrganisation] * 4; ++at) {
        CellRow row = bench.Row(static_cast<Reuse>(1 + at % 4));
        row[Matrix::kOrganisation] = at / 4;
        row[Matrix::kCut] = at % matrix.sizes()[Matrix::kCut];
        row[Matrix::kMix] = at % 3;
        row[Matrix::kThreads] = at % 2;
        row[Matrix::kState] = at / 4 % 2;
        row[Matrix::kPages] = 1;
        const Comparison comparison = bench.Run(row);
        EXPECT_FALSE(comparison.first().has_value())
            << ToyModels()[toy].name << ", " << matrix.Describe(row) << ": "
            << comparison.first()->ToString();
      }
    }
  }
}

std::set<uint32_t> From(uint32_t first, uint32_t last) {
  std::set<uint32_t> values;
  for (uint32_t value = first; value <= last; ++value) values.insert(value);
  return values;
}

TEST(Reuse, TheShortSubjectIsStartedFromAtEachOfItsBoundaries) {
  for (size_t toy : kToys) {
    const auto model = Toy(toy);
    Bench bench(*model, StateType::kF32, kSize);
    const Script& subject = bench.workload().scripts[bench.workload().short_subject];
    const ReuseCounts reuse = bench.Run(bench.Row(Reuse::kHitsEverywhere)).counts().reuse;
    EXPECT_EQ(reuse.boundaries, From(1, subject.prompt_tokens)) << ToyModels()[toy].name;
    EXPECT_EQ(reuse.tails, From(0, subject.prompt_tokens - 1));
    EXPECT_EQ(reuse.hits, 2 * subject.prompt_tokens);  // by the same script, and by a branch
    EXPECT_EQ(reuse.from_row, 1u);                     // the whole prompt
    // The adopters' and the subject's own where a group is partial: all boundaries but 16 and 32.
    const uint64_t partial = subject.prompt_tokens - 2;
    EXPECT_EQ(reuse.copied_groups > 0, model->shape().has_attention());
    if (model->shape().has_attention()) {
      EXPECT_GE(reuse.copied_groups, 3 * partial);
    }
  }
}

TEST(Reuse, TheSubjectIsStartedFromAroundEdgesAndWithTailsOf0And1And2) {
  const auto model = Toy(0);
  Bench bench(*model, StateType::kF32, kSize);
  const ReuseCounts reuse = bench.Run(bench.Row(Reuse::kHitsAtEdges)).counts().reuse;
  EXPECT_EQ(reuse.boundaries, (std::set<uint32_t>{16, 31, 33, 64, 65, 68, 69, 70}));
  for (uint32_t tail : {0u, 1u, 2u}) EXPECT_TRUE(reuse.tails.contains(tail)) << tail;
}

TEST(Reuse, PreemptedSequencesGoOnWhereTheyWereAndEvictedOnesFromTheStart) {
  const auto model = Toy(0);
  Bench bench(*model, StateType::kF32, kSize);
  const ReuseCounts resumed = bench.Run(bench.Row(Reuse::kPreempted)).counts().reuse;
  EXPECT_EQ(resumed.resumed, LeadPreemptions(Reuse::kPreempted));
  EXPECT_EQ(resumed.recomputed, 0u);
  const ReuseCounts evicted = bench.Run(bench.Row(Reuse::kEvicted)).counts().reuse;
  EXPECT_EQ(evicted.resumed, 0u);
  EXPECT_EQ(evicted.recomputed, LeadPreemptions(Reuse::kEvicted));
}

TEST(Reuse, EveryFaultOfAnAdoptionIsDetectedAndOnlyWhereStateIsReused) {
  for (size_t toy : kToys) {
    const auto model = Toy(toy);
    Bench bench(*model, StateType::kF32, {.prompt_tokens = 40, .decode_tokens = 4});
    EXPECT_FALSE(bench.Run(bench.Row(Reuse::kHitsEverywhere)).first().has_value());
    for (Fault fault : AllFaults()) {
      if (!IsReuseFault(fault)) continue;
      if (!WhyFaultCannotShow(fault, *model, StateType::kF32).empty()) continue;
      const Comparison broken = bench.Run(bench.Row(Reuse::kHitsEverywhere), fault);
      EXPECT_TRUE(broken.first().has_value()) << ToyModels()[toy].name << ": " << FaultName(fault);
      EXPECT_FALSE(bench.Run(bench.Row(Reuse::kOff), fault).first().has_value());
    }
  }
}

// Who wrote to the shared state goes on in a state of its own: who comes after it must see it.
TEST(Reuse, StateThatAnAdopterWroteToIsFoundByAnother) {
  const auto model = Toy(6);
  Bench bench(*model, StateType::kF32, {.prompt_tokens = 40, .decode_tokens = 4});
  const Comparison broken = bench.Run(bench.Row(Reuse::kHitsEverywhere), Fault::kSharedWritten);
  ASSERT_TRUE(broken.first().has_value());
  EXPECT_NE(broken.first()->place.sequence, bench.workload().short_subject);
}

TEST(Reuse, StateOfAnotherSaltIsFoundByWhatWasReusedAlone) {
  const auto model = Toy(0);
  Bench bench(*model, StateType::kF32, {.prompt_tokens = 40, .decode_tokens = 4});
  const Comparison broken = bench.Run(bench.Row(Reuse::kHitsEverywhere), Fault::kSaltIgnored);
  ASSERT_TRUE(broken.first().has_value());
  EXPECT_EQ(broken.first()->place.kind, EvidenceKind::kReuse);
  EXPECT_NE(broken.first()->ToString().find("of 35 prompt tokens were found, 0 expected"),
            std::string::npos)
      << broken.first()->ToString();
}

TEST(Comparison, AnAdmissionThatFoundLessOrMoreThanThereWasIsADifference) {
  const ReferenceRecorder reference;
  for (uint32_t reused : {15u, 17u}) {
    Comparison comparison(reference);
    comparison.Adopted({.sequence = 0, .prompt_tokens = 20, .expected = 16, .reused = reused});
    ASSERT_TRUE(comparison.first().has_value());
    EXPECT_EQ(comparison.first()->ToString(),
              fmt::format("reuse, sequence 0 (subject), {} of 20 prompt tokens were found, 16 "
                          "expected",
                          reused));
  }
  Comparison comparison(reference);
  comparison.Adopted({.sequence = 0, .prompt_tokens = 20, .expected = 16, .reused = 16});
  EXPECT_FALSE(comparison.first().has_value());
  EXPECT_EQ(comparison.counts().reuse.hits, 1u);
}

TEST(Comparison, EachRunOfOneSequenceIsComparedInItself) {
  const EvidencePlace conv{.kind = EvidenceKind::kConv, .sequence = 2};
  const std::byte bytes[] = {std::byte{1}, std::byte{2}};
  ReferenceRecorder reference;
  reference.State(conv, 0, bytes, 16);
  Comparison comparison(reference);
  for (int run = 0; run < 2; ++run) {
    comparison.State(conv, 0, bytes, 16);
    comparison.End(2);
  }
  EXPECT_FALSE(comparison.first().has_value());
  comparison.End(2);  // a third without state
  EXPECT_TRUE(comparison.first().has_value());
}

TEST(Workload, ABranchSharesItsSubjectsTokensUpToItsBoundaryAndNoFurther) {
  ModelShape shape;
  shape.vocab_size = 300;
  shape.context_length = 2048;
  const Workload workload = MakeWorkload(shape, {.prompt_tokens = 300, .decode_tokens = 20}, 7);
  uint32_t branches = 0;
  for (uint32_t subject : {0u, workload.short_subject}) {
    const Script& script = workload.scripts[subject];
    for (const HitPoint& point : script.hit_points) {
      if (point.branch == HitPoint::kNoBranch) continue;
      const Script& branch = workload.scripts[point.branch];
      const auto end = branch.tokens.begin() + point.at;
      EXPECT_TRUE(std::equal(branch.tokens.begin(), end, script.tokens.begin()));
      EXPECT_NE(branch.tokens[point.at], script.tokens[point.at]) << point.at;
      EXPECT_GT(branch.prompt_tokens, point.at);
      ++branches;
    }
  }
  EXPECT_EQ(branches, 35u + 7u);
}

TEST(Workload, HitPointsStayInsideAShortContext) {
  ModelShape shape;
  shape.vocab_size = 300;
  shape.context_length = 20;
  const Workload workload = MakeWorkload(shape, {.prompt_tokens = 300, .decode_tokens = 20}, 7);
  for (const Script& script : workload.scripts) {
    EXPECT_LE(script.size(), 20u);
    EXPECT_LT(script.prompt_tokens, script.size());
    for (const HitPoint& point : script.hit_points) EXPECT_LE(point.at, script.prompt_tokens);
  }
}

}  // namespace
}  // namespace tessera
