// SPDX-License-Identifier: Apache-2.0
#include "compute/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "compute/model/tensor_values.h"
#include "compute/tensor/number_formats.h"
#include "port/process_memory.h"
#include "port/thread_pool.h"
#include "testing/toy_model.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

constexpr Architecture kAll[] = {Architecture::kFalconH1, Architecture::kMamba2,
                                 Architecture::kLlama};

RandomModel Toy(Architecture architecture, GgufTensorType type = GgufTensorType::kF32) {
  return RandomModel::Make(ToyOptions(architecture, type)).value();
}

Result<std::unique_ptr<Model>> Load(const RandomModel& random, int thread_count = 1) {
  ThreadPool threads(thread_count);
  return Model::Load(WriteAndOpen(random), threads);
}

void ExpectRefusal(const RandomModel& random, const std::vector<std::string>& parts) {
  auto model = Load(random);
  ASSERT_FALSE(model) << parts[0];
  EXPECT_EQ(model.error().code(), StatusCode::kBadFile);
  for (const std::string& part : parts) EXPECT_THAT(model.error().message(), HasSubstr(part));
}

// The values of a tensor as the file has them.
std::vector<float> FileValues(const GgufFile& file, const std::string& name) {
  const GgufTensor* tensor = file.FindTensor(name);
  TESSERA_CHECK(tensor != nullptr);
  std::vector<float> values(tensor->element_count());
  for (uint64_t row = 0; row < tensor->row_count(); ++row) {
    ReadRow(tensor->type, tensor->data + row * tensor->row_bytes(),
            static_cast<uint32_t>(tensor->ne[0]), values.data() + row * tensor->ne[0]);
  }
  return values;
}

std::vector<float> PackedValues(const PackedMatrix& matrix) {
  std::vector<float> values(size_t{matrix.n} * matrix.k);
  for (uint32_t row = 0; row < matrix.n; ++row) {
    ReadPackedRow(matrix, row, values.data() + size_t{row} * matrix.k);
  }
  return values;
}

std::vector<float> Values(const float* values, size_t count) { return {values, values + count}; }

TEST(TensorValues, RowsReadAsTheFormatsSay) {
  const uint16_t halves[] = {0x3C00, 0xC000, 0x0001, 0x7BFF};
  float values[32];
  ReadRow(GgufTensorType::kF16, reinterpret_cast<const std::byte*>(halves), 4, values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -2.0f);
  EXPECT_EQ(values[2], 0x1p-24f);
  EXPECT_EQ(values[3], 65504.0f);
  const uint16_t bf16[] = {0x3F80, 0xC000};
  ReadRow(GgufTensorType::kBF16, reinterpret_cast<const std::byte*>(bf16), 2, values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -2.0f);
  // byte[j] = (37j + 11) mod 256 with d = 0.0625 (0x2C00).
  std::byte block[34];
  for (int j = 0; j < 34; ++j) block[j] = static_cast<std::byte>(37 * j + 11);
  block[0] = std::byte{0x00};
  block[1] = std::byte{0x2C};
  ReadRow(GgufTensorType::kQ8_0, block, 32, values);
  EXPECT_EQ(values[0], 5.3125f);
  EXPECT_EQ(values[1], 7.625f);
  EXPECT_EQ(values[15], -8.0f);
  EXPECT_EQ(values[31], -3.0f);
}

constexpr GgufTensorType kMatrixTypesOfFiles[] = {
    GgufTensorType::kF32,  GgufTensorType::kF16,  GgufTensorType::kBF16, GgufTensorType::kQ8_0,
    GgufTensorType::kQ4_0, GgufTensorType::kQ4_1, GgufTensorType::kQ5_0, GgufTensorType::kQ5_1,
    GgufTensorType::kQ2_K, GgufTensorType::kQ3_K, GgufTensorType::kQ4_K, GgufTensorType::kQ5_K,
    GgufTensorType::kQ6_K};

