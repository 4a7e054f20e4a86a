// SPDX-License-Identifier: Apache-2.0
#include "bench/step_bench.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "bench/model_floor.h"
#include "compute/gguf/gguf_file.h"
#include "compute/model/random_model.h"
#include "port/thread_pool.h"

namespace tessera {
namespace {

const std::string kModel = TESSERA_SOURCE_DIR "/models/harbour-2.8m-q8_0.gguf";

StepBenchOptions Small() {
  StepBenchOptions options;
  options.threads = 1;
  options.sequences = {1, 3};
  options.compared_sequences = 2;
  options.context_tokens = 20;
  options.steps = 2;
  options.rounds = 1;
  return options;
}

TEST(StepBench, EveryOrganisationIsComparedFreshAndAged) {
  const auto report = RunStepBench(kModel, Small());
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  ASSERT_EQ(report->speeds.size(), 2u);
  EXPECT_EQ(report->speeds[1].seconds.size(), 2u);
  ASSERT_EQ(report->layouts.size(), 20u);
  const auto json = nlohmann::json::parse(StepBenchJson(*report));
  EXPECT_EQ(json["speed"][1]["sequences"], 3);
  EXPECT_GT(json["speed"][1]["tokens_per_second"], 0);
  EXPECT_EQ(json["layout"][2]["organisation"], "s3:page=32");
  EXPECT_EQ(json["layout"][3]["pages"], "aged");
  // An aged arena breaks the runs that a fresh one has: harbour's pages are 4 KiB, its images 34.
  EXPECT_GT(report->layouts[0].mean_run_bytes, 2 * report->layouts[1].mean_run_bytes);
  EXPECT_NE(StepBenchText(*report).find("s3:page=512"), std::string::npos);
}

TEST(StepBench, AModelThatFitsTheCachesIsMarked) {
  StepBenchOptions options = Small();
  options.compared_sequences = 0;
  auto report = RunStepBench(kModel, options);
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  report->last_level_bytes = 64 * kMiB;
  EXPECT_NE(StepBenchText(*report).find("fits the caches (67 MB)"), std::string::npos);
  EXPECT_EQ(nlohmann::json::parse(StepBenchJson(*report))["speed"][0]["fits_caches"], true);
  report->last_level_bytes = 1 * kMiB;
  EXPECT_EQ(StepBenchText(*report).find("fits the caches"), std::string::npos);
}

TEST(StepBench, WithoutRecurrentStateThereAreNoPagesOfImages) {
  ModelShape shape;
  shape.architecture = Architecture::kLlama;
  shape.name = "attention alone";
  shape.layers = 1;
  shape.width = 64;
  shape.vocab_size = 272;
  shape.context_length = 256;
  shape.rms_eps = 1e-5f;
  shape.heads = 4;
  shape.kv_heads = 2;
  shape.head_dim = shape.n_rot = 16;
  shape.attention_scale = 0.25f;
  shape.feed_forward = 96;
  const auto model = RandomModel::Make({.shape = shape});
  ASSERT_TRUE(model.has_value()) << model.error().ToString();
  const std::string path = ::testing::TempDir() + "step_bench_llama.gguf";
  ASSERT_TRUE(model->Write(path).ok());
  StepBenchOptions options = Small();
  options.organisations = {OrganisationSpec()};
  const auto report = RunStepBench(path, options);
  std::remove(path.c_str());
  ASSERT_TRUE(report.has_value()) << report.error().ToString();
  EXPECT_NE(StepBenchText(*report).find("no recurrent state"), std::string::npos);
  const auto json = nlohmann::json::parse(StepBenchJson(*report));
  EXPECT_TRUE(json["layout"][0]["page_bytes"].is_null());
}

TEST(StepBench, AContextTheModelLacksIsRefused) {
  StepBenchOptions options = Small();
  options.context_tokens = 8192;
  const auto report = RunStepBench(kModel, options);
  ASSERT_FALSE(report.has_value());
  EXPECT_EQ(report.error().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(report.error().message().find("--context 8192"), std::string::npos);
}

TEST(ModelFloor, WeightsAreReadOncePerStepAndStatePerSequence) {
  const auto file = GgufFile::Open(kModel);
  ASSERT_TRUE(file.has_value());
  ThreadPool threads(1);
  const auto model = Model::Load(*file, threads);
  ASSERT_TRUE(model.has_value());
  const Floor one = StepFloor(**model, StateType::kF32, 1, 64);
  const Floor four = StepFloor(**model, StateType::kF32, 4, 64);
  const double weights = WeightFloor(**model, 1).read_bytes;
  EXPECT_GT(weights, 0);
  EXPECT_LT(weights, static_cast<double>((*model)->weight_bytes()) + 1);
  EXPECT_DOUBLE_EQ(four.update_bytes, 4 * one.update_bytes);
  EXPECT_DOUBLE_EQ(four.read_bytes - weights, 4 * (one.read_bytes - weights));
  EXPECT_DOUBLE_EQ(four.total_operations(), 4 * one.total_operations());
}

}  // namespace
}  // namespace tessera
