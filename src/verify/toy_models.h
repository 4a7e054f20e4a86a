// SPDX-License-Identifier: Apache-2.0
//
// Toy models of seeded random weights, small enough to run the whole matrix on: each architecture,
// each weight type that has kernels of its own, grouped and normed SSM, a tied head, sizes that are
// no multiple of a vector or a tile. They show faults that the given model's shape would hide.
//
// Threads: one call at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "compute/model/model.h"
#include "compute/model/random_model.h"

namespace tessera {

struct ToyModel {
  std::string name;
  RandomModelOptions options;
};

// The first is the one for the full product: two layers of falcon-h1 in bf16.
std::span<const ToyModel> ToyModels();

// Made and loaded in memory.
Result<std::unique_ptr<Model>> MakeToyModel(const ToyModel& toy, uint64_t seed);

}  // namespace tessera
