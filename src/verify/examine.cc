// SPDX-License-Identifier: Apache-2.0
#include "verify/examine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/random.h"
#include "verify/caller_control.h"
#include "verify/lab.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What every step of an examination needs.
struct Context {
  Lab* lab;
  const Matrix* matrix;
  const ReferenceRecorder* reference;
};

CellSettings SettingsOf(const Context& context, const CellRow& row, uint64_t seed) {
  CellSettings settings = context.matrix->At(row);
  settings.seed = seed;
  if (settings.hostile) settings.float_mode = &kFloatModes[seed % std::size(kFloatModes)];
  return settings;
}

Result<Comparison> RunCell(const Context& context, const CellSettings& cell, Fault fault) {
  Comparison comparison(*context.reference);
  TESSERA_RETURN_IF_ERROR(context.lab->Run(cell, fault, &comparison));
  return comparison;
}

Result<Mismatch> Simplify(const Context& context, const CellRow& cell, uint64_t seed,
                          const Difference& difference) {
  Mismatch mismatch{cell, difference, cell, difference};
  // Reuse goes first: it changes most of what a cell does.
  for (size_t i = 0; i < cell.size(); ++i) {
    const size_t dimension = (Matrix::kReuse + i) % cell.size();
    CellRow simpler = mismatch.simplest;
    if (simpler[dimension] == 0) continue;
    simpler[dimension] = 0;
    TESSERA_ASSIGN_OR_RETURN(const Comparison comparison,
                             RunCell(context, SettingsOf(context, simpler, seed), Fault::kNone));
    if (!comparison.first().has_value()) continue;
    mismatch.simplest = simpler;
    mismatch.simplest_difference = *comparison.first();
  }
  return mismatch;
}

std::vector<CellRow> RowsOf(const Matrix& matrix, const ExaminationPlan& plan) {
  const std::vector<uint32_t> sizes = matrix.sizes();
  std::vector<CellRow> rows;
  if (plan.full_product) {
    // Without reuse, which multiplies a cell's sequences; that is paired with everything below.
    std::vector<uint32_t> without = sizes;
    without[Matrix::kReuse] = 1;
    rows = ProductRows(without);
  }
  for (uint32_t i = 0; i < plan.arrays; ++i) {
    const std::vector<CellRow> array = PairwiseRows(sizes, CounterRandom(plan.seed, i));
    rows.insert(rows.end(), array.begin(), array.end());
  }
  return InRunOrder(std::move(rows), sizes, plan.seed);
}

// Says whether to begin another cell, given how long those before it took.
class TimeLimit {
 public:
  TimeLimit(Clock::time_point start, double seconds) : start_(start), seconds_(seconds) {}
  bool AllowsAnother() const {
    return seconds_ <= 0 || SecondsSince(start_) + longest_ <= seconds_;
  }
  void Took(double seconds) { longest_ = std::max(longest_, seconds); }

 private:
  const Clock::time_point start_;
  const double seconds_;
  double longest_ = 0;
};

Status RunCells(const Context& context, const ExaminationPlan& plan, TimeLimit limit,
                const ExaminationProgress& progress, Examination* examination) {
  const std::vector<CellRow> rows = RowsOf(*context.matrix, plan);
  examination->cells_planned = static_cast<uint32_t>(rows.size());
  ValuesSeen seen(context.matrix->sizes());
  for (const CellRow& row : rows) {
    const bool needed = plan.minimum_always && !seen.all();
    if (!needed && !limit.AllowsAnother()) break;
    const Clock::time_point start = Clock::now();
    const uint64_t seed = CounterRandom(plan.seed, examination->cells_run);
    TESSERA_ASSIGN_OR_RETURN(const Comparison comparison,
                             RunCell(context, SettingsOf(context, row, seed), Fault::kNone));
    limit.Took(SecondsSince(start));
    ++examination->cells_run;
    seen.Add(row);
    examination->every_value_run = seen.all();
    examination->counts.Add(comparison.counts());
    if (progress) progress(plan.name, examination->cells_run, examination->cells_planned);
    if (comparison.first().has_value()) {
      TESSERA_ASSIGN_OR_RETURN(examination->mismatch,
                               Simplify(context, row, seed, *comparison.first()));
      break;
    }
  }
  return Status::Ok();
}

// Where controls run, and what the cell gives there when nothing is broken.
struct ControlBench {
  Context context;
  CellSettings cell;
  std::optional<Difference> baseline;
};

Status RunBaseline(ControlBench* bench) {
  TESSERA_ASSIGN_OR_RETURN(const Comparison comparison,
                           RunCell(bench->context, bench->cell, Fault::kNone));
  bench->baseline = comparison.first();
  return Status::Ok();
}

Status RunControl(const ControlBench& bench, ControlResult* control) {
  TESSERA_ASSIGN_OR_RETURN(const Comparison comparison,
                           RunCell(bench.context, bench.cell, control->fault));
  control->baseline = bench.baseline;
  control->difference = comparison.first();
  return Status::Ok();
}

// Alone, in place and with cuts, for three of the faults act there.
CellSettings ControlCell(const Matrix& matrix) {
  CellSettings cell = matrix.At(matrix.reference());
  cell.cut = kGroupTokens;
  cell.kernels = &ControlKernels();
  return cell;
}

// Three attention splits.
constexpr WorkloadSize kLongControlSize{
    .prompt_tokens = 520, .decode_tokens = 8, .hits = HitPoints::kNone};
