// SPDX-License-Identifier: Apache-2.0
#include "verify/verify.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "verify/report.h"
#include "verify/toy_models.h"

namespace tessera {
namespace {

constexpr WorkloadSize kSmall{
    .prompt_tokens = 40, .decode_tokens = 6, .companions = 3, .hits = HitPoints::kFew};
// For what has nothing to do with reuse.
constexpr WorkloadSize kSmallWithoutHits{
    .prompt_tokens = 40, .decode_tokens = 6, .companions = 1, .hits = HitPoints::kNone};

constexpr size_t kQ8Toy = 1;
constexpr size_t kMambaToy = 5;
constexpr size_t kF16Toy = 7;

std::unique_ptr<Model> Toy(size_t index) {
  auto model = MakeToyModel(ToyModels()[index], 1);
  EXPECT_TRUE(model.has_value()) << model.error().ToString();
  return std::move(*model);
}

Examination ExamineToy(const Model& model, std::vector<const KernelTable*> kernels,
                       WorkloadSize size, std::vector<int> threads = {1, 2, 3}) {
  const Matrix matrix(kernels, threads);
  ExaminationPlan plan{.name = "toy", .size = size};
  auto examination = Examine(model, matrix, plan, {});
  EXPECT_TRUE(examination.has_value()) << examination.error().ToString();
  return std::move(*examination);
}

TEST(ToyModels, AreMadeWithoutAFolderForTemporaryFiles) {
  const char* before = std::getenv("TMPDIR");
  const std::string saved = before == nullptr ? "" : before;
  ASSERT_EQ(setenv("TMPDIR", "/no/such/folder", 1), 0);
  const auto model = MakeToyModel(ToyModels()[0], 1);
  if (before == nullptr) {
    unsetenv("TMPDIR");
  } else {
    setenv("TMPDIR", saved.c_str(), 1);
  }
  EXPECT_TRUE(model.has_value()) << model.error().ToString();
}

TEST(ToyModels, HaveTheBytesThatAFileWouldHave) {
  const auto random = RandomModel::Make(ToyModels()[kF16Toy].options);
  ASSERT_TRUE(random.has_value());
  const std::string path = ::testing::TempDir() + fmt::format("/toy-{}.gguf", ::getpid());
  ASSERT_TRUE(random->Write(path).ok());
  std::ifstream file(path, std::ios::binary);
  const std::string written{std::istreambuf_iterator<char>(file), {}};
  std::remove(path.c_str());
  const std::vector<std::byte> bytes = random->ToBytes();
  ASSERT_EQ(bytes.size(), written.size());
  EXPECT_EQ(std::memcmp(bytes.data(), written.data(), bytes.size()), 0);
}

// The scalar products of K-quants are slow.
WorkloadSize SizeFor(size_t toy) {
  return ToyModels()[toy].options.shape.width < 256 ? kSmall : kSmallWithoutHits;
}

TEST(Verify, EveryToyIsExact) {
  for (size_t i = 0; i < ToyModels().size(); ++i) {
    const auto model = Toy(i);
    const Examination examination = ExamineToy(*model, AvailableKernels(), SizeFor(i));
    EXPECT_TRUE(examination.reference_finite);
    EXPECT_FALSE(examination.mismatch.has_value())
        << ToyModels()[i].name << ": " << examination.mismatch->difference.ToString();
    EXPECT_EQ(examination.cells_run, examination.cells_planned);
    EXPECT_GT(examination.counts.logit_rows, 300u);
    EXPECT_GT(examination.counts.state_bytes, 10000u);
  }
}

const ControlResult& ControlOf(const Examination& examination, Fault fault) {
  for (const ControlResult& control : examination.controls) {
    if (control.fault == fault) return control;
  }
  ADD_FAILURE() << FaultName(fault) << " has no result";
  return examination.controls.front();
}

TEST(Verify, EveryControlIsDetected) {
  const auto model = Toy(kF16Toy);
  // 280 tokens: two attention splits, without which there is no order to reverse.
  const Examination examination =
      ExamineToy(*model, {&ScalarKernels()},
                 {.prompt_tokens = 270, .decode_tokens = 10, .hits = HitPoints::kFew}, {1});
  EXPECT_EQ(examination.controls.size(), AllFaults().size());
  for (const ControlResult& control : examination.controls) {
    EXPECT_EQ(control.detected(), control.applies()) << FaultName(control.fault);
  }
  EXPECT_TRUE(examination.passed());
}

Examination ExamineBf16State(const Model& model, std::vector<const KernelTable*> kernels,
                             const WorkloadSize& size) {
  const Matrix matrix(kernels, std::vector<int>{1, 2});
  const ExaminationPlan plan{.name = "toy", .size = size, .state_type = StateType::kBF16};
  auto examination = Examine(model, matrix, plan, {});
  EXPECT_TRUE(examination.has_value()) << examination.error().ToString();
  return std::move(*examination);
}

TEST(Verify, ABf16StateIsExactByItsOwnReference) {
  for (size_t i = 0; i < ToyModels().size(); ++i) {
    if (!ToyModels()[i].options.shape.has_ssm()) continue;
    const Examination examination =
        ExamineBf16State(*Toy(i), AvailableKernels(), kSmallWithoutHits);
    EXPECT_FALSE(examination.mismatch.has_value()) << ToyModels()[i].name;
    EXPECT_TRUE(examination.reference_finite);
    EXPECT_TRUE(examination.every_value_run);
    EXPECT_GT(examination.counts.state_bytes, 10000u);
  }
}

TEST(Verify, TheControlsOfQuantisedWeightsAndBf16StateAreDetected) {
  const Examination examination = ExamineBf16State(*Toy(kQ8Toy), {&ScalarKernels()}, kSmall);
  EXPECT_TRUE(ControlOf(examination, Fault::kStateRoundedAtEnd).detected());
  EXPECT_TRUE(ControlOf(examination, Fault::kBatchScales).detected());
  EXPECT_EQ(ControlOf(examination, Fault::kStateRoundedAtSave).not_applicable, "bf16 state");
}

TEST(Verify, AnEntryThatLeavesTheCallersModeChangedIsFound) {
  Difference difference{.place = {.kind = EvidenceKind::kFloatMode}};
  difference.expected = 0x1F80;
  difference.actual = 0x9FC0;
  EXPECT_EQ(difference.ToString(), "MXCSR of the caller: expected 1f80, got 9fc0");
  ReferenceRecorder reference;
  Comparison comparison(reference);
  comparison.Spoiled(difference);
  EXPECT_TRUE(comparison.first().has_value());
}

// Its kernels round toward zero in every call, as a library's would whose entries set nothing.
template <auto kKernel, class... Args>
void TowardZero(Args... args) {
  const HostileFloatEnvironment hostile(&kTowardZero);
  (ScalarKernels().*kKernel)(args...);
}

TEST(Verify, AHostileCallerWhoseModeReachesTheKernelsIsFound) {
  const auto model = Toy(0);
  KernelTable open = ScalarKernels();
  open.isa = "open";
  open.gemm = TowardZero<&KernelTable::gemm, const GemmArgs&>;
  const Examination examination = ExamineToy(*model, {&ScalarKernels(), &open}, kSmallWithoutHits);
  ASSERT_EQ(examination.callers.size(), std::size(kFloatModes));
  for (const HostileCaller& caller : examination.callers) {
    EXPECT_EQ(caller.runs, 2u);
    EXPECT_TRUE(caller.difference.has_value()) << caller.mode->name;
    EXPECT_EQ(caller.kernels, "open");
  }
  EXPECT_TRUE(examination.failed());
}

TEST(CallerControl, KernelsInTheCallersModeAreNoticedInEveryMode) {
  for (const KernelTable* kernels : AvailableKernels()) {
    for (const CallerControl& control : RunCallerControls(*kernels, 1)) {
      EXPECT_TRUE(control.noticed()) << kernels->isa << ": " << control.mode->name;
    }
  }
}

// Its subject is shorter than a split, in which there is no order to reverse.
TEST(Verify, TheReversedCombineIsDetectedWithTheWorkloadOfALargeModel) {
  const WorkloadSize size = VerifySize(/*large=*/true, /*quick=*/true);
  ASSERT_LT(size.prompt_tokens + size.decode_tokens, kSplitTokens);
  const Examination examination = ExamineToy(*Toy(kF16Toy), {&ScalarKernels()}, size, {1});
  EXPECT_TRUE(ControlOf(examination, Fault::kReversedCombine).detected());
  EXPECT_TRUE(examination.passed());
  for (const ControlResult& control : examination.controls) {
    EXPECT_EQ(control.detected(), control.applies()) << FaultName(control.fault);
  }
}

TEST(Verify, AControlThatTheContextIsTooShortForDoesNotFail) {
  ToyModel toy = ToyModels()[kF16Toy];
  toy.options.shape.context_length = 200;
  auto model = MakeToyModel(toy, 1);
  ASSERT_TRUE(model.has_value());
  const Examination examination =
      ExamineToy(**model, {&ScalarKernels()},
                 {.prompt_tokens = 800, .decode_tokens = 10, .hits = HitPoints::kFew}, {1});
  const ControlResult& control = ControlOf(examination, Fault::kReversedCombine);
  EXPECT_EQ(control.not_applicable, "context too short");
  EXPECT_TRUE(examination.passed());
  VerifyReport report;
  report.examinations = {examination};
  EXPECT_NE(VerifyText(report).find("context too short (1 model)"), std::string::npos);
}

TEST(Verify, AControlThatPassesUnnoticedFailsTheExamination) {
  Examination examination = ExamineToy(*Toy(kF16Toy), {&ScalarKernels()}, kSmall, {1});
  ASSERT_TRUE(examination.passed());
  examination.controls[0].difference.reset();
  EXPECT_FALSE(examination.passed());
}

// A table that computes something else altogether: only the kernels are to blame.
void NudgedNorm(const float* x, const float* weight, uint32_t n, float eps, float* y) {
  ScalarKernels().rms_norm(x, weight, n, eps, y);
  y[n - 1] = std::nextafter(y[n - 1], 1e9f);
}

// With such a table as the reference, the cell of the controls differs with and without a fault.
TEST(Verify, AControlWhoseCellDiffersAnywayDetectsNothing) {
  KernelTable nudged = ScalarKernels();
  nudged.rms_norm = NudgedNorm;
  const Examination examination = ExamineToy(*Toy(0), {&nudged}, kSmall, {1});
  EXPECT_FALSE(examination.mismatch.has_value());
  for (const ControlResult& control : examination.controls) {
    if (!control.applies()) continue;
    EXPECT_TRUE(control.baseline.has_value() && control.difference.has_value());
    EXPECT_FALSE(control.detected()) << FaultName(control.fault);
  }
  EXPECT_FALSE(examination.passed());
}

TEST(Verify, AWrongKernelIsTheSimplestCell) {
  const auto model = Toy(0);
  KernelTable nudged = ScalarKernels();
  nudged.isa = "nudged";
  nudged.rms_norm = NudgedNorm;
  const Examination examination =
      ExamineToy(*model, {&ScalarKernels(), &nudged}, kSmallWithoutHits);
  ASSERT_TRUE(examination.mismatch.has_value());
  CellRow expected(Matrix::kDimensions, 0);
  expected[Matrix::kKernels] = 1;
  EXPECT_EQ(examination.mismatch->simplest, expected);
  EXPECT_NE(examination.mismatch->simplest_difference.expected,
            examination.mismatch->simplest_difference.actual);
  EXPECT_FALSE(examination.passed());
}

// A table whose bits depend on the number of rows: right for the one-shot prompt of 40, wrong for a
// chunk of 7. The simplest cell names kernels and cut, nothing else.
void GemmThatCountsRows(const GemmArgs& args) {
  ScalarKernels().gemm(args);
  if (args.rows == 7) args.output[args.panel_begin * 16] += 1e-3f;
}

TEST(Verify, AKernelThatDependsOnTheCutIsFoundAtThatCut) {
  const auto model = Toy(0);
  KernelTable counting = ScalarKernels();
  counting.isa = "counting";
  counting.gemm = GemmThatCountsRows;
  WorkloadSize size = kSmallWithoutHits;
  size.companions = 0;
  const Examination examination = ExamineToy(*model, {&counting}, size, {1});
  ASSERT_TRUE(examination.mismatch.has_value());
  const Matrix matrix(std::vector<const KernelTable*>{&counting}, std::vector<int>{1});
  const CellRow& simplest = examination.mismatch->simplest;
  CellRow without_cut = simplest;
  without_cut[Matrix::kCut] = 0;
  EXPECT_EQ(without_cut, matrix.reference());
  EXPECT_EQ(matrix.At(simplest).cut, 7u);
}

// Fresh groups that are not zeroed: harmless on clean pages, found on those that held something.
void ZeroNothing(std::byte*, size_t) {}

TEST(Verify, GroupsThatAreNotZeroedAreFoundOnHostilePages) {
  const auto model = Toy(0);
  KernelTable lazy = ScalarKernels();
  lazy.isa = "lazy";
  lazy.zero_group = ZeroNothing;
  const Examination examination = ExamineToy(*model, {&lazy}, kSmallWithoutHits, {1});
  ASSERT_TRUE(examination.mismatch.has_value());
  CellRow expected(Matrix::kDimensions, 0);
  expected[Matrix::kPages] = 1;
  EXPECT_EQ(examination.mismatch->simplest, expected);
}

// A step that writes to the state it forked from: its own results are right, the checkpoint is not.
void ConvThatSpoilsItsSource(const ConvArgs& args) {
  ScalarKernels().conv(args);
  if (args.channel_begin > 0 || args.source.is_zero()) return;
  if (args.source.offsets != args.destination.offsets) *args.source.At(args.start) ^= std::byte{1};
}

TEST(Verify, AStepThatWritesToWhatItForkedFromIsFound) {
  const auto model = Toy(0);
  KernelTable spoiling = ScalarKernels();
  spoiling.isa = "spoiling";
  spoiling.conv = ConvThatSpoilsItsSource;
  const Examination examination = ExamineToy(*model, {&spoiling}, kSmallWithoutHits, {1});
  ASSERT_TRUE(examination.mismatch.has_value());
  EXPECT_EQ(examination.mismatch->simplest[Matrix::kState], 1u);
  EXPECT_EQ(examination.mismatch->simplest[Matrix::kMix], 0u);
  EXPECT_EQ(examination.mismatch->simplest_difference.place.kind, EvidenceKind::kCheckpoint);
}

TEST(Verify, TheReportSaysWhereAndWhatDiffers) {
  const auto model = Toy(0);
  KernelTable nudged = ScalarKernels();
  nudged.isa = "nudged";
  nudged.rms_norm = NudgedNorm;
  const std::vector<const KernelTable*> kernels = {&ScalarKernels(), &nudged};
  const Matrix matrix(kernels, std::vector<int>{1});
  VerifyReport report;
  report.path = "toy.gguf";
  report.dimensions = matrix.dimensions();
  report.examinations.push_back(ExamineToy(*model, kernels, kSmallWithoutHits, {1}));
  const Mismatch& mismatch = *report.examinations[0].mismatch;
  report.mismatch_cells = {matrix.Describe(mismatch.cell)};
  report.simplest_cells = {matrix.Describe(mismatch.simplest)};

  const std::string text = VerifyText(report);
  EXPECT_NE(text.find("toy differs"), std::string::npos);
  EXPECT_NE(text.find("simplest  s0:block=32, cut none, alone, 1 thread, nudged, in place, orderly "
                      "pages, reuse off"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("FAILED"), std::string::npos);
  const auto json = nlohmann::json::parse(VerifyJson(report));
  EXPECT_FALSE(json["passed"].get<bool>());
  EXPECT_EQ(json["examinations"][0]["simplest"]["cell"], report.simplest_cells[0]);
  EXPECT_NE(json["examinations"][0]["difference"]["expected"],
            json["examinations"][0]["difference"]["actual"]);
}

// All controls on two models, so that the verdict depends on the cells alone.
VerifyReport ReportOf(double seconds_max) {
  const auto model = Toy(kF16Toy);
  const Matrix matrix(std::vector<const KernelTable*>{&ScalarKernels()}, std::vector<int>{1});
  ExaminationPlan plan{.name = "toy", .size = kSmall};
  plan.seconds_max = seconds_max;
  auto examination = Examine(*model, matrix, plan, {});
  EXPECT_TRUE(examination.has_value());
  VerifyReport report;
  report.dimensions = matrix.dimensions();
  report.examinations = {std::move(*examination),
                         ExamineBf16State(*Toy(kQ8Toy), matrix.kernels(), kSmall)};
  report.products = CheckProducts({.kernels = matrix.kernels(), .model_shapes = {}, .quick = true});
  report.caller_controls = RunCallerControls(ScalarKernels(), 1);
  return report;
}

// Made once: tests change copies.
const VerifyReport& WholeReport() {
  static const VerifyReport report = ReportOf(0);
  return report;
}

TEST(Verify, ARunCutShortIsIncompleteAndDoesNotPass) {
  const VerifyReport report = ReportOf(1e-9);
  EXPECT_FALSE(report.examinations[0].failed());
  EXPECT_LT(report.cells(), report.cells_planned());
  EXPECT_EQ(report.verdict(), Verdict::kIncomplete);
  EXPECT_FALSE(report.passed());
  const std::string line = fmt::format("INCOMPLETE: {} of {} cells in the time limit",
                                       report.cells(), report.cells_planned());
  EXPECT_NE(VerifyText(report).find(line), std::string::npos) << VerifyText(report);
}

void SlowNorm(const float* x, const float* weight, uint32_t n, float eps, float* y) {
  std::this_thread::sleep_for(std::chrono::microseconds(100));
  ScalarKernels().rms_norm(x, weight, n, eps, y);
}

// Each token has a norm in each of three layers: the 32 of the two subjects alone take 9.6 ms.
Result<Examination> ExamineSlowly(bool minimum_always) {
  KernelTable slow = ScalarKernels();
  slow.rms_norm = SlowNorm;
  const Matrix matrix(std::vector<const KernelTable*>{&slow}, std::vector<int>{1});
  ExaminationPlan plan{.name = "toy",
                       .size = {.prompt_tokens = 10, .decode_tokens = 2, .hits = HitPoints::kFew}};
  plan.seconds_max = 0.0096;
  plan.minimum_always = minimum_always;
  return Examine(*Toy(kMambaToy), matrix, plan, {});
}

TEST(Verify, TheTimeLimitCountsTheReference) {
  const auto examination = ExamineSlowly(false);
  ASSERT_TRUE(examination.has_value());
  EXPECT_GE(examination->reference_seconds, 0.0096);
  EXPECT_EQ(examination->cells_run, 0u);
  EXPECT_FALSE(examination->reached_minimum());
}

TEST(Verify, TheMinimumIsRunInSpiteOfTheTimeLimitWhereAsked) {
  const auto examination = ExamineSlowly(true);
  ASSERT_TRUE(examination.has_value());
  EXPECT_TRUE(examination->reached_minimum());
  EXPECT_LT(examination->cells_run, examination->cells_planned);
}

TEST(Verify, AQuickRunThatTookLongerSaysWhatTookIt) {
  VerifyReport report = WholeReport();
  report.quick = true;
  EXPECT_EQ(VerifyText(report).find("more than 60 s"), std::string::npos);
  report.seconds = 75;
  report.examinations[0].seconds = 70;
  report.examinations[0].reference_seconds = 50;
  EXPECT_NE(
      VerifyText(report).find("more than 60 s: toy took 70.0 s, 50.0 s of that its reference"),
      std::string::npos);
}

TEST(Verify, ARunThatHadEveryValuePassesAndSaysHowManyCellsItRan) {
  VerifyReport report = WholeReport();
  EXPECT_EQ(report.verdict(), Verdict::kExact);
  EXPECT_NE(VerifyText(report).find("exact: "), std::string::npos);
  report.examinations[0].cells_planned += 5;
  EXPECT_EQ(report.verdict(), Verdict::kPartly);
  EXPECT_TRUE(report.passed());
  const std::string line = fmt::format("exact as far as time allowed: {} of {} cells",
                                       report.cells(), report.cells_planned());
  EXPECT_NE(VerifyText(report).find(line), std::string::npos) << VerifyText(report);
}

TEST(Verify, TheReportSaysWhatWasReused) {
  VerifyReport report = WholeReport();
  ReuseCounts& reuse = report.examinations[0].counts.reuse;
  reuse = {.hits = 7, .boundaries = {1, 40}, .tails = {0, 2, 9}, .from_row = 1};
  report.examinations[1].counts.reuse = {.copied_groups = 5, .resumed = 4, .recomputed = 3};
  EXPECT_NE(VerifyText(report).find(
                "reuse    7 hits at 2 boundaries (1 .. 40), 3 lengths of what was left, among them "
                "0 2\n"
                "         1 starts from a kept row, 5 groups copied by appenders\n"
                "         4 resumed, 3 evicted and computed again\n"),
            std::string::npos)
      << VerifyText(report);
  const auto json = nlohmann::json::parse(VerifyJson(report));
  EXPECT_EQ(json["examinations"][0]["reuse"]["boundaries"], (std::vector<int>{1, 40}));
}

TEST(Verify, AnExaminationThatComparedNothingDoesNotPass) {
  const VerifyReport& report = WholeReport();
  for (uint64_t EvidenceCounts::*count :
       {&EvidenceCounts::sequences, &EvidenceCounts::logit_rows, &EvidenceCounts::state_bytes}) {
    VerifyReport empty = report;
    empty.examinations[0].counts.*count = 0;
    EXPECT_EQ(empty.verdict(), Verdict::kIncomplete);
  }
  for (uint64_t ReuseCounts::*count :
       {&ReuseCounts::hits, &ReuseCounts::resumed, &ReuseCounts::recomputed}) {
    VerifyReport nothing_reused = report;
    nothing_reused.examinations[0].counts.reuse.*count = 0;
    EXPECT_EQ(nothing_reused.verdict(), Verdict::kIncomplete);
  }
  VerifyReport spoiled = report;
  spoiled.examinations[0].reference_spoiled = Difference{};
  EXPECT_EQ(spoiled.verdict(), Verdict::kFailed);
  EXPECT_NE(VerifyText(spoiled).find("REFERENCE SPOILED"), std::string::npos);
  VerifyReport no_control = report;
  for (Examination& examination : no_control.examinations) examination.controls.pop_back();
  EXPECT_EQ(no_control.verdict(), Verdict::kIncomplete);
  EXPECT_NE(VerifyText(no_control).find("NOT RUN"), std::string::npos);
  VerifyReport wrong_product = report;
  wrong_product.products.comparisons[0].differing = 1;
  EXPECT_EQ(wrong_product.verdict(), Verdict::kFailed);
  EXPECT_NE(VerifyText(wrong_product).find("DIFFERENT in 1 outputs of scalar"), std::string::npos);
  VerifyReport unnoticed = report;
  unnoticed.caller_controls[0].differing = 0;
  EXPECT_EQ(unnoticed.verdict(), Verdict::kFailed);
  EXPECT_NE(VerifyText(unnoticed).find("NOT DETECTED in denormals kept"), std::string::npos);
  VerifyReport no_product = report;
  no_product.products.comparisons.clear();
  EXPECT_EQ(no_product.verdict(), Verdict::kIncomplete);
}

TEST(Verify, AFileThatIsNoModelIsRefused) {
  const auto report = Verify(TESSERA_SOURCE_DIR "/LICENSE", {});
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), StatusCode::kBadFile);
}

TEST(Workload, LengthsFollowTheContextOfTheModel) {
  ModelShape shape;
  shape.vocab_size = 300;
  shape.context_length = 50;
  const Workload workload = MakeWorkload(shape, {300, 20, 6}, 1);
  EXPECT_EQ(workload.longest(), 50u);
  for (const Script& script : workload.scripts) EXPECT_LT(script.prompt_tokens, script.size());
}

}  // namespace
}  // namespace tessera
