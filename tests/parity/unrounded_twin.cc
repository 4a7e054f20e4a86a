// SPDX-License-Identifier: Apache-2.0
#include "unrounded_twin.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "compute/tensor/quant_blocks.h"

namespace tessera::testing {
namespace {

float HalfToFloatSlow(uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  if (exponent == 31) return sign * (fraction == 0 ? INFINITY : NAN);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
}

// To the nearest f16, ties to even; for the magnitudes of keys and values.
float RoundToHalf(float x) {
  if (x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  exponent = std::max(exponent, -13);  // subnormal f16 are multiples of 2^-24
  return std::ldexp(std::nearbyint(std::ldexp(x, 11 - exponent)), exponent - 11);
}

template <typename T>
T At(const std::byte* data, uint64_t byte) {
  T value;
  std::memcpy(&value, data + byte, sizeof(T));
  return value;
}

float Bf16ToFloatSlow(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value;
  std::memcpy(&value, &wide, 4);
  return value;
}

// To the nearest bf16, ties to even.
float RoundToBf16(float x) {
  if (x == 0) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(x, 8 - exponent)), exponent - 8);
}

struct Blocks {
  GgufTensorType type;
  uint32_t elements;
  uint32_t bytes;
  ReadBlock read;
  bool has_offset;  // an m at byte 2 that is added to every element
  bool to_bf16;     // in the product, when the model is loaded
};
constexpr Blocks kBlocks[] = {
    {GgufTensorType::kQ8_0, 32, 34, ReadQ8_0, false, false},
    {GgufTensorType::kQ4_0, 32, 18, ReadQ4_0, false, false},
    {GgufTensorType::kQ4_1, 32, 20, ReadQ4_1, true, true},
    {GgufTensorType::kQ5_0, 32, 22, ReadQ5_0, false, true},
    {GgufTensorType::kQ5_1, 32, 24, ReadQ5_1, true, true},
    {GgufTensorType::kQ2_K, 256, 84, ReadQ2K, false, true},
    {GgufTensorType::kQ3_K, 256, 110, ReadQ3K, false, true},
    {GgufTensorType::kQ4_K, 256, 144, ReadQ4K, false, false},
    {GgufTensorType::kQ5_K, 256, 176, ReadQ5K, false, true},
    {GgufTensorType::kQ6_K, 256, 210, ReadQ6K, false, false},
};

const Blocks* FindBlocks(GgufTensorType type) {
  for (const Blocks& blocks : kBlocks) {
    if (blocks.type == type) return &blocks;
  }
  return nullptr;
}

float Element(const GgufTensor& tensor, uint64_t i) {
  switch (tensor.type) {
    case GgufTensorType::kF32:
      return At<float>(tensor.data, 4 * i);
    case GgufTensorType::kF16:
      return HalfToFloatSlow(At<uint16_t>(tensor.data, 2 * i));
    case GgufTensorType::kBF16:
      return Bf16ToFloatSlow(At<uint16_t>(tensor.data, 2 * i));
    default:
      TESSERA_CHECK(false && "a type this twin does not read");
      return 0;
  }
}

// One block of inputs as int8 times a scale. Returns what the goldens' engine multiplies offsets by
// beside it: an f16 of d · Σq, less the sum of what the inputs became.
float RoundBlock(bool super_block, InputRounding rounding, float* x, uint32_t n) {
  float largest = 0;
  for (uint32_t i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(largest)) largest = x[i];
  }
  if (largest == 0) return 0;
  const float exact_d = std::fabs(largest) / 127;
  float d = exact_d;
  float inverse = 1 / d;
  if (rounding == InputRounding::kGolden && super_block) {
    inverse = -127 / largest;
    d = 1 / inverse;
  } else if (rounding == InputRounding::kGolden) {
    inverse = 127 / std::fabs(largest);
    d = RoundToHalf(d);
  }
  float sum = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const float q = std::nearbyint(x[i] * inverse);
    sum += q;
    x[i] = q * d;
  }
  return RoundToHalf(exact_d * sum) - d * sum;
}

float Silu(float x) { return x / (1 + std::exp(-x)); }
float Softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

}  // namespace

