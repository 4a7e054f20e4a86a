// SPDX-License-Identifier: Apache-2.0
#include "testing/toy_model.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "base/check.h"
#include "compute/tensor/quant_blocks.h"

namespace tessera::testing {

TempFile::TempFile() {
  static std::atomic<int> counter{0};
  const std::string name =
      "tessera-" + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".gguf";
  path_ = (std::filesystem::temp_directory_path() / name).string();
}

TempFile::~TempFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

ModelShape ToyShape(Architecture architecture) {
  ModelShape shape;
  shape.architecture = architecture;
  shape.name = "toy";
  shape.layers = 2;
  shape.width = 64;
  shape.vocab_size = 300;
  shape.context_length = 4096;
  shape.rms_eps = 1e-5f;
  if (architecture != Architecture::kMamba2) {
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.head_dim = 16;
    shape.n_rot = 16;
    shape.feed_forward = 96;
  }
  if (architecture != Architecture::kLlama) {
    shape.ssm_inner = 96;
    shape.ssm_heads = 6;
    shape.ssm_state = 24;
    shape.ssm_groups = 2;
    shape.conv_kernel = 4;
  }
  return shape;
}

RandomModelOptions ToyOptions(Architecture architecture, GgufTensorType type) {
  RandomModelOptions options;
  options.shape = ToyShape(architecture);
  options.type = type;
  // Rows of whole blocks of 256, but for those of attn_output and ssm_out, which become Q8_0.
  if (FindTensorTraits(static_cast<uint32_t>(type))->block_elements == kSuperBlock) {
    options.shape.width = 256;
    if (options.shape.feed_forward > 0) options.shape.feed_forward = 512;
  }
  return options;
}

void SetKey(RandomModel* model, const std::string& name, RandomModel::Value value) {
  for (RandomModel::Key& key : model->keys) {
    if (key.name != name) continue;
    key.value = std::move(value);
    return;
  }
  model->keys.push_back({name, std::move(value)});
}

void RemoveKey(RandomModel* model, const std::string& name) {
  TESSERA_CHECK(std::erase_if(model->keys, [&](const auto& key) { return key.name == name; }) == 1);
}

RandomModel::Tensor* FindTensor(RandomModel* model, const std::string& name) {
  for (RandomModel::Tensor& tensor : model->tensors) {
    if (tensor.name == name) return &tensor;
  }
  TESSERA_CHECK(false && "no such tensor");
  return nullptr;
}

void RemoveTensor(RandomModel* model, const std::string& name) {
  TESSERA_CHECK(
      std::erase_if(model->tensors, [&](const auto& tensor) { return tensor.name == name; }) == 1);
}

GgufFile WriteAndOpen(const RandomModel& model) {
  const TempFile temp;
  TESSERA_CHECK(model.Write(temp.path()).ok());
  return GgufFile::Open(temp.path()).value();
}

ToyModel ToyModel::Make(const RandomModel& random, ThreadPool& threads) {
  return {Model::Load(WriteAndOpen(random), threads).value()};
}

ToyModel ToyModel::Make(const RandomModelOptions& options, ThreadPool& threads) {
  return Make(RandomModel::Make(options).value(), threads);
}

}  // namespace tessera::testing
