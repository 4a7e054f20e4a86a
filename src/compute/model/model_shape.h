// SPDX-License-Identifier: Apache-2.0
//
// ModelShape is what a model file's metadata says of its architecture, read without touching a
// weight: enough to size its state, plan memory and know which tensors must be there. One struct
// serves the architectures the engine runs (falcon-h1, mamba2, llama); what an architecture lacks
// is zero.
//
// Failure: kBadFile naming the key with expected and actual value; an architecture the engine does
// not run is named with the list of those it does; legacy Falcon-H1 files that carry unfolded
// multipliers are refused by the key that gives them away.
// Threads: a value.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "memory/geometry/state_shape.h"

namespace tessera {

class GgufFile;

enum class Architecture : uint8_t { kFalconH1, kMamba2, kLlama };

struct ModelShape {
  Architecture architecture = Architecture::kFalconH1;
  std::string name;  // general.name, or the file's stem
  uint32_t layers = 0;
  uint32_t width = 0;       // d
  uint32_t vocab_size = 0;  // rows of token_embd
  uint32_t context_length = 0;
  float rms_eps = 0;

  // Attention; heads 0: none. Every layer of falcon-h1 and llama has it.
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t n_rot = 0;
  bool rope_neox = false;
  double rope_base = 10000;
  float attention_scale = 0;  // 1/sqrt(head_dim) unless the file says

  // Mamba-2; ssm_heads 0: none. Every layer of falcon-h1 and mamba2 has it.
  uint32_t ssm_inner = 0;  // d_ssm = ssm_heads·ssm_head_dim
  uint32_t ssm_heads = 0;
  uint32_t ssm_state = 0;    // N
  uint32_t ssm_groups = 0;   // G
  uint32_t conv_kernel = 0;  // K

  uint32_t feed_forward = 0;  // F; 0: no MLP

  bool has_attention() const { return heads > 0; }
  bool has_ssm() const { return ssm_heads > 0; }
  uint32_t ssm_head_dim() const { return ssm_heads == 0 ? 0 : ssm_inner / ssm_heads; }
  uint32_t conv_channels() const { return ssm_inner + 2 * ssm_groups * ssm_state; }  // C
  uint32_t ssm_in_rows() const { return 2 * ssm_inner + 2 * ssm_groups * ssm_state + ssm_heads; }
  StateShape state_shape(StateType type) const;
};

Result<ModelShape> ReadModelShape(const GgufFile& file);

}  // namespace tessera
