// SPDX-License-Identifier: Apache-2.0
//
// What the budget can hold, by the organisation's table alone: nothing is allocated or asked of the
// store. Used for the start-up lines and for max_model_len of /v1/models.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "memory/geometry/organisation.h"

namespace tessera {

// Sequences of `tokens` tokens each that an empty store holds together.
uint64_t SequencesThatFit(const Organisation& organisation, uint64_t tokens);

// The longest single sequence an empty store holds, at most `limit`.
uint64_t TokensThatFit(const Organisation& organisation, uint64_t limit);

}  // namespace tessera
