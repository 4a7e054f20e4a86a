// SPDX-License-Identifier: Apache-2.0
//
// Lab runs the cells of the matrix on one model, below the engine: each on a StateStore and a
// Forward of its own (CellRun). What a run leaves behind goes to an EvidenceSink.
//
// L1  What is computed for a sequence depends on its script alone; if the engine is exact, so does
//     its evidence.
// L2  In a step that reads one image and writes another, the one it read is compared with what it
//     was before.
// L3  The caller's MXCSR is, after each call, what the cell had set; if not, it is a difference.
//
// Failure: kNoMemory with the bytes a cell needs. Threads: one run at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "base/status.h"
#include "compute/model/model.h"
#include "port/thread_pool.h"
#include "verify/evidence.h"
#include "verify/faults.h"
#include "verify/matrix.h"
#include "verify/workload.h"

namespace tessera {

class Lab {
 public:
  // `model` must outlive it.
  Lab(const Model& model, Workload workload, StateType state_type = StateType::kF32);
  ~Lab();

  const Model& model() const { return model_; }
  const Workload& workload() const { return workload_; }
  StateType state_type() const { return state_type_; }

  // Runs the cell; with kNone nothing is broken. Kernel faults replace the cell's kernels.
  Status Run(const CellSettings& cell, Fault fault, EvidenceSink* sink);
  // Runs each script alone, as `reference` says, so that every sequence of any mix has its
  // evidence.
  Status RunReference(const CellSettings& reference, ReferenceRecorder* recorder);

 private:
  Result<ThreadPool*> Threads(int count);
  Status RunRoles(const CellSettings& cell, Fault fault, const std::vector<Role>& roles,
                  EvidenceSink* sink);

  const Model& model_;
  const Workload workload_;
  const StateType state_type_;
  std::map<int, std::unique_ptr<ThreadPool>> threads_;
};

}  // namespace tessera
