// SPDX-License-Identifier: Apache-2.0
#include "compute/model/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "compute/gguf/gguf_file.h"
#include "compute/gguf/printable.h"
#include "compute/model/shape_reader.h"
#include "port/float_environment.h"

namespace tessera {
namespace {

constexpr uint32_t kVocabularyMax = 1u << 24;
// Published models use 1e4 to 1e11.
constexpr float kRopeBaseMax = 1e30f;

constexpr std::array<std::pair<std::string_view, Architecture>, 3> kArchitectures = {{
    {"falcon-h1", Architecture::kFalconH1},
    {"mamba2", Architecture::kMamba2},
    {"llama", Architecture::kLlama},
}};

Result<Architecture> ReadArchitecture(const GgufFile& file) {
  TESSERA_ASSIGN_OR_RETURN(std::string_view name, file.GetString("general.architecture"));
  std::string supported;
  for (const auto& [known, architecture] : kArchitectures) {
    if (name == known) return architecture;
    supported += supported.empty() ? "" : ", ";
    supported += known;
  }
  return BadFile(fmt::format("{}: key 'general.architecture': expected one of {}, found {}",
                             file.path(), supported, Quoted(name)));
}

// Files of the first Falcon-H1 fork hold weights without their multipliers, which sit in keys of
// their own; run as they are they give nonsense without an error. No file of today's converter has
// a key like these.
bool IsUnfoldedFalconKey(std::string_view key) {
  std::string_view rest;
  for (std::string_view prefix : {"falcon-h1.", "falcon_h1."}) {
    if (key.starts_with(prefix)) rest = key.substr(prefix.size());
  }
  return rest.find("multiplier") != std::string_view::npos ||
         rest.find("mup") != std::string_view::npos ||
         rest.find("mamba_") != std::string_view::npos || rest == "rope_theta";
}

Status RefuseUnfoldedFalcon(const GgufFile& file) {
  for (std::string_view key : file.keys()) {
    if (!IsUnfoldedFalconKey(key)) continue;
    return BadFile(
        fmt::format("{}: key {}: expected weights with the multipliers folded in, found a file of "
                    "the early Falcon-H1 fork; convert the model again with a current converter",
                    file.path(), Quoted(key)));
  }
  return Status::Ok();
}

Status ReadCommon(const ShapeReader& reader, ModelShape* shape) {
  TESSERA_RETURN_IF_ERROR(reader.Read("block_count", 1, kLayersMax, &shape->layers));
  TESSERA_RETURN_IF_ERROR(reader.Read("context_length", 1, kContextMax, &shape->context_length));
  TESSERA_RETURN_IF_ERROR(reader.Read("embedding_length", 1, kRowMax, &shape->width));
  constexpr std::string_view kEps = "attention.layer_norm_rms_epsilon";
  if (!reader.Has(kEps)) return reader.Refuse(reader.Key(kEps), "a number above 0", "no such key");
  return reader.ReadPositive(kEps, 0, &shape->rms_eps);
}

Status ReadVocabulary(const GgufFile& file, const ShapeReader& reader, ModelShape* shape) {
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr) {
    return BadFile(fmt::format("{}: missing tensor 'token_embd.weight'", file.path()));
  }
  if (embedding->ne[1] < 1 || embedding->ne[1] > kVocabularyMax) {
    return BadFile(fmt::format("{}: tensor 'token_embd.weight': expected 1 to {} rows, found {}",
                               file.path(), kVocabularyMax, embedding->ne[1]));
  }
  shape->vocab_size = static_cast<uint32_t>(embedding->ne[1]);
  // Without this a token of the tokenizer could name a row that is not there.
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  if (file.FindValue(kTokens) == nullptr) return Status::Ok();
  TESSERA_ASSIGN_OR_RETURN(auto tokens, file.GetStringArray(kTokens));
  if (tokens.size() <= shape->vocab_size) return Status::Ok();
  return reader.Refuse(kTokens,
                       fmt::format("at most {} (rows of token_embd.weight)", shape->vocab_size),
                       fmt::format("{}", tokens.size()));
}

// A rotation the engine does not compute would be wrong only at long contexts, so it is refused.
Status RefuseRopeScaling(const GgufFile& file, const ShapeReader& reader) {
  std::string type_key = reader.Key("rope.scaling.type");
  TESSERA_ASSIGN_OR_RETURN(std::string_view type, file.GetString(type_key, "linear"));
  if (type == "none") return Status::Ok();
  if (type != "linear") {
    return reader.Refuse(type_key, "none, or linear with factor 1", Quoted(type));
  }
  for (std::string_view name : {"rope.scaling.factor", "rope.scale_linear"}) {
    TESSERA_ASSIGN_OR_RETURN(float factor, file.GetF32(reader.Key(name), 1.0f));
    if (factor != 0 && factor != 1) {  // 0 is how converters write "not set"
      return reader.Refuse(reader.Key(name), "1 (scaled rotations are not supported)",
                           fmt::format("{}", factor));
    }
  }
  return Status::Ok();
}

Status ReadRope(const GgufFile& file, const ShapeReader& reader, ModelShape* shape) {
  shape->rope_neox = shape->architecture == Architecture::kFalconH1;
  TESSERA_RETURN_IF_ERROR(RefuseRopeScaling(file, reader));
  float base = 0;
  constexpr std::string_view kBase = "rope.freq_base";
  TESSERA_RETURN_IF_ERROR(reader.ReadPositive(kBase, 10000.0f, &base));
  if (base < 1 || base > kRopeBaseMax) {
    return reader.Refuse(reader.Key(kBase), fmt::format("1 to {}", kRopeBaseMax),
                         fmt::format("{}", base));
  }
  shape->rope_base = base;
  constexpr std::string_view kRotated = "rope.dimension_count";
  // llama's rows were permuted for a rotation of the whole head.
  const bool whole = shape->architecture == Architecture::kLlama;
  TESSERA_RETURN_IF_ERROR(reader.ReadOr(kRotated, shape->head_dim, whole ? shape->head_dim : 2,
                                        shape->head_dim, &shape->n_rot));
  if (shape->n_rot % 2 == 0) return Status::Ok();
  return reader.Refuse(reader.Key(kRotated), "an even number", fmt::format("{}", shape->n_rot));
}

Status ReadHeadDim(const ShapeReader& reader, ModelShape* shape) {
  constexpr std::string_view kKey = "attention.key_length";
  constexpr std::string_view kValue = "attention.value_length";
  // d / heads is right for llama only: Falcon-H1-0.5B has 8 heads of 64 with d 1024.
  if (shape->architecture == Architecture::kLlama && !reader.Has(kKey)) {
    TESSERA_RETURN_IF_ERROR(
        reader.Divides("attention.head_count", shape->heads, "embedding_length", shape->width));
  }
  const uint32_t fallback = shape->width / shape->heads;
  TESSERA_RETURN_IF_ERROR(shape->architecture == Architecture::kLlama
                              ? reader.ReadOr(kKey, fallback, 2, kHeadDimMax, &shape->head_dim)
                              : reader.Read(kKey, 2, kHeadDimMax, &shape->head_dim));
  if (shape->head_dim % 2 != 0) {
    return reader.Refuse(reader.Key(kKey), "an even number", fmt::format("{}", shape->head_dim));
  }
  uint32_t value_length = 0;
  TESSERA_RETURN_IF_ERROR(reader.ReadOr(kValue, shape->head_dim, 1, kHeadDimMax, &value_length));
  if (value_length == shape->head_dim) return Status::Ok();
  return reader.Refuse(reader.Key(kValue),
                       fmt::format("{} (as {})", shape->head_dim, reader.Key(kKey)),
                       fmt::format("{}", value_length));
}

Status ReadAttention(const GgufFile& file, const ShapeReader& reader, ModelShape* shape) {
  constexpr std::string_view kHeads = "attention.head_count";
  constexpr std::string_view kKvHeads = "attention.head_count_kv";
  TESSERA_RETURN_IF_ERROR(reader.Read(kHeads, 1, kHeadsMax, &shape->heads));
  TESSERA_RETURN_IF_ERROR(reader.ReadOr(kKvHeads, shape->heads, 1, kHeadsMax, &shape->kv_heads));
  TESSERA_RETURN_IF_ERROR(reader.Divides(kKvHeads, shape->kv_heads, kHeads, shape->heads));
  TESSERA_RETURN_IF_ERROR(ReadHeadDim(reader, shape));
  TESSERA_RETURN_IF_ERROR(
      reader.FitsRow(kHeads, shape->heads, "attention.key_length", shape->head_dim));
  TESSERA_RETURN_IF_ERROR(ReadRope(file, reader, shape));
  const float default_scale = 1.0f / std::sqrt(static_cast<float>(shape->head_dim));
  constexpr std::string_view kScale = "attention.scale";
  TESSERA_ASSIGN_OR_RETURN(shape->attention_scale, file.GetF32(reader.Key(kScale), 0.0f));
  if (shape->attention_scale == 0) shape->attention_scale = default_scale;  // 0 is "not set"
  if (shape->attention_scale > 0) return Status::Ok();
  return reader.Refuse(reader.Key(kScale), "a number above 0",
                       fmt::format("{}", shape->attention_scale));
}

Status ReadSsm(const ShapeReader& reader, ModelShape* shape) {
  constexpr std::string_view kInner = "ssm.inner_size";
  constexpr std::string_view kHeads = "ssm.time_step_rank";
  constexpr std::string_view kState = "ssm.state_size";
  constexpr std::string_view kGroups = "ssm.group_count";
  TESSERA_RETURN_IF_ERROR(reader.Read("ssm.conv_kernel", 2, kConvKernelMax, &shape->conv_kernel));
  TESSERA_RETURN_IF_ERROR(reader.Read(kInner, 1, kRowMax, &shape->ssm_inner));
  TESSERA_RETURN_IF_ERROR(reader.Read(kState, 1, kSsmStateMax, &shape->ssm_state));
  TESSERA_RETURN_IF_ERROR(reader.Read(kHeads, 1, kRowMax, &shape->ssm_heads));
  TESSERA_RETURN_IF_ERROR(reader.Read(kGroups, 1, kRowMax, &shape->ssm_groups));
  TESSERA_RETURN_IF_ERROR(reader.Divides(kHeads, shape->ssm_heads, kInner, shape->ssm_inner));
  TESSERA_RETURN_IF_ERROR(reader.Divides(kGroups, shape->ssm_groups, kHeads, shape->ssm_heads));
  return reader.FitsRow(kGroups, shape->ssm_groups, kState, shape->ssm_state);
}

Status RefuseExperts(const GgufFile& file, const ShapeReader& reader) {
  std::string key = reader.Key("expert_count");
  TESSERA_ASSIGN_OR_RETURN(uint32_t experts, file.GetU32(key, 0));
  if (experts == 0) return Status::Ok();
  return reader.Refuse(key, "0 (mixtures of experts are not supported)",
                       fmt::format("{}", experts));
}

}  // namespace

