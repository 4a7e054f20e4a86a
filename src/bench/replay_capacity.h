// SPDX-License-Identifier: Apache-2.0
//
// How much memory keeps all of a trace: an upper bound of what its distinct blocks and the
// checkpoints that a placement makes of them take, so that nothing is evicted and, under the
// default placement, memory stays plentiful.
//
// Failure: kInvalidArgument when an organisation cannot cut up that much. Threads: pure functions.
#pragma once

#include <cstdint>

#include "bench/replay_bench.h"

namespace tessera {

// Leading full blocks of the prompt that have ids.
uint64_t KnownBlocks(const RequestTrace& trace, const TraceRequest& request);

// Of options: model, organisation and policy.
Result<uint64_t> BytesForWholeTrace(const RequestTrace& trace, const ReplayOptions& options);

}  // namespace tessera
