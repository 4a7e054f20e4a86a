// SPDX-License-Identifier: Apache-2.0
#include "verify/examine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/random.h"
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
  for (size_t dimension = 0; dimension < cell.size(); ++dimension) {
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
  if (plan.full_product) return ProductRows(sizes);
  std::vector<CellRow> rows;
  for (uint32_t i = 0; i < plan.arrays; ++i) {
    const std::vector<CellRow> array = PairwiseRows(sizes, CounterRandom(plan.seed, i));
    rows.insert(rows.end(), array.begin(), array.end());
  }
  return rows;
}

Status RunCells(const Context& context, const ExaminationPlan& plan,
                const ExaminationProgress& progress, Examination* examination) {
  const Clock::time_point start = Clock::now();
  const std::vector<CellRow> rows = RowsOf(*context.matrix, plan);
  examination->cells_planned = static_cast<uint32_t>(rows.size());
  for (const CellRow& row : rows) {
    const uint64_t seed = CounterRandom(plan.seed, examination->cells_run);
    if (plan.seconds_max > 0 && SecondsSince(start) > plan.seconds_max) break;
    TESSERA_ASSIGN_OR_RETURN(const Comparison comparison,
                             RunCell(context, SettingsOf(context, row, seed), Fault::kNone));
    ++examination->cells_run;
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

// Controls run where nothing but the fault differs from a correct run: alone, one thread, in place,
// with cuts, for three of them act there.
Status RunControls(const Context& context, Examination* examination) {
  CellSettings cell = context.matrix->At(context.matrix->reference());
  cell.cut = kGroupTokens;
  cell.kernels = &ControlKernels();
  for (Fault fault : AllFaults()) {
    if (!FaultApplies(fault, context.lab->model())) continue;
    TESSERA_ASSIGN_OR_RETURN(const Comparison comparison, RunCell(context, cell, fault));
    examination->controls.push_back({fault, comparison.first()});
  }
  return Status::Ok();
}

}  // namespace

bool Examination::passed() const {
  return reference_finite && !mismatch.has_value() &&
         std::all_of(controls.begin(), controls.end(),
                     [](const ControlResult& control) { return control.detected(); });
}

Result<Examination> Examine(const Model& model, const Matrix& matrix, const ExaminationPlan& plan,
                            const ExaminationProgress& progress) {
  const Clock::time_point start = Clock::now();
  Examination examination;
  examination.name = plan.name;
  examination.full_product = plan.full_product;
  Lab lab(model, MakeWorkload(model.shape(), plan.size, plan.seed));
  ReferenceRecorder reference;
  TESSERA_RETURN_IF_ERROR(lab.RunReference(matrix.At(matrix.reference()), &reference));
  examination.reference_finite = !reference.HasNonFiniteLogits();
  const Context context{&lab, &matrix, &reference};
  TESSERA_RETURN_IF_ERROR(RunCells(context, plan, progress, &examination));
  TESSERA_RETURN_IF_ERROR(RunControls(context, &examination));
  examination.seconds = SecondsSince(start);
  return examination;
}

}  // namespace tessera
