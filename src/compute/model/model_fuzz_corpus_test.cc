// SPDX-License-Identifier: Apache-2.0
//
// The fuzzer's corpus is what RandomModel writes, one file an architecture, and loads: after a
// change of either, TESSERA_WRITE_FUZZ_CORPUS=1 writes it anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "compute/model/model.h"
#include "compute/model/random_model.h"
#include "port/thread_pool.h"
#include "testing/toy_model.h"

namespace tessera {
namespace {

// As small as the kernels' widths allow: mutations of a small file hit more often.
RandomModelOptions Smallest(Architecture architecture) {
  RandomModelOptions options = testing::ToyOptions(architecture, GgufTensorType::kQ8_0);
  options.tied_output = true;
  ModelShape& shape = options.shape;
  shape.layers = 1;
  shape.width = 32;
  shape.vocab_size = 259;
  if (architecture != Architecture::kMamba2) {
    shape.heads = 2;
    shape.kv_heads = 1;
    shape.feed_forward = 32;
  }
  if (architecture != Architecture::kLlama) {
    shape.ssm_inner = 32;
    shape.ssm_heads = 2;
    shape.ssm_state = 16;
    shape.ssm_groups = 1;
  }
  return options;
}

// The maker's vocabulary has all 256 bytes; a tokenizer that lacks most of them loads as well.
void KeepTokens(uint32_t count, RandomModel* model) {
  for (RandomModel::Key& key : model->keys) {
    if (key.name == "tokenizer.ggml.tokens") {
      auto& tokens = std::get<std::vector<std::string>>(key.value);
      tokens[count - 1] = tokens.back();  // the control token
      tokens.resize(count);
    }
    if (key.name == "tokenizer.ggml.token_type") {
      auto& types = std::get<std::vector<int32_t>>(key.value);
      types[count - 1] = types.back();
      types.resize(count);
    }
    if (key.name.ends_with(".vocab_size")) key.value = count;
  }
  testing::FindTensor(model, "token_embd.weight")->ne[1] = count;
}

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(ModelFuzzCorpus, IsWhatTheMakerWritesAndLoads) {
  const std::string folder = TESSERA_SOURCE_DIR "/src/compute/model/model_fuzz_corpus/";
  uint64_t bytes = 0;
  for (const auto& [architecture, name] : {std::pair{Architecture::kLlama, "llama.gguf"},
                                           std::pair{Architecture::kMamba2, "mamba2.gguf"},
                                           std::pair{Architecture::kFalconH1, "falcon-h1.gguf"}}) {
    const testing::TempFile file;
    RandomModel random = RandomModel::Make(Smallest(architecture)).value();
    KeepTokens(96, &random);
    ASSERT_TRUE(random.Write(file.path()).ok());
    if (std::getenv("TESSERA_WRITE_FUZZ_CORPUS") != nullptr) {
      std::filesystem::copy_file(file.path(), folder + name,
                                 std::filesystem::copy_options::overwrite_existing);
    }
    EXPECT_TRUE(Slurp(file.path()) == Slurp(folder + name)) << name;
    ThreadPool threads(1);
    const auto model = Model::Load(*GgufFile::Open(folder + name), threads);
    EXPECT_TRUE(model.has_value()) << model.error().message();
    bytes += std::filesystem::file_size(folder + name);
  }
  EXPECT_LE(bytes, 60u * 1024);
}

}  // namespace
}  // namespace tessera