// x + bias; the bias of a layer that has none is empty.
void UnroundedTwin::AddBias(const Vector& bias, Vector* x) {
  for (size_t i = 0; i < bias.size(); ++i) (*x)[i] += bias[i];
}

// Comes after every sum or function whose order of operations another program is free in.
UnroundedTwin::Vector UnroundedTwin::Perturbed(Vector x) const {
  if (rounding_.perturbation == 0) return x;
  for (float& value : x) {
    const float uniform = static_cast<float>(perturbations_.Next() >> 40) * 0x1p-23f - 1;
    value *= 1 + rounding_.perturbation * uniform;
  }
  return x;
}

// Rounds the inputs of `matrix`. Of its offsets, if it has them, returns the factor of each block.
UnroundedTwin::Vector UnroundedTwin::RoundInputs(const Matrix& matrix, Vector* x) const {
  const InputRounding rounding = rounding_.inputs;
  if (rounding == InputRounding::kNone) return {};
  const Blocks* blocks = FindBlocks(matrix.type);
  const bool to_bf16 = blocks == nullptr ? matrix.type == GgufTensorType::kBF16 : blocks->to_bf16;
  if (rounding == InputRounding::kContract && to_bf16) {
    for (float& value : *x) value = RoundToBf16(value);
  } else if (rounding == InputRounding::kGolden && matrix.type == GgufTensorType::kF16) {
    for (float& value : *x) value = RoundToHalf(value);
  } else if (blocks != nullptr) {
    Vector factors;
    for (uint32_t i = 0; i < matrix.k; i += blocks->elements) {
      const uint32_t count = std::min(blocks->elements, matrix.k - i);
      factors.push_back(RoundBlock(blocks->elements == 256, rounding, &(*x)[i], count));
    }
    if (rounding == InputRounding::kGolden && blocks->has_offset) return factors;
  }
  return {};
}

UnroundedTwin::Vector UnroundedTwin::Multiply(const Matrix& matrix, Vector x) const {
  const Vector factors = RoundInputs(matrix, &x);
  Vector y(matrix.n);
  for (uint32_t row = 0; row < matrix.n; ++row) {
    float sum = 0;
    for (uint32_t i = 0; i < matrix.k; ++i) sum += matrix.values[size_t{row} * matrix.k + i] * x[i];
    for (size_t i = 0; i < factors.size(); ++i) {
      sum += matrix.offsets[row * factors.size() + i] * factors[i];
    }
    y[row] = sum;
  }
  return Perturbed(std::move(y));
}

uint32_t UnroundedTwin::Number(const std::string& key, uint32_t fallback) const {
  return file_.GetU32(architecture_ + "." + key, fallback).value();
}

UnroundedTwin::Vector UnroundedTwin::Values(const std::string& name) const {
  const GgufTensor* tensor = file_.FindTensor(name);
  TESSERA_CHECK(tensor != nullptr);
  Vector values(tensor->element_count());
  if (const Blocks* blocks = FindBlocks(tensor->type)) {
    for (size_t i = 0; i < values.size() / blocks->elements; ++i) {
      blocks->read(tensor->data + i * blocks->bytes, &values[i * blocks->elements]);
    }
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) values[i] = Element(*tensor, i);
  return values;
}

UnroundedTwin::Vector UnroundedTwin::ValuesOr(const std::string& name, Vector fallback) const {
  return Has(name) ? Values(name) : std::move(fallback);
}

UnroundedTwin::Matrix UnroundedTwin::ReadMatrix(const std::string& name) const {
  const GgufTensor* tensor = file_.FindTensor(name);
  TESSERA_CHECK(tensor != nullptr);
  Matrix matrix = {static_cast<uint32_t>(tensor->ne[1]),
                   static_cast<uint32_t>(tensor->ne[0]),
                   tensor->type,
                   Values(name),
                   {}};
  const Blocks* blocks = FindBlocks(tensor->type);
  if (blocks == nullptr) return matrix;
  if (blocks->to_bf16 && rounding_.inputs == InputRounding::kContract) {
    for (float& value : matrix.values) value = RoundToBf16(value);
  }
  for (size_t i = 0; blocks->has_offset && i < matrix.values.size() / blocks->elements; ++i) {
    matrix.offsets.push_back(HalfToFloatSlow(At<uint16_t>(tensor->data, i * blocks->bytes + 2)));
  }
  return matrix;
}

