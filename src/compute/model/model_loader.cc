// SPDX-License-Identifier: Apache-2.0
#include "compute/model/model_loader.h"

#include <fmt/format.h>

#include <utility>

#include "compute/gguf/gguf_file.h"
#include "compute/model/model_storage.h"

namespace tessera {

ModelLoader::ModelLoader(const GgufFile& file, ThreadPool& threads)
    : file_(file), threads_(threads), source_(file), model_(new Model()) {}

std::string ModelLoader::InLayer(std::string_view name) const {
  return layer_prefix_ + std::string(name);
}

Status ModelLoader::AddMatrix(const std::string& name, uint32_t n, uint32_t k,
                              PackedMatrix* target) {
  TESSERA_ASSIGN_OR_RETURN(MatrixTensor found, source_.Matrix(name, n, k));
  packer_.AddMatrix({found.tensor, found.type, 0, n, k}, target);
  return Status::Ok();
}

Status ModelLoader::AddValues(const std::string& name, std::initializer_list<uint64_t> ne,
                              const float** target, bool flat_too) {
  TESSERA_ASSIGN_OR_RETURN(const GgufTensor* tensor, source_.Small(name, ne, flat_too));
  packer_.AddValues(*tensor, 0, static_cast<uint32_t>(tensor->element_count()), target);
  return Status::Ok();
}

Status ModelLoader::AddValuesIfThere(const std::string& name, uint32_t n, const float** target) {
  return source_.Has(name) ? AddValues(name, {n}, target) : Status::Ok();
}

Status ModelLoader::PlanFusedQkv(LayerWeights* layer) {
  const ModelShape& shape = model_->shape_;
  const uint32_t q = shape.heads * shape.head_dim;
  const uint32_t kv = shape.kv_heads * shape.head_dim;
  TESSERA_ASSIGN_OR_RETURN(MatrixTensor fused,
                           source_.Matrix(InLayer("attn_qkv.weight"), q + 2 * kv, shape.width));
  packer_.AddMatrix({fused.tensor, fused.type, 0, q, shape.width}, &layer->attn_q);
  packer_.AddMatrix({fused.tensor, fused.type, q, kv, shape.width}, &layer->attn_k);
  packer_.AddMatrix({fused.tensor, fused.type, q + kv, kv, shape.width}, &layer->attn_v);
  if (!source_.Has(InLayer("attn_qkv.bias"))) return Status::Ok();
  TESSERA_ASSIGN_OR_RETURN(const GgufTensor* bias,
                           source_.Small(InLayer("attn_qkv.bias"), {q + 2 * kv}));
  packer_.AddValues(*bias, 0, q, &layer->attn_q_bias);
  packer_.AddValues(*bias, q, kv, &layer->attn_k_bias);
  packer_.AddValues(*bias, q + kv, kv, &layer->attn_v_bias);
  return Status::Ok();
}

Status ModelLoader::PlanAttention(LayerWeights* layer) {
  const ModelShape& shape = model_->shape_;
  const uint32_t q = shape.heads * shape.head_dim;
  const uint32_t kv = shape.kv_heads * shape.head_dim;
  if (source_.Has(InLayer("attn_qkv.weight"))) {
    TESSERA_RETURN_IF_ERROR(PlanFusedQkv(layer));
  } else {
    const uint32_t d = shape.width;
    TESSERA_RETURN_IF_ERROR(AddMatrix(InLayer("attn_q.weight"), q, d, &layer->attn_q));
    TESSERA_RETURN_IF_ERROR(AddMatrix(InLayer("attn_k.weight"), kv, d, &layer->attn_k));
    TESSERA_RETURN_IF_ERROR(AddMatrix(InLayer("attn_v.weight"), kv, d, &layer->attn_v));
    TESSERA_RETURN_IF_ERROR(AddValuesIfThere(InLayer("attn_q.bias"), q, &layer->attn_q_bias));
    TESSERA_RETURN_IF_ERROR(AddValuesIfThere(InLayer("attn_k.bias"), kv, &layer->attn_k_bias));
    TESSERA_RETURN_IF_ERROR(AddValuesIfThere(InLayer("attn_v.bias"), kv, &layer->attn_v_bias));
  }
  // The reference graph of falcon-h1 loads this bias and leaves it out; so do we.
  if (shape.architecture == Architecture::kFalconH1) source_.Ignore(InLayer("attn_output.bias"));
  return AddMatrix(InLayer("attn_output.weight"), shape.width, q, &layer->attn_output);
}

Status ModelLoader::PlanSsm(LayerWeights* layer) {
  const ModelShape& shape = model_->shape_;
  const uint64_t heads = shape.ssm_heads;
  const uint32_t channels = shape.conv_channels();
  TESSERA_RETURN_IF_ERROR(
      AddMatrix(InLayer("ssm_in.weight"), shape.ssm_in_rows(), shape.width, &layer->ssm_in));
  TESSERA_ASSIGN_OR_RETURN(const GgufTensor* conv, source_.Small(InLayer("ssm_conv1d.weight"),
                                                                 {shape.conv_kernel, channels}));
  packer_.AddConvolution(*conv, &layer->conv_weight);
  if (source_.Has(InLayer("ssm_conv1d.bias"))) {
    TESSERA_RETURN_IF_ERROR(AddValues(InLayer("ssm_conv1d.bias"), {channels}, &layer->conv_bias));
  } else {
    packer_.AddZeros(channels, &layer->conv_bias);
  }
  TESSERA_RETURN_IF_ERROR(AddValues(InLayer("ssm_dt.bias"), {heads}, &layer->dt_bias));
  TESSERA_RETURN_IF_ERROR(AddValues(InLayer("ssm_a"), {1, heads}, &layer->ssm_a, true));
  TESSERA_RETURN_IF_ERROR(AddValues(InLayer("ssm_d"), {1, heads}, &layer->ssm_d, true));
  const std::string norm = InLayer("ssm_norm.weight");
  if (source_.Has(norm) || shape.architecture == Architecture::kMamba2) {
    TESSERA_RETURN_IF_ERROR(
        AddValues(norm, {shape.ssm_inner / shape.ssm_groups, shape.ssm_groups}, &layer->ssm_norm));
  }
  return AddMatrix(InLayer("ssm_out.weight"), shape.width, shape.ssm_inner, &layer->ssm_out);
}

Status ModelLoader::PlanMlp(LayerWeights* layer) {
  const uint32_t d = model_->shape_.width;
  const uint32_t f = model_->shape_.feed_forward;
  const std::string norm = model_->shape_.architecture == Architecture::kFalconH1
                               ? source_.FirstOf({InLayer("ffn_norm"), InLayer("ffn_norm.weight")})
                               : InLayer("ffn_norm.weight");
  TESSERA_RETURN_IF_ERROR(AddValues(norm, {d}, &layer->ffn_norm));
  TESSERA_RETURN_IF_ERROR(AddMatrix(InLayer("ffn_gate.weight"), f, d, &layer->ffn_gate));
  TESSERA_RETURN_IF_ERROR(AddMatrix(InLayer("ffn_up.weight"), f, d, &layer->ffn_up));
  TESSERA_RETURN_IF_ERROR(AddMatrix(InLayer("ffn_down.weight"), d, f, &layer->ffn_down));
  TESSERA_RETURN_IF_ERROR(AddValuesIfThere(InLayer("ffn_gate.bias"), f, &layer->ffn_gate_bias));
  TESSERA_RETURN_IF_ERROR(AddValuesIfThere(InLayer("ffn_up.bias"), f, &layer->ffn_up_bias));
  return AddValuesIfThere(InLayer("ffn_down.bias"), d, &layer->ffn_down_bias);
}

Status ModelLoader::PlanLayer(uint32_t index) {
  const ModelShape& shape = model_->shape_;
  LayerWeights* layer = &model_->layers_[index];
  layer_prefix_ = fmt::format("blk.{}.", index);
  TESSERA_RETURN_IF_ERROR(AddValues(InLayer("attn_norm.weight"), {shape.width}, &layer->attn_norm));
  if (shape.has_attention()) TESSERA_RETURN_IF_ERROR(PlanAttention(layer));
  if (shape.has_ssm()) TESSERA_RETURN_IF_ERROR(PlanSsm(layer));
  if (shape.feed_forward > 0) TESSERA_RETURN_IF_ERROR(PlanMlp(layer));
  return Status::Ok();
}

Status ModelLoader::PlanOutput() {
  const ModelShape& shape = model_->shape_;
  EmbeddingTable* embedding = &model_->storage_->embedding;
  TESSERA_RETURN_IF_ERROR(AddValues("output_norm.weight", {shape.width}, &model_->output_norm_));
  TESSERA_ASSIGN_OR_RETURN(MatrixTensor rows,
                           source_.Matrix("token_embd.weight", shape.vocab_size, shape.width));
  embedding->type = rows.tensor->type;
  embedding->width = shape.width;
  embedding->row_bytes = rows.tensor->row_bytes();
  embedding->packed = &model_->output_;
  if (source_.Has("output.weight")) {
    packer_.AddCopy(*rows.tensor, &embedding->rows);
    return AddMatrix("output.weight", shape.vocab_size, shape.width, &model_->output_);
  }
  packer_.AddMatrix({rows.tensor, rows.type, 0, shape.vocab_size, shape.width}, &model_->output_);
  return Status::Ok();
}

Status ModelLoader::PlanTensors() {
  const ModelShape& shape = model_->shape_;
  model_->layers_.resize(shape.layers);
  for (uint32_t i = 0; i < shape.layers; ++i) TESSERA_RETURN_IF_ERROR(PlanLayer(i));
  TESSERA_RETURN_IF_ERROR(PlanOutput());
  if (shape.architecture == Architecture::kLlama) {
    TESSERA_RETURN_IF_ERROR(
        AddValuesIfThere("rope_freqs.weight", shape.n_rot / 2, &model_->rope_divisors_));
  } else {
    source_.Ignore("rope_freqs.weight");  // the reference graph of falcon-h1 never reads it
  }
  TESSERA_ASSIGN_OR_RETURN(std::string_view architecture, file_.GetString("general.architecture"));
  return source_.RefuseLeftOver(architecture);
}

// A rotation by position / divisor: outside these bounds the angle has no digits left, and the
// functions that reduce it are not made for it. Llama-3 files have 1 to 32.
Status ModelLoader::CheckRopeDivisors() const {
  constexpr float kMin = 1e-3f;
  constexpr float kMax = 1e6f;
  if (model_->rope_divisors_ == nullptr) return Status::Ok();
  for (uint32_t j = 0; j < model_->shape_.n_rot / 2; ++j) {
    const float divisor = model_->rope_divisors_[j];
    if (divisor >= kMin && divisor <= kMax) continue;
    return BadFile(
        fmt::format("{}: tensor 'rope_freqs.weight': expected values from {} to {}, found {} at {}",
                    file_.path(), kMin, kMax, divisor, j));
  }
  return Status::Ok();
}

Result<std::unique_ptr<Model>> ModelLoader::Load() {
  TESSERA_ASSIGN_OR_RETURN(model_->shape_, ReadModelShape(file_));
  model_->storage_ = std::make_unique<Model::Storage>();
  TESSERA_RETURN_IF_ERROR(PlanTensors());
  TESSERA_ASSIGN_OR_RETURN(model_->storage_->arena, packer_.Fill(file_, threads_));
  TESSERA_RETURN_IF_ERROR(CheckRopeDivisors());
  model_->weight_bytes_ = model_->storage_->arena.size_bytes();
  model_->weights_digest_ = packer_.digest();
  return std::move(model_);
}

}  // namespace tessera
