// SPDX-License-Identifier: Apache-2.0
//
// Verify is `tessera verify`: the exactness matrix on this machine. Matrix products are checked
// against oracles first. The given model is examined pairwise; toy models of each architecture and
// weight type, made here, are examined as well, in the full form one of them with the full product
// of all dimensions but reuse.
//
// Verdicts:
//   exact       no product differs from an oracle, no cell and no run under a hostile caller from
//               its reference in a bit, every reference is finite, and every negative control ran
//               on some model and was noticed wherever it ran
//   partly      the same for as many cells as the time allowed: with each model at least every
//               value of every dimension, but not every planned cell
//   incomplete  nothing wrong was found in too little: some model has not had every value of every
//               dimension, or had nothing to compare, or a control ran nowhere
//   failed      otherwise
//
// Failure: kBadFile or kIo for the model file, kNoMemory with the bytes needed.
// Threads: one call at a time; it starts thread pools of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "compute/kernels/kernel_table.h"
#include "verify/caller_control.h"
#include "verify/examine.h"
#include "verify/matrix.h"
#include "verify/product_check.h"

namespace tessera {

// What --quick may take in all: loading, references, controls and cells. Only a large model takes
// longer, by its reference and the cells without which there is no verdict; the report says so.
inline constexpr double kQuickSeconds = 60;

struct VerifyOptions {
  bool quick = false;
  uint64_t seed = 1;
  // The reference uses one thread whatever is listed.
  std::vector<int> threads = {1, 2, 3};
  ExaminationProgress progress;  // may be empty
};

enum class Verdict : uint8_t { kExact, kPartly, kIncomplete, kFailed };

struct VerifyReport {
  std::string path;
  std::string cpu;
  bool quick = false;
  uint64_t seed = 1;
  std::vector<Dimension> dimensions;
  std::vector<Examination> examinations;  // the given model's first
  // By examination, what its mismatch is called; empty when it has none.
  std::vector<std::string> mismatch_cells;
  std::vector<std::string> simplest_cells;
  ProductCheck products;
  std::vector<CallerControl> caller_controls;  // by mode
  double seconds = 0;

  Verdict verdict() const;
  bool passed() const { return verdict() == Verdict::kExact || verdict() == Verdict::kPartly; }
  EvidenceCounts counts() const;
  uint32_t cells() const;
  uint32_t cells_planned() const;
  uint32_t controls() const;  // runs with a fault put back
  bool overran() const { return quick && seconds > kQuickSeconds; }
};

// {1} and what else is listed, ascending.
std::vector<int> ThreadValues(const std::vector<int>& listed);

// What the given model is examined with; large is one whose weights make a token dear.
WorkloadSize VerifySize(bool large, bool quick);

Result<VerifyReport> Verify(const std::string& path, const VerifyOptions& options);

}  // namespace tessera
