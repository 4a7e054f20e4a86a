// SPDX-License-Identifier: Apache-2.0
//
// Published models and the bundled one by name, as their state: what a plan, a simulation or a test
// needs of a model without its file. StateGeometry is the same of any model, whether it comes from
// this table or from a file's metadata.
//
// Sources: the models' own configurations, tabled in the study of state-memory organisations. A row
// whose dimensions nobody has compared with the model's file says so (`unchecked`).
//
// Failure: FindGeometry gives kInvalidArgument with the names there are.
// Threads: constants and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "memory/geometry/state_shape.h"

namespace tessera {

struct StateGeometry {
  std::string name;
  StateShape shape;             // with fp32 state, until somebody decides
  uint32_t width = 0;           // d: values of a final-norm row
  uint32_t context_length = 0;  // tokens of one sequence at most
  bool unchecked = false;
};

std::span<const StateGeometry> NamedGeometries();
Result<StateGeometry> FindGeometry(std::string_view name);

}  // namespace tessera
