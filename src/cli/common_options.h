// SPDX-License-Identifier: Apache-2.0
//
// The flags that every verb which runs a model shares, and their translation into EngineOptions.
//
// Failure: kInvalidArgument naming the flag. Threads: values.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "engine/engine.h"

namespace CLI {
class App;
}

namespace tessera::cli {

struct CommonOptions {
  std::string model;
  std::string budget;  // empty: the engine chooses
  std::string organisation = "s3";
  std::string state = "fp32";
  int threads = 0;
  uint32_t chunk_tokens = 256;
  uint32_t max_running = 16;
  double headroom = 0;
  uint32_t checkpoint_grid = 1;
  std::string placement = "default";
  std::string eviction = "value";
  std::string retention = "off";
  std::string isolate = "off";
  bool no_reuse = false;
  bool stats = false;
};

// Adds MODEL and the flags; what `options` holds before is the default. `options` must live until
// the command line is parsed.
void AddCommonOptions(CLI::App& command, CommonOptions* options);

// Also reads TESSERA_ISA, which has no flag.
Result<EngineOptions> ToEngineOptions(const CommonOptions& options);

}  // namespace tessera::cli