TEST(TensorValues, MatrixTypesAreThoseNamed) {
  std::string names;
  for (uint32_t number = 0; number < 64; ++number) {
    const GgufTensorTraits* traits = FindTensorTraits(number);
    if (traits == nullptr || !WeightTypeOf(static_cast<GgufTensorType>(number))) continue;
    const std::string name(TensorTypeName(static_cast<GgufTensorType>(number)));
    EXPECT_THAT(", " + std::string(kMatrixTypes) + ",", HasSubstr(", " + name + ","));
    names += (names.empty() ? "" : ", ") + name;
  }
  EXPECT_EQ(names.size(), kMatrixTypes.size()) << names;
  EXPECT_EQ(std::size(kMatrixTypesOfFiles), 13u);
  for (GgufTensorType type : kMatrixTypesOfFiles) EXPECT_TRUE(WeightTypeOf(type).has_value());
}

TEST(Model, EveryMatrixHoldsTheFilesValues) {
  for (GgufTensorType type : kMatrixTypesOfFiles) {
    const GgufFile file = WriteAndOpen(Toy(Architecture::kFalconH1, type));
    ThreadPool threads(2);
    auto model = Model::Load(file, threads);
    ASSERT_TRUE(model) << model.error().message();
    const LayerWeights& layer = (*model)->layer(1);
    const std::vector<std::pair<std::string, const PackedMatrix*>> matrices = {
        {"blk.1.attn_q.weight", &layer.attn_q},
        {"blk.1.attn_k.weight", &layer.attn_k},
        {"blk.1.attn_v.weight", &layer.attn_v},
        {"blk.1.attn_output.weight", &layer.attn_output},
        {"blk.1.ssm_in.weight", &layer.ssm_in},
        {"blk.1.ssm_out.weight", &layer.ssm_out},
        {"blk.1.ffn_gate.weight", &layer.ffn_gate},
        {"blk.1.ffn_up.weight", &layer.ffn_up},
        {"blk.1.ffn_down.weight", &layer.ffn_down},
        {"output.weight", &(*model)->output()}};
    for (const auto& [name, matrix] : matrices) {
      EXPECT_TRUE(PackedValues(*matrix) == FileValues(file, name))
          << name << " " << TensorTypeName(type);
    }
    const std::vector<float> embedding = FileValues(file, "token_embd.weight");
    const uint32_t width = (*model)->shape().width;
    std::vector<float> row(width);
    (*model)->Embed(299, row.data());
    EXPECT_EQ(row, std::vector<float>(embedding.end() - width, embedding.end()));
  }
}

TEST(Model, SmallTensorsAreFp32AndTheConvolutionIsTurned) {
  RandomModel random = Toy(Architecture::kFalconH1);
  FindTensor(&random, "blk.0.attn_norm.weight")->type = GgufTensorType::kBF16;
  const GgufFile file = WriteAndOpen(random);
  ThreadPool threads(1);
  auto model = Model::Load(file, threads);
  ASSERT_TRUE(model) << model.error().message();
  const LayerWeights& layer = (*model)->layer(0);
  EXPECT_EQ(Values(layer.attn_norm, 64), FileValues(file, "blk.0.attn_norm.weight"));
  EXPECT_EQ(Values(layer.ffn_norm, 64), FileValues(file, "blk.0.ffn_norm"));
  EXPECT_EQ(Values(layer.dt_bias, 6), FileValues(file, "blk.0.ssm_dt.bias"));
  EXPECT_EQ(Values(layer.ssm_a, 6), FileValues(file, "blk.0.ssm_a"));
  EXPECT_EQ(Values(layer.ssm_d, 6), FileValues(file, "blk.0.ssm_d"));
  EXPECT_EQ(Values(layer.conv_bias, 192), FileValues(file, "blk.0.ssm_conv1d.bias"));
  EXPECT_EQ(Values((*model)->output_norm(), 64), FileValues(file, "output_norm.weight"));
  EXPECT_EQ(layer.ssm_norm, nullptr);
  EXPECT_EQ(layer.attn_q_bias, nullptr);
  const std::vector<float> conv = FileValues(file, "blk.0.ssm_conv1d.weight");
  for (uint32_t channel = 0; channel < 192; ++channel) {
    for (uint32_t tap = 0; tap < 4; ++tap) {
      ASSERT_EQ(layer.conv_weight[tap * 192 + channel], conv[channel * 4 + tap]);
    }
  }
}

TEST(Model, MissingConvolutionBiasIsZeros) {
  RandomModel random = Toy(Architecture::kMamba2);
  RemoveTensor(&random, "blk.1.ssm_conv1d.bias");
  auto model = Load(random);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_EQ(Values((*model)->layer(1).conv_bias, 192), std::vector<float>(192));
}