StateShape ModelShape::state_shape(StateType type) const {
  StateShape state;
  state.state_type = type;
  if (has_attention()) {
    state.attention_layers = layers;
    state.kv_heads = kv_heads;
    state.head_dim = head_dim;
  }
  if (has_ssm()) {
    state.recurrent_layers = layers;
    state.ssm_heads = ssm_heads;
    state.ssm_head_dim = ssm_head_dim();
    state.ssm_state = ssm_state;
    state.conv_channels = conv_channels();
    state.conv_taps = conv_kernel - 1;
  }
  return state;
}

Result<ModelShape> ReadModelShape(const GgufFile& file) {
  const ScopedFloatEnvironment environment;  // attention_scale is part of the contract
  ModelShape shape;
  TESSERA_ASSIGN_OR_RETURN(shape.architecture, ReadArchitecture(file));
  TESSERA_ASSIGN_OR_RETURN(std::string_view prefix, file.GetString("general.architecture"));
  const ShapeReader reader(file, prefix);
  shape.name = ModelName(file);
  if (shape.architecture == Architecture::kFalconH1) {
    TESSERA_RETURN_IF_ERROR(RefuseUnfoldedFalcon(file));
  }
  TESSERA_RETURN_IF_ERROR(ReadCommon(reader, &shape));
  TESSERA_RETURN_IF_ERROR(ReadVocabulary(file, reader, &shape));
  if (shape.architecture != Architecture::kMamba2) {
    TESSERA_RETURN_IF_ERROR(RefuseExperts(file, reader));
    TESSERA_RETURN_IF_ERROR(ReadAttention(file, reader, &shape));
    TESSERA_RETURN_IF_ERROR(reader.Read("feed_forward_length", 1, kRowMax, &shape.feed_forward));
  }
  if (shape.architecture != Architecture::kLlama) {
    TESSERA_RETURN_IF_ERROR(ReadSsm(reader, &shape));
  }
  Status state = shape.state_shape(StateType::kF32).Validate();
  if (!state.ok()) {
    return BadFile(fmt::format("{}: {}.*: {}", file.path(), prefix, state.message()));
  }
  return shape;
}

}  // namespace tessera