UnroundedTwin::UnroundedTwin(const GgufFile& file, const TwinRounding& rounding)
    : file_(file),
      rounding_(rounding),
      perturbations_(rounding.perturbation_seed),
      architecture_(file.GetString("general.architecture").value()) {
  heads_ = Number("attention.head_count", 0);
  kv_heads_ = Number("attention.head_count_kv", heads_);
  head_dim_ = Number("attention.key_length", 0);
  n_rot_ = Number("rope.dimension_count", head_dim_);
  inner_ = Number("ssm.inner_size", 0);
  state_ = Number("ssm.state_size", 0);
  ssm_heads_ = Number("ssm.time_step_rank", 0);
  groups_ = Number("ssm.group_count", 0);
  taps_ = Number("ssm.conv_kernel", 0);
  eps_ = file_.GetF32(architecture_ + ".attention.layer_norm_rms_epsilon").value();
  rope_base_ = file_.GetF32(architecture_ + ".rope.freq_base", 10000.0f).value();
  embedding_ = ReadMatrix("token_embd.weight");
  output_ = Has("output.weight") ? ReadMatrix("output.weight") : embedding_;
  output_norm_ = Values("output_norm.weight");
  if (architecture_ == "llama") rope_freqs_ = ValuesOr("rope_freqs.weight", {});
  vocab_size_ = output_.n;
  layers_.resize(Number("block_count", 0));
  for (uint32_t i = 0; i < layers_.size(); ++i) ReadLayer(i);
  Reset();
}

void UnroundedTwin::ReadQkv(const std::string& prefix, Layer* layer) const {
  if (!Has(prefix + "attn_qkv.weight")) {
    layer->q = ReadMatrix(prefix + "attn_q.weight");
    layer->k = ReadMatrix(prefix + "attn_k.weight");
    layer->v = ReadMatrix(prefix + "attn_v.weight");
    return;
  }
  const Matrix fused = ReadMatrix(prefix + "attn_qkv.weight");
  TESSERA_CHECK(fused.offsets.empty() && "offsets of a fused matrix are not cut");
  const uint32_t kv = kv_heads_ * head_dim_;
  auto rows = [&](uint32_t first, uint32_t n) {
    const auto begin = fused.values.begin() + size_t{first} * fused.k;
    return Matrix{n, fused.k, fused.type, Vector(begin, begin + size_t{n} * fused.k), {}};
  };
  layer->q = rows(0, heads_ * head_dim_);
  layer->k = rows(heads_ * head_dim_, kv);
  layer->v = rows(heads_ * head_dim_ + kv, kv);
}

void UnroundedTwin::ReadLayer(uint32_t index) {
  Layer& layer = layers_[index];
  const std::string prefix = "blk." + std::to_string(index) + ".";
  layer.attn_norm = Values(prefix + "attn_norm.weight");
  if (architecture_ != "mamba2") {
    ReadQkv(prefix, &layer);
    layer.attn_output = ReadMatrix(prefix + "attn_output.weight");
    layer.q_bias = ValuesOr(prefix + "attn_q.bias", {});
    layer.k_bias = ValuesOr(prefix + "attn_k.bias", {});
    layer.v_bias = ValuesOr(prefix + "attn_v.bias", {});
    layer.gate_bias = ValuesOr(prefix + "ffn_gate.bias", {});
    layer.up_bias = ValuesOr(prefix + "ffn_up.bias", {});
    layer.down_bias = ValuesOr(prefix + "ffn_down.bias", {});
    layer.ffn_norm =
        Values(Has(prefix + "ffn_norm") ? prefix + "ffn_norm" : prefix + "ffn_norm.weight");
    layer.gate = ReadMatrix(prefix + "ffn_gate.weight");
    layer.up = ReadMatrix(prefix + "ffn_up.weight");
    layer.down = ReadMatrix(prefix + "ffn_down.weight");
  }
  if (architecture_ != "llama") {
    layer.ssm_in = ReadMatrix(prefix + "ssm_in.weight");
    layer.conv = ReadMatrix(prefix + "ssm_conv1d.weight");
    layer.conv_bias = ValuesOr(prefix + "ssm_conv1d.bias", Vector(layer.conv.n));
    layer.dt_bias = Values(prefix + "ssm_dt.bias");
    layer.a = Values(prefix + "ssm_a");
    layer.d = Values(prefix + "ssm_d");
    layer.ssm_norm = ValuesOr(prefix + "ssm_norm.weight", {});
    layer.ssm_out = ReadMatrix(prefix + "ssm_out.weight");
  }
}

