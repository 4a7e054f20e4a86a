// SPDX-License-Identifier: Apache-2.0
//
// UnroundedTwin is the forward pass written from the formulas alone, slowly: fp32 throughout, no
// rounding points but the f16 of the keys and values (as the engine that made the goldens stores
// them), one token at a time, every product a plain loop over the file's own tensors. It shares no
// code with the product beyond the GGUF reader and, of quantised tensors, what a block's values
// are, so that agreeing with the goldens proves the formulas and the tensor names, and comparing
// the product with it shows what rounding costs.
//
// Rounding points can be switched on one at a time: those of the engine that made the goldens, to
// show that nothing but them lies between the formulas and the goldens, and the product's, to show
// which of them moves a probability.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/random.h"
#include "compute/gguf/gguf_file.h"

namespace tessera::testing {

// What weights and the inputs of products become.
enum class InputRounding {
  kNone,
  // The numerics contract: int8 with d = amax / 127, q = nearest(x · (1/d)); bf16 inputs with bf16
  // weights, which the types dequantised at load become.
  kContract,
  // The goldens' engine: int8 for every quantised type, 1/d = -127 / (the signed largest) for K
  // types, else d becomes an f16, and so does the d · Σq beside offsets; f16 with f16 weights.
  kGolden,
};

// How keys and values are stored and what queries and attention weights are multiplied as.
enum class AttentionRounding {
  kHalfStored,  // f16 keys and values
  kHalf,        // f16 queries and weights as well, as the goldens' engine
  kBf16,        // bf16 keys, values and scaled queries, as the product
};

struct TwinRounding {
  InputRounding inputs = InputRounding::kNone;
  AttentionRounding attention = AttentionRounding::kHalfStored;
  bool bf16_conv_inputs = false;  // as the product
  // Results and inputs of products are multiplied by 1 + this · uniform(-1, 1) before they are
  // rounded: what another order of the same operations may come to.
  float perturbation = 0;
  uint64_t perturbation_seed = 1;
};

class UnroundedTwin {
 public:
  explicit UnroundedTwin(const GgufFile& file, const TwinRounding& rounding = {});

  uint32_t vocab_size() const { return vocab_size_; }
  // Logits after `token`, which is appended to what came before.
  std::vector<float> Step(int32_t token);
  void Reset();

 private:
  using Vector = std::vector<float>;
  struct Matrix {
    uint32_t n = 0, k = 0;
    GgufTensorType type = GgufTensorType::kF32;
    Vector values;   // [n][k]
    Vector offsets;  // of each block, in the types that have them
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

  Vector Perturbed(Vector x) const;
  Vector RoundInputs(const Matrix& matrix, Vector* x) const;
  Vector Multiply(const Matrix& matrix, Vector x) const;
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
  const TwinRounding rounding_;
  mutable Random perturbations_;
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
