// SPDX-License-Identifier: Apache-2.0
//
// UnroundedTwin is the forward pass written from the formulas alone, slowly: fp32 throughout, no
// rounding points but the f16 of the keys and values (as the engine that made the goldens stores
// them), one token at a time, every product a plain loop over the file's own tensors. It shares no
// code with the product beyond the GGUF reader, so that agreeing with the goldens proves the
// formulas and the tensor names, and comparing the product with it shows what rounding costs.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "compute/gguf/gguf_file.h"

namespace tessera::testing {

class UnroundedTwin {
 public:
  explicit UnroundedTwin(const GgufFile& file);

  uint32_t vocab_size() const { return vocab_size_; }
  // Logits after `token`, which is appended to what came before.
  std::vector<float> Step(int32_t token);
  void Reset();

 private:
  using Vector = std::vector<float>;
  struct Matrix {
    uint32_t n = 0, k = 0;
    Vector values;  // [n][k]
    Vector operator*(const Vector& x) const;
  };
  struct Layer {
    Vector attn_norm;
    Matrix q, k, v, attn_output;
    Vector q_bias, k_bias, v_bias, gate_bias, up_bias, down_bias;
    Matrix ssm_in, ssm_out;
    Matrix conv;  // [channels][taps]
    Vector conv_bias, dt_bias, a, d, ssm_norm;
    Vector ffn_norm;
    Matrix gate, up, down;
    // State.
    std::vector<Vector> keys, values;  // of each position, f16-rounded
    Vector conv_inputs;                // [channels][taps - 1]
    Vector ssm;                        // [heads][head_dim][N]
  };

  static void AddBias(const Vector& bias, Vector* x);
  uint32_t Number(const std::string& key, uint32_t fallback) const;
  bool Has(const std::string& name) const { return file_.FindTensor(name) != nullptr; }
  Vector Values(const std::string& name) const;
  Vector ValuesOr(const std::string& name, Vector fallback) const;
  Matrix ReadMatrix(const std::string& name) const;
  void ReadLayer(uint32_t index);
  void ReadQkv(const std::string& prefix, Layer* layer) const;

  Vector RmsNorm(const Vector& x, const Vector& weight, uint32_t groups = 1) const;
  void Rotate(float* head, uint32_t position) const;
  Vector Attention(Layer* layer, const Vector& u, uint32_t position) const;
  Vector Mamba(Layer* layer, const Vector& u) const;
  Vector Convolve(Layer* layer, const float* inputs) const;
  Vector Mlp(const Layer& layer, const Vector& f) const;

  const GgufFile& file_;
  std::string architecture_;
  uint32_t vocab_size_ = 0;
  uint32_t heads_ = 0, kv_heads_ = 0, head_dim_ = 0, n_rot_ = 0;
  uint32_t inner_ = 0, state_ = 0, ssm_heads_ = 0, groups_ = 0, taps_ = 0;
  float eps_ = 0, rope_base_ = 0;
  Matrix embedding_, output_;
  Vector output_norm_, rope_freqs_;
  std::vector<Layer> layers_;
  uint32_t position_ = 0;
};

}  // namespace tessera::testing