TEST(Model, FusedProjectionIsCutIntoItsRows) {
  RandomModel random = Toy(Architecture::kLlama, GgufTensorType::kBF16);
  for (const char* layer : {"blk.0.", "blk.1."}) {
    const std::string prefix = layer;
    RemoveTensor(&random, prefix + "attn_k.weight");
    RemoveTensor(&random, prefix + "attn_v.weight");
    RandomModel::Tensor* q = FindTensor(&random, prefix + "attn_q.weight");
    q->name = prefix + "attn_qkv.weight";
    q->ne[1] = 128;
    random.tensors.push_back({prefix + "attn_qkv.bias", GgufTensorType::kF32, {128}, -1.0f, 1.0f});
  }
  const GgufFile file = WriteAndOpen(random);
  ThreadPool threads(1);
  auto model = Model::Load(file, threads);
  ASSERT_TRUE(model) << model.error().message();
  const LayerWeights& layer = (*model)->layer(0);
  std::vector<float> rows = PackedValues(layer.attn_q);
  for (const PackedMatrix* part : {&layer.attn_k, &layer.attn_v}) {
    EXPECT_EQ(part->n, 32u);
    const std::vector<float> values = PackedValues(*part);
    rows.insert(rows.end(), values.begin(), values.end());
  }
  EXPECT_EQ(rows, FileValues(file, "blk.0.attn_qkv.weight"));
  const std::vector<float> bias = FileValues(file, "blk.0.attn_qkv.bias");
  EXPECT_EQ(layer.attn_q_bias[63], bias[63]);
  EXPECT_EQ(layer.attn_k_bias[0], bias[64]);
  EXPECT_EQ(layer.attn_v_bias[31], bias[127]);
}

TEST(Model, TiedHeadSharesTheEmbeddingsBytes) {
  for (GgufTensorType type : kMatrixTypesOfFiles) {
    RandomModelOptions options = ToyOptions(Architecture::kFalconH1, type);
    const uint64_t untied = Load(RandomModel::Make(options).value()).value()->weight_bytes();
    options.tied_output = true;
    const GgufFile file = WriteAndOpen(RandomModel::Make(options).value());
    ThreadPool threads(1);
    auto model = Model::Load(file, threads);
    ASSERT_TRUE(model) << model.error().message();
    const std::vector<float> embedding = FileValues(file, "token_embd.weight");
    EXPECT_EQ(PackedValues((*model)->output()), embedding);
    const uint32_t width = options.shape.width;
    std::vector<float> row(width);
    (*model)->Embed(17, row.data());
    EXPECT_EQ(row,
              std::vector<float>(embedding.begin() + 17 * width, embedding.begin() + 18 * width));
    EXPECT_LT((*model)->weight_bytes(), untied);
  }
}

TEST(Model, EveryMissingTensorIsNamed) {
  for (Architecture architecture : kAll) {
    const RandomModel whole = Toy(architecture);
    for (const RandomModel::Tensor& tensor : whole.tensors) {
      // These may be missing: a tied head, a bias of zeros.
      if (tensor.name == "output.weight" || tensor.name.ends_with("conv1d.bias")) continue;
      RandomModel random = whole;
      RemoveTensor(&random, tensor.name);
      ExpectRefusal(random, {"missing tensor '" + tensor.name + "'"});
    }
  }
}

TEST(Model, EveryWrongShapeIsNamedWithTheExpectedOne) {
  for (Architecture architecture : kAll) {
    const RandomModel whole = Toy(architecture);
    for (const RandomModel::Tensor& tensor : whole.tensors) {
      RandomModel random = whole;
      FindTensor(&random, tensor.name)->ne[0] += 1;
      ExpectRefusal(random, {tensor.name, "expected shape {" + std::to_string(tensor.ne[0]),
                             "found {" + std::to_string(tensor.ne[0] + 1)});
    }
  }
  // Transposed: the same number of elements.
  RandomModel random = Toy(Architecture::kLlama);
  std::swap(FindTensor(&random, "blk.0.ffn_down.weight")->ne[0],
            FindTensor(&random, "blk.0.ffn_down.weight")->ne[1]);
  ExpectRefusal(random, {"blk.0.ffn_down.weight", "{96, 64}", "{64, 96}"});
}

