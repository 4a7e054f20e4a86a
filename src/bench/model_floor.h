// SPDX-License-Identifier: Apache-2.0
//
// What a decode step of a model cannot do without: every packed matrix read once, however many
// sequences share the step, and of each sequence its recurrent state read and written and its
// attention state read. (Embedding rows, norms and activations are thousandths of that.)
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "bench/floor.h"
#include "compute/model/model.h"

namespace tessera {

// The matrices alone, for `rows` rows.
Floor WeightFloor(const Model& model, uint32_t rows);
// A step of `sequences` sequences of `context_tokens` tokens each.
Floor StepFloor(const Model& model, StateType state_type, uint32_t sequences,
                uint32_t context_tokens);

}  // namespace tessera