void UnroundedTwin::Reset() {
  position_ = 0;
  for (Layer& layer : layers_) {
    layer.keys.clear();
    layer.values.clear();
    layer.conv_inputs.assign(size_t{layer.conv.n} * (taps_ > 0 ? taps_ - 1 : 0), 0);
    layer.ssm.assign(size_t{inner_} * state_, 0);
  }
}

UnroundedTwin::Vector UnroundedTwin::RmsNorm(const Vector& x, const Vector& weight,
                                             uint32_t groups) const {
  Vector y(x.size());
  const size_t n = x.size() / groups;
  for (size_t first = 0; first < x.size(); first += n) {
    double squares = 0;
    for (size_t i = first; i < first + n; ++i) squares += double{x[i]} * double{x[i]};
    const float scale = 1 / std::sqrt(static_cast<float>(squares / static_cast<double>(n)) + eps_);
    for (size_t i = first; i < first + n; ++i) y[i] = x[i] * scale * weight[i];
  }
  return Perturbed(std::move(y));
}

void UnroundedTwin::Rotate(float* head, uint32_t position) const {
  const bool neox = architecture_ == "falcon-h1";
  const uint32_t half = n_rot_ / 2;
  for (uint32_t j = 0; j < half; ++j) {
    double angle = position * std::pow(double{rope_base_}, -2.0 * j / n_rot_);
    if (!rope_freqs_.empty()) angle /= double{rope_freqs_[j]};
    float* a = neox ? head + j : head + 2 * j;
    float* b = neox ? head + j + half : head + 2 * j + 1;
    const auto cosine = static_cast<float>(std::cos(angle));
    const auto sine = static_cast<float>(std::sin(angle));
    const float rotated = *a * cosine - *b * sine;
    *b = *a * sine + *b * cosine;
    *a = rotated;
  }
}

UnroundedTwin::Vector UnroundedTwin::Attention(Layer* layer, const Vector& u,
                                               uint32_t position) const {
  Vector q = Multiply(layer->q, u);
  Vector k = Multiply(layer->k, u);
  Vector v = Multiply(layer->v, u);
  AddBias(layer->q_bias, &q);
  AddBias(layer->k_bias, &k);
  AddBias(layer->v_bias, &v);
  for (uint32_t head = 0; head < heads_; ++head) Rotate(&q[head * head_dim_], position);
  for (uint32_t head = 0; head < kv_heads_; ++head) Rotate(&k[head * head_dim_], position);
  const float scale = 1 / std::sqrt(static_cast<float>(head_dim_));
  const bool bf16 = rounding_.attention == AttentionRounding::kBf16;
  const bool half = rounding_.attention == AttentionRounding::kHalf;
  for (float& x : k) x = bf16 ? RoundToBf16(x) : RoundToHalf(x);
  for (float& x : v) x = bf16 ? RoundToBf16(x) : RoundToHalf(x);
  for (float& x : q) x = bf16 ? RoundToBf16(x * scale) : (half ? RoundToHalf(x) : x) * scale;
  layer->keys.push_back(std::move(k));
  layer->values.push_back(std::move(v));
  Vector out(q.size());
  for (uint32_t head = 0; head < heads_; ++head) {
    const uint32_t first = head * kv_heads_ / heads_ * head_dim_;
    Vector p;
    float largest = -INFINITY;
    for (const Vector& key : layer->keys) {
      float score = 0;
      for (uint32_t i = 0; i < head_dim_; ++i) score += q[head * head_dim_ + i] * key[first + i];
      p.push_back(score);
      largest = std::max(largest, p.back());
    }
    float total = 0;
    for (float& x : p) total += x = std::exp(x - largest);
    for (size_t t = 0; t < p.size(); ++t) {
      const float weight = half ? RoundToHalf(p[t] / total) : p[t] / total;
      for (uint32_t i = 0; i < head_dim_; ++i) {
        out[head * head_dim_ + i] += weight * layer->values[t][first + i];
      }
    }
  }
  return Multiply(layer->attn_output, Perturbed(std::move(out)));
}

