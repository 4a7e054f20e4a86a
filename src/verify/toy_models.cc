// SPDX-License-Identifier: Apache-2.0
#include "verify/toy_models.h"

#include <cmath>
#include <cstddef>
#include <vector>

#include "compute/gguf/gguf_file.h"
#include "port/thread_pool.h"

namespace tessera {
namespace {

constexpr uint32_t kContextLength = 2048;

ModelShape Base(Architecture architecture, uint32_t layers, uint32_t width) {
  ModelShape shape;
  shape.architecture = architecture;
  shape.layers = layers;
  shape.width = width;
  shape.vocab_size = 272;  // 256 bytes, some merges, end of text
  shape.context_length = kContextLength;
  shape.rms_eps = 1e-5f;
  return shape;
}

void GiveAttention(uint32_t heads, uint32_t kv_heads, uint32_t head_dim, bool neox,
                   ModelShape* shape) {
  shape->heads = heads;
  shape->kv_heads = kv_heads;
  shape->head_dim = head_dim;
  shape->n_rot = head_dim;
  shape->rope_neox = neox;
  shape->attention_scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
}

void GiveSsm(uint32_t heads, uint32_t head_dim, uint32_t state, uint32_t groups,
             ModelShape* shape) {
  shape->ssm_heads = heads;
  shape->ssm_inner = heads * head_dim;
  shape->ssm_state = state;
  shape->ssm_groups = groups;
  shape->conv_kernel = 4;
}

ToyModel Make(std::string name, ModelShape shape, GgufTensorType type) {
  shape.name = name;
  return {std::move(name), {.shape = shape, .type = type}};
}

ToyModel FalconToy(std::string name, GgufTensorType type) {
  ModelShape shape = Base(Architecture::kFalconH1, 2, 32);
  GiveAttention(4, 2, 16, true, &shape);
  GiveSsm(4, 16, 16, 1, &shape);
  shape.feed_forward = 64;
  return Make(std::move(name), shape, type);
}

// Every matrix has whole blocks of 256 inputs, one of them two.
ToyModel WideFalconToy(std::string name, GgufTensorType type) {
  ModelShape shape = Base(Architecture::kFalconH1, 1, 256);
  GiveAttention(8, 2, 32, true, &shape);
  GiveSsm(8, 32, 16, 1, &shape);
  shape.feed_forward = 512;
  return Make(std::move(name), shape, type);
}

// Two SSM groups with a norm, heads of 24 and states of 24: tails everywhere.
ToyModel OddFalconToy() {
  ModelShape shape = Base(Architecture::kFalconH1, 3, 56);
  GiveAttention(3, 1, 24, true, &shape);
  GiveSsm(6, 12, 24, 2, &shape);
  shape.feed_forward = 88;
  ToyModel toy = Make("toy falcon-h1 f16, odd sizes", shape, GgufTensorType::kF16);
  toy.options.ssm_norm = true;
  return toy;
}

ToyModel MambaToy() {
  ModelShape shape = Base(Architecture::kMamba2, 3, 32);
  GiveSsm(4, 16, 32, 2, &shape);
  ToyModel toy = Make("toy mamba2 f32", shape, GgufTensorType::kF32);
  toy.options.tied_output = true;
  return toy;
}

ToyModel LlamaToy() {
  ModelShape shape = Base(Architecture::kLlama, 2, 64);
  GiveAttention(4, 2, 16, false, &shape);
  shape.feed_forward = 96;
  return Make("toy llama bf16", shape, GgufTensorType::kBF16);
}

}  // namespace

std::span<const ToyModel> ToyModels() {
  static const std::vector<ToyModel> toys = {
      FalconToy("toy falcon-h1 bf16", GgufTensorType::kBF16),
      FalconToy("toy falcon-h1 q8_0", GgufTensorType::kQ8_0),
      FalconToy("toy falcon-h1 q4_0", GgufTensorType::kQ4_0),
      WideFalconToy("toy falcon-h1 q4_k", GgufTensorType::kQ4_K),
      WideFalconToy("toy falcon-h1 q6_k", GgufTensorType::kQ6_K),
      MambaToy(),
      LlamaToy(),
      // The dearest last: it has the time that the others did not need.
      OddFalconToy(),
  };
  return toys;
}

Result<std::unique_ptr<Model>> MakeToyModel(const ToyModel& toy, uint64_t seed) {
  RandomModelOptions options = toy.options;
  options.seed = seed;
  TESSERA_ASSIGN_OR_RETURN(const RandomModel random, RandomModel::Make(options));
  const std::vector<std::byte> bytes = random.ToBytes();
  TESSERA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Parse(bytes, toy.name));
  ThreadPool threads(1);
  return Model::Load(file, threads);
}

}  // namespace tessera