TEST(Model, UnsupportedTypesAreNamedWithTheSupportedOnes) {
  RandomModel random = Toy(Architecture::kFalconH1);
  FindTensor(&random, "blk.1.ffn_up.weight")->type = GgufTensorType::kQ8_1;
  ExpectRefusal(random, {"blk.1.ffn_up.weight", std::string(kMatrixTypes), "found Q8_1"});
  random = Toy(Architecture::kFalconH1);
  FindTensor(&random, "blk.1.attn_norm.weight")->type = GgufTensorType::kQ8_0;
  ExpectRefusal(random, {"blk.1.attn_norm.weight", "F32, F16, BF16", "found Q8_0"});
}

TEST(Model, LeftOverTensorsAreRefusedUnlessKnown) {
  RandomModel random = Toy(Architecture::kFalconH1);
  random.tensors.push_back({"blk.0.surprise.weight", GgufTensorType::kF32, {64}, 0, 1});
  ExpectRefusal(random, {"blk.0.surprise.weight", "falcon-h1"});
  // The reference graph of falcon-h1 leaves these two out.
  random = Toy(Architecture::kFalconH1);
  random.tensors.push_back({"blk.0.attn_output.bias", GgufTensorType::kF32, {64}, 0, 1});
  random.tensors.push_back({"rope_freqs.weight", GgufTensorType::kF32, {8}, 1, 2});
  EXPECT_TRUE(Load(random));
  random = Toy(Architecture::kLlama);
  random.tensors.push_back({"blk.0.attn_output.bias", GgufTensorType::kF32, {64}, 0, 1});
  ExpectRefusal(random, {"blk.0.attn_output.bias", "llama"});
  // A layer beyond block_count.
  random = Toy(Architecture::kFalconH1);
  SetKey(&random, "falcon-h1.block_count", uint32_t{1});
  ExpectRefusal(random, {"blk.1."});
}

TEST(Model, NamesWithAVariantAreAccepted) {
  RandomModel random = Toy(Architecture::kFalconH1);
  FindTensor(&random, "blk.0.ffn_norm")->name = "blk.0.ffn_norm.weight";
  FindTensor(&random, "blk.0.ssm_a")->ne = {6};
  auto model = Load(random);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_NE((*model)->layer(0).ffn_norm, nullptr);
}

TEST(Model, RopeDivisorsAreReadAndBounded) {
  RandomModel random = Toy(Architecture::kLlama);
  random.tensors.push_back({"rope_freqs.weight", GgufTensorType::kF32, {8}, 1, 8});
  auto model = Load(random);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_NE((*model)->rope_divisors(), nullptr);
  for (float bad : {0.0f, -1.0f, std::nanf(""), INFINITY}) {
    random.tensors.back().low = random.tensors.back().high = bad;
    ExpectRefusal(random, {"rope_freqs.weight", "0.001 to 1000000"});
  }
}

TEST(Model, ContractIdFollowsTheBitsOfWeightsAndMetadata) {
  const RandomModelOptions options = ToyOptions(Architecture::kFalconH1, GgufTensorType::kBF16);
  const RandomModel random = RandomModel::Make(options).value();
  auto id = [](const RandomModel& edited, int threads = 1) {
    return Load(edited, threads).value()->contract_id(StateType::kF32);
  };
  const uint64_t reference = id(random);
  EXPECT_EQ(id(random, 3), reference);
  EXPECT_NE(Load(random).value()->contract_id(StateType::kBF16), reference);
  RandomModelOptions other_seed = options;
  other_seed.seed = 2;
  EXPECT_NE(id(RandomModel::Make(other_seed).value()), reference);
  RandomModel edited = random;
  FindTensor(&edited, "blk.1.ssm_d")->high += 0.001f;
  EXPECT_NE(id(edited), reference) << "a small tensor";
  edited = random;
  FindTensor(&edited, "token_embd.weight")->high += 0.01f;
  EXPECT_NE(id(edited), reference) << "the embedding";
  edited = random;
  SetKey(&edited, "falcon-h1.rope.freq_base", 20000.0f);
  EXPECT_NE(id(edited), reference) << "the rope base";
  edited = random;
  SetKey(&edited, "general.name", std::string("another name"));
  EXPECT_EQ(id(edited), reference) << "a name is no arithmetic";
}

