// SPDX-License-Identifier: Apache-2.0
//
// Published model geometries by name, for files of random weights: a benchmark needs the shape of a
// model, not its weights. Only rows whose every number is published are here.
//
// Threads: constants and pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "compute/model/model_shape.h"

namespace tessera {

struct ModelGeometry {
  std::string_view name;
  ModelShape shape = {};
  bool ssm_norm = false;     // RMS norm of the SSM output, gated
  bool tied_output = false;  // no output.weight: the head is token_embd
};

std::span<const ModelGeometry> ModelGeometries();
// kInvalidArgument with the names there are.
Result<ModelGeometry> FindModelGeometry(std::string_view name);

}  // namespace tessera
