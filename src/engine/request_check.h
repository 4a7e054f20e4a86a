// SPDX-License-Identifier: Apache-2.0
//
// What a request must satisfy before it waits for memory: bad input is refused here with a message
// and never reaches the loop.
//
// Threads: pure functions.
#pragma once

#include <span>

#include "base/status.h"
#include "engine/engine.h"

namespace tessera {

// kInvalidArgument naming the field, with expected and actual value. `end_tokens` are the model's.
Status CheckRequest(const Request& request, const ModelShape& shape,
                    std::span<const TokenId> end_tokens);

}  // namespace tessera
