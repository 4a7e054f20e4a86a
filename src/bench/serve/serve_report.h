// SPDX-License-Identifier: Apache-2.0
//
// The report of `bench serve` as people and programs read it: the banner, labels and JSON keys of
// `vllm bench serve`, ours after them.
//
// Of several repeats a figure is their mean; beside it in the text, and in the JSON under `spread`,
// are the sample's standard deviation and the extremes. `repeats` has the figures of each. With
// `records` the JSON has vLLM's lists by request too (in seconds), those of all repeats one after
// another, and `request_repeats` says which is whose.
//
// Threads: pure.
#pragma once

#include <string>

#include "bench/serve/load_client.h"
#include "bench/serve/serve_bench.h"

namespace tessera {

std::string ServeBenchText(const ServeBenchReport& report);
std::string ServeBenchJson(const ServeBenchReport& report, bool records);

// One line for a terminal of `columns`: a bar, and how it goes.
std::string ProgressLine(const std::string& phase, const LoadProgress& progress, size_t columns);

}  // namespace tessera
