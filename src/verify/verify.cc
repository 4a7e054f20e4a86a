// SPDX-License-Identifier: Apache-2.0
#include "verify/verify.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "compute/gguf/gguf_file.h"
#include "port/cpu.h"
#include "port/thread_pool.h"
#include "verify/toy_models.h"

namespace tessera {
namespace {

// Weights beyond this make a token so dear that sequences are shortened.
constexpr uint64_t kLargeModelBytes = 128 * kMiB;

// --quick leaves this for what no estimate of a cell's time foresees. The given model has half of
// the rest, and each toy an equal share of what those before it left.
constexpr double kQuickReserveSeconds = 6;

// The time of one Verify, shared out among its examinations.
class TimeBudget {
 public:
  explicit TimeBudget(bool limited) : limited_(limited) {}
  double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  // What an examination may take when this is its share of what is left; 0 when there is no limit.
  double Share(double share) const {
    if (!limited_) return 0;
    const double left = kQuickSeconds - kQuickReserveSeconds - elapsed();
    return std::max(left * share, 1e-3);
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const bool limited_;
};

// What the examinations of one Verify have in common.
struct Run {
  const Matrix& matrix;
  const VerifyOptions& options;
  TimeBudget budget;
  bool large = false;  // the given model
};

bool IsLarge(const Model& model) { return model.weight_bytes() > kLargeModelBytes; }

}  // namespace

// 300 tokens reach the second 256-token attention split, 800 the fourth.
WorkloadSize VerifySize(bool large, bool quick) {
  WorkloadSize size = large ? WorkloadSize{300, 16, 3} : WorkloadSize{800, 40, 6};
  if (quick) size = large ? WorkloadSize{40, 8, 2} : WorkloadSize{300, 20, 3};
  if (large || quick) size.hits = HitPoints::kFew;
  return size;
}

namespace {

Result<std::unique_ptr<Model>> LoadModel(const std::string& path) {
  TESSERA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(path));
  TESSERA_ASSIGN_OR_RETURN(const auto threads, ThreadPool::Create(std::min(UsableCpuCount(), 4)));
  return Model::Load(file, *threads);
}

void Add(const Matrix& matrix, Examination examination, VerifyReport* report) {
  const auto& mismatch = examination.mismatch;
  report->mismatch_cells.push_back(mismatch ? matrix.Describe(mismatch->cell) : "");
  report->simplest_cells.push_back(mismatch ? matrix.Describe(mismatch->simplest) : "");
  report->examinations.push_back(std::move(examination));
}

constexpr std::string_view kBf16State = ", bf16 state";

// With one state type; `share` is of the time that is left.
Status ExamineState(const Model& model, StateType state_type, double share, Run* run,
                    VerifyReport* report) {
  const VerifyOptions& options = run->options;
  ExaminationPlan plan{.name = model.shape().name,
                       .size = VerifySize(run->large, options.quick),
                       .state_type = state_type,
                       .seed = options.seed};
  if (state_type == StateType::kBF16) plan.name += kBf16State;
  plan.seconds_max = run->budget.Share(share);
  plan.minimum_always = true;
  plan.callers_every_table = !run->large && !options.quick;
  plan.arrays = options.quick || run->large || state_type == StateType::kBF16 ? 1 : 3;
  TESSERA_ASSIGN_OR_RETURN(Examination examination,
                           Examine(model, run->matrix, plan, options.progress));
  Add(run->matrix, std::move(examination), report);
  return Status::Ok();
}

Status ExamineGiven(const std::string& path, Run* run, VerifyReport* report) {
  TESSERA_ASSIGN_OR_RETURN(const auto model, LoadModel(path));
  run->large = IsLarge(*model);
  const VerifyOptions& options = run->options;
  report->products = CheckProducts({.kernels = run->matrix.kernels(),
                                    .model_shapes = MatrixShapes(*model),
                                    .quick = options.quick,
                                    .seed = options.seed});
  report->caller_controls = RunCallerControls(*run->matrix.kernels().back(), options.seed);
  const bool both = model->shape().has_ssm();
  TESSERA_RETURN_IF_ERROR(ExamineState(*model, StateType::kF32, both ? 0.35 : 0.5, run, report));
  if (!both) return Status::Ok();
  return ExamineState(*model, StateType::kBF16, 0.3, run, report);
}

// 270 + 18 tokens reach the second attention split.
constexpr WorkloadSize kToySize{.prompt_tokens = 270, .decode_tokens = 18, .companions = 4};
constexpr WorkloadSize kQuickToySize{.prompt_tokens = 70, .decode_tokens = 8, .companions = 2};
// From the fourth split on the attention of a decode step is spread over threads by split.
constexpr WorkloadSize kLongToySize{.prompt_tokens = 790, .decode_tokens = 26, .companions = 2};

// Of K-quants, whose scalar products are slow.
constexpr uint32_t kDearToyWidth = 256;

struct ToyRun {
  const ToyModel* model = nullptr;
  WorkloadSize size;
  bool full_product = false;
  StateType state_type = StateType::kF32;
};

// Each toy once, with the state types in turn; one of them long.
std::vector<ToyRun> QuickToyRuns() {
  std::vector<ToyRun> runs;
  for (const ToyModel& toy : ToyModels()) {
    const bool bf16 = toy.options.shape.has_ssm() && runs.size() % 2 == 1;
    runs.push_back({&toy, kQuickToySize, false, bf16 ? StateType::kBF16 : StateType::kF32});
  }
  runs.push_back({&ToyModels().front(), kLongToySize, false});
  return runs;
}

std::vector<ToyRun> FullToyRuns() {
  std::vector<ToyRun> runs;
  for (const ToyModel& toy : ToyModels()) {
    runs.push_back({&toy, kToySize, runs.empty()});
    if (toy.options.shape.has_ssm()) {
      runs.push_back({&toy, kToySize, false, StateType::kBF16});
    }
    if (toy.options.shape.has_attention()) runs.push_back({&toy, kLongToySize, false});
  }
  return runs;
}

std::vector<ToyRun> ToyRuns(bool quick) {
  std::vector<ToyRun> runs = quick ? QuickToyRuns() : FullToyRuns();
  for (ToyRun& run : runs) {
    if (run.model->options.shape.width >= kDearToyWidth) run.size.hits = HitPoints::kFew;
  }
  return runs;
}

Status ExamineToy(const ToyRun& toy, double share, const Run& run, VerifyReport* report) {
  const VerifyOptions& options = run.options;
  TESSERA_ASSIGN_OR_RETURN(const auto model, MakeToyModel(*toy.model, options.seed));
  ExaminationPlan plan{.name = toy.model->name,
                       .size = toy.size,
                       .state_type = toy.state_type,
                       .seed = options.seed};
  if (toy.state_type == StateType::kBF16) plan.name += kBf16State;
  plan.full_product = toy.full_product;
  plan.seconds_max = run.budget.Share(share);
  plan.minimum_always = true;
  plan.callers_every_table = !options.quick;
  if (toy.size.prompt_tokens > kToySize.prompt_tokens) plan.name += ", long";
  TESSERA_ASSIGN_OR_RETURN(Examination examination,
                           Examine(*model, run.matrix, plan, options.progress));
  Add(run.matrix, std::move(examination), report);
  return Status::Ok();
}

Status ExamineToys(const Run& run, VerifyReport* report) {
  const std::vector<ToyRun> runs = ToyRuns(run.options.quick);
  for (size_t i = 0; i < runs.size(); ++i) {
    const double share = 1.0 / static_cast<double>(runs.size() - i);
    TESSERA_RETURN_IF_ERROR(ExamineToy(runs[i], share, run, report));
  }
  return Status::Ok();
}

}  // namespace

Verdict VerifyReport::verdict() const {
  const bool callers_noticed =
      std::all_of(caller_controls.begin(), caller_controls.end(),
                  [](const CallerControl& control) { return control.noticed(); });
  if (products.failed() || !callers_noticed) return Verdict::kFailed;
  std::set<Fault> controls_run;
  bool minimum = products.outputs() > 0 && caller_controls.size() == std::size(kFloatModes);
  for (const Examination& examination : examinations) {
    if (examination.failed()) return Verdict::kFailed;
    minimum = minimum && examination.reached_minimum();
    for (const ControlResult& control : examination.controls) {
      if (control.applies()) controls_run.insert(control.fault);
    }
  }
  if (!minimum || controls_run.size() < AllFaults().size()) return Verdict::kIncomplete;
  return cells() < cells_planned() ? Verdict::kPartly : Verdict::kExact;
}

EvidenceCounts VerifyReport::counts() const {
  EvidenceCounts counts;
  for (const Examination& examination : examinations) counts.Add(examination.counts);
  return counts;
}

uint32_t VerifyReport::cells() const {
  uint32_t cells = 0;
  for (const Examination& examination : examinations) cells += examination.cells_run;
  return cells;
}

uint32_t VerifyReport::cells_planned() const {
  uint32_t cells = 0;
  for (const Examination& examination : examinations) cells += examination.cells_planned;
  return cells;
}

uint32_t VerifyReport::controls() const {
  auto controls = static_cast<uint32_t>(products.controls.size() + caller_controls.size());
  for (const Examination& examination : examinations) {
    for (const ControlResult& control : examination.controls) controls += control.applies() ? 1 : 0;
  }
  return controls;
}

std::vector<int> ThreadValues(const std::vector<int>& listed) {
  std::vector<int> values = listed;
  values.push_back(1);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

Result<VerifyReport> Verify(const std::string& path, const VerifyOptions& options) {
  const Matrix matrix(AvailableKernels(), ThreadValues(options.threads));
  Run run{matrix, options, TimeBudget(options.quick)};
  VerifyReport report;
  report.path = path;
  report.cpu = CpuModelName();
  report.quick = options.quick;
  report.seed = options.seed;
  report.dimensions = matrix.dimensions();
  TESSERA_RETURN_IF_ERROR(ExamineGiven(path, &run, &report));
  TESSERA_RETURN_IF_ERROR(ExamineToys(run, &report));
  report.seconds = run.budget.elapsed();
  return report;
}

}  // namespace tessera
