// SPDX-License-Identifier: Apache-2.0
//
// The memory ledger as lines for people: what is fixed at start, and what the pools hold.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "engine/engine.h"

namespace tessera::cli {

// Model, kernels, and each fixed size of the process, one a line.
std::string DescribeStart(const Engine& engine);
// One line per pool, then the bytes of state by kind.
std::string DescribeStore(const StoreStats& stats);

}  // namespace tessera::cli
