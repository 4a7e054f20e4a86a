// SPDX-License-Identifier: Apache-2.0
//
// MakeModelFile writes a GGUF file of random weights in the shape of a published model, for speed
// measurements here and in other engines: its vocabulary is a complete byte-level one with merges
// and the pre-tokenizer falcon-h1, so llama.cpp loads it as it is. The file is streamed; memory
// does not grow with the model.
//
// Types: f32, f16, bf16, q8_0, q4_0, q4_k, q6_k, and q4_k_m, the usual mixture: q6_k for the head
// and, in every other layer, attn_v and ffn_down. A matrix whose rows are no multiple of 256 is
// q8_0 where a K type is asked for.
//
// Failure: kInvalidArgument naming the flag; kIo naming the file (no room left included), and
// nothing is left of it. Threads: one call at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace tessera {

struct MakeModelOptions {
  std::string geometry;       // a name of ModelGeometries()
  std::string type = "bf16";  // of the matrices, see below
  uint32_t layers = 0;        // 0: as many as the geometry has
  uint64_t seed = 1;
};

// Bytes of tensor data written and to be written.
using MakeModelProgress = std::function<void(uint64_t written, uint64_t of)>;

Status MakeModelFile(const MakeModelOptions& options, const std::string& path,
                     const MakeModelProgress& progress);

}  // namespace tessera
