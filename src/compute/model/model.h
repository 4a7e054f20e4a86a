// SPDX-License-Identifier: Apache-2.0
//
// Model owns the weights of a GGUF file, packed once at load for the GEMM kernels; the file's own
// pages are released afterwards, so that weights are in memory once.
//
// Small tensors (norms, conv, A, D, biases) are fp32. token_embd is kept in the file's form, one
// row is dequantised at a time; a tied output head is packed from it and shares its bytes.
//
// M1  Every tensor was there with exactly the expected shape and a supported type, and no tensor of
//     the file was left unused without being known as ignorable.
//
// Failure: kBadFile naming the tensor with expected and actual shape or type; kNoMemory.
// Threads: const after Load.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"
#include "compute/kernels/packed_matrix.h"
#include "compute/model/model_shape.h"

namespace tessera {

class GgufFile;
class ThreadPool;

struct LayerWeights {
  const float* attn_norm = nullptr;  // [d]
  // Attention.
  PackedMatrix attn_q, attn_k, attn_v, attn_output;
  const float* attn_q_bias = nullptr;  // biases: null when absent
  const float* attn_k_bias = nullptr;
  const float* attn_v_bias = nullptr;
  // Mamba-2.
  PackedMatrix ssm_in, ssm_out;
  const float* conv_weight = nullptr;  // [K][conv_channels rounded up to 16], oldest tap first
  const float* conv_bias = nullptr;    // [conv_channels], zeros when absent
  const float* dt_bias = nullptr;      // [H_s]
  const float* ssm_a = nullptr;        // [H_s], negative
  const float* ssm_d = nullptr;        // [H_s]
  const float* ssm_norm = nullptr;     // [d_ssm], null when absent
  // MLP.
  const float* ffn_norm = nullptr;  // [d]
  PackedMatrix ffn_gate, ffn_up, ffn_down;
  const float* ffn_gate_bias = nullptr;
  const float* ffn_up_bias = nullptr;
  const float* ffn_down_bias = nullptr;
};

class Model {
 public:
  static Result<std::unique_ptr<Model>> Load(const GgufFile& file, ThreadPool& threads);
  ~Model();

  const ModelShape& shape() const { return shape_; }
  const LayerWeights& layer(uint32_t index) const { return layers_[index]; }
  const PackedMatrix& output() const { return output_; }
  const float* output_norm() const { return output_norm_; }      // [d]
  const float* rope_divisors() const { return rope_divisors_; }  // [n_rot / 2] or null
  uint64_t weight_bytes() const { return weight_bytes_; }        // all of it, as it lies in memory
  // One row of token_embd as fp32, [d]. `token` is in [0, vocab_size).
  void Embed(TokenId token, float* row) const;

  // xxh3 of the weights, the rounding-point table's version, state type and split size: states made
  // under another id are never mixed (numerics R0).
  uint64_t contract_id(StateType type) const;

 private:
  friend class ModelLoader;
  Model() = default;
  ModelShape shape_;
  std::vector<LayerWeights> layers_;
  PackedMatrix output_;
  const float* output_norm_ = nullptr;
  const float* rope_divisors_ = nullptr;
  uint64_t weight_bytes_ = 0;
  uint64_t weights_digest_ = 0;
  struct Storage;
  std::unique_ptr<Storage> storage_;
};

}  // namespace tessera