// 96 MiB of embedding and as much of head; with the file's pages kept it would be 192 MiB more.
TEST(Model, LoadingTakesLittleMoreThanTheWeights) {
  RandomModelOptions options = ToyOptions(Architecture::kMamba2);
  options.shape.width = 1024;
  options.shape.vocab_size = 24576;
  options.shape.layers = 1;
  const GgufFile file = WriteAndOpen(RandomModel::Make(options).value());
  std::ofstream reset("/proc/self/clear_refs");
  if (!(reset << "5" << std::flush)) GTEST_SKIP() << "the peak cannot be reset here";
  const uint64_t before = ResidentBytes();
  ThreadPool threads(2);
  auto model = Model::Load(file, threads);
  ASSERT_TRUE(model) << model.error().message();
  EXPECT_LT(PeakResidentBytes() - before, (*model)->weight_bytes() + 64 * kMiB);
}

TEST(RandomModel, WeightsBehave) {
  const GgufFile file = WriteAndOpen(Toy(Architecture::kFalconH1));
  double squares = 0;
  const std::vector<float> gate = FileValues(file, "blk.0.ffn_gate.weight");
  for (float w : gate) squares += double{w} * double{w};
  EXPECT_NEAR(squares / static_cast<double>(gate.size()), 1.0 / 64, 0.05 / 64);
  for (float a : FileValues(file, "blk.0.ssm_a")) {
    EXPECT_GE(a, -16);
    EXPECT_LE(a, -1);
  }
  for (float bias : FileValues(file, "blk.0.ssm_dt.bias")) {
    const double step = std::log1p(std::exp(double{bias}));
    EXPECT_GE(step, 0.99e-3);
    EXPECT_LE(step, 1.01e-1);
  }
}

TEST(RandomModel, Q8BlocksAreNearTheirF32Values) {
  const GgufFile f32 = WriteAndOpen(Toy(Architecture::kLlama));
  const GgufFile q8 = WriteAndOpen(Toy(Architecture::kLlama, GgufTensorType::kQ8_0));
  const std::vector<float> exact = FileValues(f32, "blk.0.ffn_gate.weight");
  const std::vector<float> rounded = FileValues(q8, "blk.0.ffn_gate.weight");
  // Half a step at the largest weight, and the rounding of the scale to f16: 127·2^-11 of a step.
  const float bound = std::sqrt(3.0f / 64) / 127 * (0.5f + 127.0f / 2048);
  for (size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(rounded[i], exact[i], bound * 1.001f);
}

TEST(RandomModel, VocabularyHasOneTokenPerRowAndOneMergePerToken) {
  for (uint32_t size : {258u, 300u, 70000u}) {  // 70,000: past all pairs of bytes
    RandomModelOptions options = ToyOptions(Architecture::kMamba2);
    options.shape.vocab_size = size;
    const GgufFile file = WriteAndOpen(RandomModel::Make(options).value());
    auto tokens = file.GetStringArray("tokenizer.ggml.tokens").value();
    EXPECT_EQ(tokens.size(), size);
    EXPECT_EQ(std::set<std::string_view>(tokens.begin(), tokens.end()).size(), size);
    EXPECT_EQ(file.GetStringArray("tokenizer.ggml.merges").value().size(), size - 257);
    EXPECT_EQ(file.GetI32Array("tokenizer.ggml.token_type").value().size(), size);
  }
}

TEST(RandomModel, ImpossibleOptionsAreRefused) {
  RandomModelOptions options = ToyOptions(Architecture::kLlama, GgufTensorType::kQ8_1);
  EXPECT_THAT(RandomModel::Make(options).error().message(), HasSubstr("Q8_1"));
  options = ToyOptions(Architecture::kLlama, GgufTensorType::kQ8_0);
  options.shape.width = 72;
  EXPECT_THAT(RandomModel::Make(options).error().message(), HasSubstr("72"));
  options = ToyOptions(Architecture::kLlama, GgufTensorType::kQ4_0);
  options.larger_where_it_matters = true;
  EXPECT_THAT(RandomModel::Make(options).error().message(), HasSubstr("expected Q4_K"));
  options = ToyOptions(Architecture::kLlama);
  options.shape.vocab_size = 257;
  EXPECT_THAT(RandomModel::Make(options).error().message(), HasSubstr("258"));
}

}  // namespace
}  // namespace tessera::testing