// A step that begins in one split and ends in the next; few steps, so that a large model's weights
// are read a few times only.
constexpr uint32_t kLongControlCut = 272;

Status RunLongControl(const Context& context, uint64_t seed, ControlResult* control) {
  const Model& model = context.lab->model();
  Lab lab(model, MakeWorkload(model.shape(), kLongControlSize, seed), context.lab->state_type());
  ReferenceRecorder reference;
  ControlBench bench{{&lab, context.matrix, &reference}, ControlCell(*context.matrix), {}};
  bench.cell.cut = kCutNowhere;
  TESSERA_RETURN_IF_ERROR(lab.RunReference(bench.cell, &reference));
  bench.cell.cut = kLongControlCut;
  TESSERA_RETURN_IF_ERROR(RunBaseline(&bench));
  return RunControl(bench, control);
}

Status RunControls(const Context& context, uint64_t seed, Examination* examination) {
  const Lab& lab = *context.lab;
  ControlBench bench{context, ControlCell(*context.matrix), {}};
  TESSERA_RETURN_IF_ERROR(RunBaseline(&bench));
  ControlBench reuse_bench = bench;
  reuse_bench.cell.reuse = Reuse::kHitsEverywhere;
  TESSERA_RETURN_IF_ERROR(RunBaseline(&reuse_bench));
  const bool is_long = lab.workload().scripts[0].size() >= kReversedCombineTokens;
  for (Fault fault : AllFaults()) {
    ControlResult control;
    control.fault = fault;
    control.not_applicable = WhyFaultCannotShow(fault, lab.model(), lab.state_type());
    if (control.applies()) {
      const bool elsewhere = fault == Fault::kReversedCombine && !is_long;
      const ControlBench& here = IsReuseFault(fault) ? reuse_bench : bench;
      TESSERA_RETURN_IF_ERROR(elsewhere ? RunLongControl(context, seed, &control)
                                        : RunControl(here, &control));
    }
    examination->controls.push_back(std::move(control));
  }
  return Status::Ok();
}

// With cuts and as many threads as there are: workers must not have the caller's mode either.
CellSettings CallerCell(const Matrix& matrix, const FloatMode& mode) {
  CellRow row = matrix.reference();
  row[Matrix::kThreads] = matrix.sizes()[Matrix::kThreads] - 1;
  CellSettings cell = matrix.At(row);
  cell.cut = kGroupTokens + 1;
  cell.float_mode = &mode;
  return cell;
}

Status RunHostileCallers(const Context& context, bool every_table, Examination* examination) {
  const std::vector<const KernelTable*>& tables = context.matrix->kernels();
  for (const FloatMode& mode : kFloatModes) {
    HostileCaller caller;
    caller.mode = &mode;
    for (size_t i = every_table ? 0 : tables.size() - 1; i < tables.size(); ++i) {
      CellSettings cell = CallerCell(*context.matrix, mode);
      cell.kernels = tables[i];
      TESSERA_ASSIGN_OR_RETURN(const Comparison comparison, RunCell(context, cell, Fault::kNone));
      ++caller.runs;
      caller.counts.Add(comparison.counts());
      if (caller.difference.has_value() || !comparison.first().has_value()) continue;
      caller.difference = comparison.first();
      caller.kernels = tables[i]->isa;
    }
    examination->callers.push_back(std::move(caller));
  }
  return Status::Ok();
}

}  // namespace

bool Examination::failed() const {
  const bool controls_failed = std::any_of(
      controls.begin(), controls.end(),
      [](const ControlResult& control) { return control.applies() && !control.detected(); });
  return !reference_finite || reference_spoiled.has_value() || mismatch.has_value() ||
         controls_failed ||
         std::any_of(callers.begin(), callers.end(),
                     [](const HostileCaller& caller) { return caller.difference.has_value(); });
}

bool Examination::reached_minimum() const {
  return every_value_run && callers.size() == std::size(kFloatModes) && counts.sequences > 0 &&
         counts.logit_rows > 0 && counts.state_bytes > 0 && counts.reuse.hits > 0 &&
         counts.reuse.resumed > 0 && counts.reuse.recomputed > 0;
}

Result<Examination> Examine(const Model& model, const Matrix& matrix, const ExaminationPlan& plan,
                            const ExaminationProgress& progress) {
  const Clock::time_point start = Clock::now();
  const FloatTrapMessage message;
  Examination examination;
  examination.name = plan.name;
  examination.full_product = plan.full_product;
  Lab lab(model, MakeWorkload(model.shape(), plan.size, plan.seed), plan.state_type);
  ReferenceRecorder reference;
  TESSERA_RETURN_IF_ERROR(lab.RunReference(matrix.At(matrix.reference()), &reference));
  examination.reference_seconds = SecondsSince(start);
  examination.reference_finite = !reference.HasNonFiniteLogits();
  examination.reference_spoiled = reference.spoiled();
  const Context context{&lab, &matrix, &reference};
  TESSERA_RETURN_IF_ERROR(RunControls(context, plan.seed, &examination));
  TESSERA_RETURN_IF_ERROR(RunHostileCallers(context, plan.callers_every_table, &examination));
  const TimeLimit limit(start, plan.seconds_max);
  TESSERA_RETURN_IF_ERROR(RunCells(context, plan, limit, progress, &examination));
  examination.seconds = SecondsSince(start);
  return examination;
}

}  // namespace tessera
