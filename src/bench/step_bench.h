// SPDX-License-Identifier: Apache-2.0
//
// `bench step`: whole decode steps of a model, without server, scheduler or sampling.
//
//   speed     so many sequences together, in the default organisation, beside the least time their
//             bytes and products take at ceilings of the same run
//   layouts   each organisation in turns, step by step, with one page per image (s0, fresh): what
//             it costs that state is scattered. Fresh: pages as a new store hands them out. Aged:
//             in random order. Every round maps new stores, because where the system puts an arena
//             is part of the noise
//
// Failure: kInvalidArgument naming the flag, and what loading the model and mapping a store give.
// Threads: one call at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/floor.h"
#include "bench/samples.h"
#include "memory/geometry/organisation.h"

namespace tessera {

struct StepBenchOptions {
  std::string isa;                                     // empty: the best that works
  int threads = 0;                                     // 0: all usable CPUs
  std::vector<uint32_t> sequences = {1, 2, 4, 8, 16};  // a speed for each
  uint32_t compared_sequences = 8;                     // in the layouts; 0: none
  uint32_t context_tokens = 512;
  uint32_t steps = 16;  // timed, of each run
  uint32_t rounds = 5;
  StateType state_type = StateType::kF32;
  std::vector<OrganisationSpec> organisations;  // empty: s3 with pages of 16 to 512 tokens, s2, s1,
                                                // d0, s0
  std::function<void(const std::string& what)> progress;
};

struct StepSpeed {
  uint32_t sequences = 0;
  Samples seconds;  // of a step
  Floor floor;
  double tokens_per_second() const { return sequences / seconds.Median(); }
};

struct StepLayout {
  std::string organisation;
  bool aged = false;
  uint64_t unit_bytes = 0;    // a page of the pool that holds the images, one plane
  double mean_run_bytes = 0;  // of images
  uint64_t arena_bytes = 0;
  Samples seconds, base_seconds;
  Samples ratios;  // of the medians, a round each
};

struct StepBenchReport {
  std::string model, cpu, isa;
  int threads = 0;
  uint32_t context_tokens = 0;
  uint32_t compared_sequences = 0;
  StateType state_type = StateType::kF32;
  uint64_t weight_bytes = 0;        // read by a step
  uint64_t last_level_bytes = 0;    // of cache
  bool has_recurrent_state = true;  // else no images, pages of them and runs
  MachineRates rates;
  std::vector<StepSpeed> speeds;
  std::vector<StepLayout> layouts;
};

Result<StepBenchReport> RunStepBench(const std::string& model_path,
                                     const StepBenchOptions& options);

std::string StepBenchText(const StepBenchReport& report);
std::string StepBenchJson(const StepBenchReport& report);

}  // namespace tessera