// Inputs of one token, all channels; the last taps - 1 are kept.
UnroundedTwin::Vector UnroundedTwin::Convolve(Layer* layer, const float* inputs) const {
  Vector out(layer->conv.n);
  for (uint32_t c = 0; c < layer->conv.n; ++c) {
    float* past = &layer->conv_inputs[size_t{c} * (taps_ - 1)];
    const float* weights = &layer->conv.values[size_t{c} * taps_];
    const float input = rounding_.bf16_conv_inputs ? RoundToBf16(inputs[c]) : inputs[c];
    float y = 0;
    for (uint32_t j = 0; j + 1 < taps_; ++j) y += past[j] * weights[j];
    y += input * weights[taps_ - 1];
    for (uint32_t j = 0; j + 2 < taps_; ++j) past[j] = past[j + 1];
    past[taps_ - 2] = input;
    out[c] = Silu(y + layer->conv_bias[c]);
  }
  return out;
}

UnroundedTwin::Vector UnroundedTwin::Mamba(Layer* layer, const Vector& u) const {
  const Vector zxbcdt = Multiply(layer->ssm_in, u);
  const Vector xbc = Convolve(layer, &zxbcdt[inner_]);
  const float* dt = &zxbcdt[inner_ + layer->conv.n];
  const uint32_t head_dim = inner_ / ssm_heads_;
  Vector y(inner_);
  for (uint32_t head = 0; head < ssm_heads_; ++head) {
    const float delta = Softplus(dt[head] + layer->dt_bias[head]);
    const float decay = std::exp(delta * layer->a[head]);
    const uint32_t group = head / (ssm_heads_ / groups_);
    const float* b = &xbc[inner_ + group * state_];
    const float* c = b + groups_ * state_;
    for (uint32_t p = head * head_dim; p < (head + 1) * head_dim; ++p) {
      float* s = &layer->ssm[size_t{p} * state_];
      float sum = 0;
      for (uint32_t n = 0; n < state_; ++n) {
        s[n] = s[n] * decay + b[n] * (xbc[p] * delta);
        sum += s[n] * c[n];
      }
      y[p] = Silu(zxbcdt[p]) * (sum + layer->d[head] * xbc[p]);
    }
  }
  if (!layer->ssm_norm.empty()) y = RmsNorm(y, layer->ssm_norm, groups_);
  return Multiply(layer->ssm_out, Perturbed(std::move(y)));
}

UnroundedTwin::Vector UnroundedTwin::Mlp(const Layer& layer, const Vector& f) const {
  Vector gate = Multiply(layer.gate, f);
  Vector up = Multiply(layer.up, f);
  AddBias(layer.gate_bias, &gate);
  AddBias(layer.up_bias, &up);
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = Silu(gate[i]) * up[i];
  Vector down = Multiply(layer.down, Perturbed(std::move(gate)));
  AddBias(layer.down_bias, &down);
  return down;
}

std::vector<float> UnroundedTwin::Step(int32_t token) {
  const auto row = embedding_.values.begin() + static_cast<ptrdiff_t>(token) * embedding_.k;
  Vector h(row, row + embedding_.k);
  auto add = [&](const Vector& x) {
    for (size_t i = 0; i < h.size(); ++i) h[i] += x[i];
  };
  for (Layer& layer : layers_) {
    const Vector u = RmsNorm(h, layer.attn_norm);
    Vector mixed(h.size());
    if (architecture_ != "mamba2") mixed = Attention(&layer, u, position_);
    if (architecture_ != "llama") {
      const Vector recurrent = Mamba(&layer, u);
      for (size_t i = 0; i < mixed.size(); ++i) mixed[i] += recurrent[i];
    }
    add(mixed);
    if (architecture_ != "mamba2") add(Mlp(layer, RmsNorm(h, layer.ffn_norm)));
  }
  ++position_;
  return Multiply(output_, RmsNorm(h, output_norm_));
}

}  // namespace tessera::testing
