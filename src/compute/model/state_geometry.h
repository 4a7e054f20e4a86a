// SPDX-License-Identifier: Apache-2.0
//
// The state geometry of a model file, from its metadata alone: no tensor need be there. It is read
// of more architectures than the engine runs, so that memory can be planned for them:
//
//   falcon-h1                       attention and Mamba-2 in every layer
//   mamba2 · llama                  one of them in every layer
//   granitehybrid                   Mamba-2 where attention.head_count_kv[i] is 0, else attention
//   jamba                           the same with Mamba-1
//   lfm2, lfm2moe                   the same with short convolutions
//   nemotron_h, nemotron_h_moe      the same where feed_forward_length[i] is 0; elsewhere no state
//   qwen3next                       gated delta net but for each full_attention_interval-th layer,
//                                   or as attention.recurrent_layers[i] says
//
// Blocks for predicting further tokens (nextn_predict_layers, the last ones) hold no state here.
//
// N1  Of a file that ReadModelShape accepts, the shape is the engine's.
//
// Failure: kBadFile naming the key with expected and found; an unknown architecture is named with
// the list of the known ones. Threads: a pure function of the file.
#pragma once

#include "base/status.h"
#include "memory/geometry/named_geometries.h"

namespace tessera {

class GgufFile;

Result<StateGeometry> ReadStateGeometry(const GgufFile& file);

}  // namespace tessera
