// SPDX-License-Identifier: Apache-2.0
//
// Examine holds one model against its own reference: it records the reference run, runs the
// negative controls and the hostile callers, then cells of the matrix until one differs or all are
// equal or time is up, and makes a differing cell as simple as it can. A control whose fault needs
// a longer sequence than the cells have is run on a workload of its own, with the fastest kernels
// and a reference made by them.
//
// Simplest cell: starting from the cell that differs, each dimension in turn goes back to the
// reference's value if the cell still differs without it. What remains are the settings that it
// takes to show the fault.
//
// Failure: kNoMemory with the bytes a cell needs; a difference is a result, not a Status.
// Threads: one examination at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/model/model.h"
#include "verify/evidence.h"
#include "verify/faults.h"
#include "verify/matrix.h"
#include "verify/workload.h"

namespace tessera {

struct ExaminationPlan {
  std::string name;
  WorkloadSize size = {};
  StateType state_type = StateType::kF32;  // part of the contract: each has its own reference
  bool full_product = false;  // of all dimensions but reuse, besides the pairwise arrays
  uint32_t arrays = 1;        // pairwise arrays, each from its own seed: together more than pairs
  // Of the whole examination, 0: no limit. The reference and the controls are run in any case; no
  // cell is begun that would end later if it took as long as the longest so far.
  double seconds_max = 0;
  // Cells are begun in spite of the limit until every value of every dimension was in one.
  bool minimum_always = false;
  // Hostile callers with every table, else with the fastest alone.
  bool callers_every_table = true;
  uint64_t seed = 1;
};

struct Mismatch {
  CellRow cell;
  Difference difference;
  CellRow simplest;
  Difference simplest_difference;
};

// The control's cell is run twice: as it is, which must equal the reference, and with the fault,
// which must not. Without the first, a cell that differs anyway would pass for a detection.
struct ControlResult {
  Fault fault = Fault::kNone;
  std::string not_applicable;          // why the fault cannot show in this model; else empty
  std::optional<Difference> baseline;  // without the fault
  std::optional<Difference> difference;

  bool applies() const { return not_applicable.empty(); }
  bool detected() const { return !baseline.has_value() && difference.has_value(); }
};

// Runs called by a program that has set a float mode of its own: the evidence must be the
// reference's, and the mode what it was after every call.
struct HostileCaller {
  const FloatMode* mode = nullptr;
  uint32_t runs = 0;  // one per kernel table
  EvidenceCounts counts;
  std::string kernels;  // of the run that differed
  std::optional<Difference> difference;
};

struct Examination {
  std::string name;
  bool full_product = false;
  uint32_t cells_planned = 0;
  uint32_t cells_run = 0;
  EvidenceCounts counts;
  double seconds = 0;
  double reference_seconds = 0;
  bool every_value_run = false;  // each value of each dimension was in a cell
  bool reference_finite = true;  // NaN or infinite logits in the reference prove nothing
  std::optional<Difference> reference_spoiled;  // the reference run wrote to what it forked from
  std::optional<Mismatch> mismatch;
  std::vector<ControlResult> controls;
  std::vector<HostileCaller> callers;  // one per mode

  // Something was wrong: a difference, a control not noticed, a reference that proves nothing.
  bool failed() const;
  // The least that is worth a verdict: every value of every dimension was in a cell, and there were
  // sequences, logits and state to compare, state was reused, resumed and computed again.
  bool reached_minimum() const;
  bool passed() const { return !failed() && reached_minimum(); }
};

// Called after each cell with the cells run and planned.
using ExaminationProgress = std::function<void(const std::string& name, uint32_t run, uint32_t of)>;

Result<Examination> Examine(const Model& model, const Matrix& matrix, const ExaminationPlan& plan,
                            const ExaminationProgress& progress);

}  // namespace tessera
