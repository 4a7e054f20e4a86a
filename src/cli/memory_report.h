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
// One line per pool, then the bytes of state by kind, then DescribeReuse.
std::string DescribeStore(const StoreStats& stats);
// What is kept for reuse, and the supply: how much of prompts was there, and why the rest was not.
std::string DescribeReuse(const ReuseStats& reuse);

}  // namespace tessera::cli
