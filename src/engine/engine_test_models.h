// SPDX-License-Identifier: Apache-2.0
//
// Small random models of each architecture for the engine's tests, written once per process to a
// temporary folder that goes with it.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "compute/model/random_model.h"

namespace tessera::testing {

inline ModelShape ToyShape(Architecture architecture) {
  ModelShape shape;
  shape.architecture = architecture;
  shape.name = "toy";
  shape.layers = 2;
  shape.width = 64;
  shape.vocab_size = 300;
  shape.context_length = 1024;
  shape.rms_eps = 1e-5f;
  if (architecture != Architecture::kMamba2) {
    shape.heads = 4;
    shape.kv_heads = 2;
    shape.head_dim = 16;
    shape.n_rot = 16;
    shape.rope_neox = architecture == Architecture::kFalconH1;
    shape.attention_scale = 0.25f;
    shape.feed_forward = 96;
  }
  if (architecture != Architecture::kLlama) {
    shape.ssm_inner = 64;
    shape.ssm_heads = 4;
    shape.ssm_state = 16;
    shape.ssm_groups = 1;
    shape.conv_kernel = 4;
  }
  return shape;
}

inline std::string ToyModelPath(Architecture architecture = Architecture::kFalconH1) {
  static const struct Folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() /
                                 ("tessera-engine-test-" + std::to_string(getpid()));
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }
  } folder;
  const std::string path =
      folder.path / ("toy-" + std::to_string(static_cast<int>(architecture)) + ".gguf");
  if (std::filesystem::exists(path)) return path;
  RandomModelOptions options;
  options.shape = ToyShape(architecture);
  options.seed = 5;
  Result<RandomModel> model = RandomModel::Make(options);
  EXPECT_TRUE(model) << model.error().message();
  const Status written = model->Write(path);
  EXPECT_TRUE(written.ok()) << written.message();
  return path;
}

}  // namespace tessera::testing
