// SPDX-License-Identifier: Apache-2.0
//
// The lines `tessera serve` prints when the model is loaded: what runs, where every byte of memory
// goes and what it is enough for. Memory questions are answered here, before the first request.
//
// Threads: pure functions of their arguments.
#pragma once

#include <string>

#include "engine/engine.h"

namespace tessera {

std::string StartupSummary(const Engine& engine, const std::string& url);

// The lines about the pools and what fits in them.
std::string CapacitySummary(const Organisation& organisation, uint32_t context_length);

}  // namespace tessera
