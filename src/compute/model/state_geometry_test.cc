// SPDX-License-Identifier: Apache-2.0
//
// Metadata as converters write it, for every architecture that memory can be planned for, against
// the rows of published models; and metadata as nobody should write it.
#include "compute/model/state_geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "compute/gguf/gguf_test_files.h"
#include "compute/model/model_shape.h"
#include "testing/toy_model.h"

namespace tessera::testing {
namespace {

using ::testing::HasSubstr;

// Keys without the architecture's prefix. Bools are written as arrays of their own type.
using Value = std::variant<uint32_t, std::vector<int32_t>, std::vector<bool>>;
struct Metadata {
  std::string architecture;
  std::map<std::string, Value> keys;
};

std::string BytesOf(const Metadata& metadata) {
  RawGguf file;
  file.Key("general.architecture", GgufValueType::kString, Text(metadata.architecture));
  file.Key("general.name", GgufValueType::kString, Text("model"));
  for (const auto& [key, value] : metadata.keys) {
    const std::string name = metadata.architecture + "." + key;
    if (const auto* number = std::get_if<uint32_t>(&value)) {
      file.Key(name, GgufValueType::kU32, U32(*number));
    } else if (const auto* numbers = std::get_if<std::vector<int32_t>>(&value)) {
      std::string elements;
      for (int32_t element : *numbers) elements += Raw(element);
      file.Key(name, GgufValueType::kArray, Array(GgufValueType::kI32, numbers->size(), elements));
    } else {
      std::string elements;
      for (bool element : std::get<std::vector<bool>>(value)) elements += U8(element ? 1 : 0);
      file.Key(name, GgufValueType::kArray, Array(GgufValueType::kBool, elements.size(), elements));
    }
  }
  return file.Build();
}

Result<StateGeometry> Read(const Metadata& metadata) {
  const std::string bytes = BytesOf(metadata);
  const auto file = ParseText(bytes);
  EXPECT_TRUE(file.has_value()) << file.error().message();
  return ReadStateGeometry(*file);
}

// `value` in the layers given, 0 elsewhere.
std::vector<int32_t> In(std::vector<size_t> layers, size_t count, int32_t value) {
  std::vector<int32_t> values(count, 0);
  for (size_t layer : layers) values[layer] = value;
  return values;
}

std::vector<int32_t> Every(size_t period, size_t offset, size_t count, int32_t value) {
  std::vector<int32_t> values(count, 0);
  for (size_t i = offset; i < count; i += period) values[i] = value;
  return values;
}

Metadata GraniteTiny() {
  return {"granitehybrid",
          {{"block_count", 40u},
           {"context_length", 131072u},
           {"embedding_length", 1536u},
           {"attention.head_count", 12u},
           {"attention.head_count_kv", In({5, 15, 25, 35}, 40, 4)},
           {"ssm.conv_kernel", 4u},
           {"ssm.inner_size", 3072u},
           {"ssm.state_size", 128u},
           {"ssm.time_step_rank", 48u},
           {"ssm.group_count", 1u}}};
}

// 52 blocks of one mixer each: 24 Mamba-2, 4 attention, 24 MLP.
Metadata NemotronH8B() {
  const std::string pattern = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
  std::vector<int32_t> kv, mlp;
  for (char mixer : pattern) {
    kv.push_back(mixer == '*' ? 8 : 0);
    mlp.push_back(mixer == '-' ? 21504 : 0);
  }
  return {"nemotron_h",
          {{"block_count", 52u},
           {"context_length", 8192u},
           {"embedding_length", 4096u},
           {"feed_forward_length", mlp},
           {"attention.head_count", 32u},
           {"attention.head_count_kv", kv},
           {"attention.key_length", 128u},
           {"attention.value_length", 128u},
           {"ssm.conv_kernel", 4u},
           {"ssm.inner_size", 8192u},
           {"ssm.state_size", 128u},
           {"ssm.time_step_rank", 128u},
           {"ssm.group_count", 8u}}};
}

Metadata Qwen3Next() {
  return {"qwen3next",
          {{"block_count", 48u},
           {"context_length", 262144u},
           {"embedding_length", 2048u},
           {"attention.head_count", 16u},
           {"attention.head_count_kv", 2u},
           {"attention.key_length", 256u},
           {"attention.value_length", 256u},
           {"full_attention_interval", 4u},
           {"ssm.conv_kernel", 4u},
           {"ssm.inner_size", 4096u},
           {"ssm.state_size", 128u},
           {"ssm.time_step_rank", 32u},
           {"ssm.group_count", 16u}}};
}

Metadata Lfm2() {
  return {"lfm2",
          {{"block_count", 16u},
           {"context_length", 128000u},
           {"embedding_length", 2048u},
           {"attention.head_count", 32u},
           {"attention.head_count_kv", In({2, 5, 8, 10, 12, 14}, 16, 8)},
           {"shortconv.l_cache", 3u}}};
}

Metadata JambaMini() {
  return {"jamba",
          {{"block_count", 32u},
           {"context_length", 262144u},
           {"embedding_length", 4096u},
           {"attention.head_count", 32u},
           {"attention.head_count_kv", Every(8, 4, 32, 8)},
           {"ssm.conv_kernel", 4u},
           {"ssm.inner_size", 8192u},
           {"ssm.state_size", 16u},
           {"ssm.time_step_rank", 256u}}};
}

Metadata FalconH1(uint32_t layers) {
  return {"falcon-h1",
          {{"block_count", layers},
           {"context_length", 262144u},
           {"embedding_length", 3072u},
           {"attention.head_count", 12u},
           {"attention.head_count_kv", 2u},
           {"attention.key_length", 128u},
           {"attention.value_length", 128u},
           {"ssm.conv_kernel", 4u},
           {"ssm.inner_size", 3072u},
           {"ssm.state_size", 256u},
           {"ssm.time_step_rank", 24u},
           {"ssm.group_count", 1u}}};
}

void ExpectRow(const Metadata& metadata, std::string_view name) {
  SCOPED_TRACE(name);
  const StateGeometry expected = FindGeometry(name).value();
  const auto found = Read(metadata);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  EXPECT_EQ(found->shape, expected.shape);
  EXPECT_EQ(found->width, expected.width);
  EXPECT_EQ(found->context_length, expected.context_length);
  EXPECT_EQ(found->name, "model");
}

TEST(StateGeometry, FilesOfPublishedModelsGiveTheirRows) {
  ExpectRow(FalconH1(44), "falcon-h1-7b");
  ExpectRow(GraniteTiny(), "granite-4-h-tiny");
  ExpectRow(NemotronH8B(), "nemotron-h-8b");
  ExpectRow(Qwen3Next(), "qwen3-next-80b-a3b");
  ExpectRow(Lfm2(), "lfm2-1.2b");
  ExpectRow(JambaMini(), "jamba-mini");

  Metadata small = GraniteTiny();
  small.keys["embedding_length"] = 4096u;
  small.keys["attention.head_count"] = 32u;
  small.keys["attention.head_count_kv"] = In({5, 15, 25, 35}, 40, 8);
  small.keys["ssm.inner_size"] = 8192u;
  small.keys["ssm.time_step_rank"] = 128u;
  ExpectRow(small, "granite-4-h-small");

  ExpectRow({"mamba2",
             {{"block_count", 24u},
              {"context_length", 1048576u},
              {"embedding_length", 768u},
              {"attention.head_count", 0u},
              {"ssm.conv_kernel", 4u},
              {"ssm.inner_size", 1536u},
              {"ssm.state_size", 128u},
              {"ssm.time_step_rank", 24u},
              {"ssm.group_count", 1u}}},
            "mamba2-130m");
  ExpectRow({"llama",
             {{"block_count", 16u},
              {"context_length", 131072u},
              {"embedding_length", 2048u},
              {"attention.head_count", 32u},
              {"attention.head_count_kv", 8u},
              {"expert_count", 8u}}},  // experts hold no state
            "llama-3.2-1b");
}

TEST(StateGeometry, TheBundledModelIsItsRowAndTheEnginesShape) {
  const auto file = GgufFile::Open(TESSERA_SOURCE_DIR "/models/harbour-2.8m-q8_0.gguf");
  ASSERT_TRUE(file.has_value());
  const auto found = ReadStateGeometry(*file);
  ASSERT_TRUE(found.has_value()) << found.error().message();
  const StateGeometry expected = FindGeometry("harbour-2.8m").value();
  EXPECT_EQ(found->shape, expected.shape);
  EXPECT_EQ(found->width, expected.width);
  EXPECT_EQ(found->context_length, expected.context_length);
  EXPECT_EQ(found->name, "Harbour 2.8M");
}

TEST(StateGeometry, OfWhatTheEngineRunsItIsTheEnginesShape) {
  for (Architecture architecture :
       {Architecture::kFalconH1, Architecture::kMamba2, Architecture::kLlama}) {
    const auto file = WriteAndOpen(RandomModel::Make(ToyOptions(architecture)).value());
    const auto found = ReadStateGeometry(file);
    ASSERT_TRUE(found.has_value()) << found.error().message();
    const ModelShape shape = ReadModelShape(file).value();
    EXPECT_EQ(found->shape, shape.state_shape(StateType::kF32));
    EXPECT_EQ(found->width, shape.width);
    EXPECT_EQ(found->context_length, shape.context_length);
    EXPECT_EQ(found->name, shape.name);
  }
}

TEST(StateGeometry, RecurrentLayersMayBeListedInsteadOfTheInterval) {
  Metadata listed = Qwen3Next();
  std::vector<int32_t> numbers(48, 1);
  std::vector<bool> bools(48, true);
  for (size_t i = 3; i < 48; i += 4) numbers[i] = bools[i] = 0;
  listed.keys["full_attention_interval"] = 2u;  // the list wins
  listed.keys["attention.recurrent_layers"] = numbers;
  ExpectRow(listed, "qwen3-next-80b-a3b");
  listed.keys["attention.recurrent_layers"] = bools;
  ExpectRow(listed, "qwen3-next-80b-a3b");
  listed.keys.erase("attention.recurrent_layers");
  EXPECT_EQ(Read(listed)->shape.attention_layers, 24u);
  listed.keys.erase("full_attention_interval");  // 4
  ExpectRow(listed, "qwen3-next-80b-a3b");
}

TEST(StateGeometry, BlocksThatPredictFurtherTokensHoldNoState) {
  Metadata metadata = Qwen3Next();
  metadata.keys["block_count"] = 49u;
  metadata.keys["nextn_predict_layers"] = 1u;
  ExpectRow(metadata, "qwen3-next-80b-a3b");
  metadata = NemotronH8B();
  metadata.architecture = "nemotron_h_moe";
  metadata.keys["block_count"] = 53u;
  metadata.keys["nextn_predict_layers"] = 1u;
  for (const char* key : {"feed_forward_length", "attention.head_count_kv"}) {
    std::get<std::vector<int32_t>>(metadata.keys[key]).push_back(8);
  }
  ExpectRow(metadata, "nemotron-h-8b");
}

TEST(StateGeometry, ALayerWithAnMlpHoldsNoStateWhateverItsHeads) {
  Metadata metadata = NemotronH8B();
  std::get<std::vector<int32_t>>(metadata.keys["attention.head_count_kv"])[1] = 8;
  ExpectRow(metadata, "nemotron-h-8b");
}

TEST(StateGeometry, HeadCountsMayBeArraysToo) {
  Metadata metadata = Lfm2();
  metadata.keys["attention.head_count"] = In({2, 5, 8, 10, 12, 14}, 16, 32);
  ExpectRow(metadata, "lfm2-1.2b");
}

TEST(StateGeometry, Mamba1RowsShareVectorsOnlyWhereChannelsDivide) {
  Metadata metadata = JambaMini();
  EXPECT_EQ(Read(metadata)->shape.ssm_heads, 4096u);
  EXPECT_EQ(Read(metadata)->shape.ssm_state, 32u);
  metadata.keys["ssm.inner_size"] = 8191u;
  EXPECT_EQ(Read(metadata)->shape.ssm_heads, 8191u);
  EXPECT_EQ(Read(metadata)->shape.ssm_state, 16u);
}

using Edit = std::function<void(Metadata*)>;

void ExpectRefusal(Metadata metadata, const Edit& edit, const std::vector<std::string>& parts) {
  edit(&metadata);
  const auto found = Read(metadata);
  ASSERT_FALSE(found.has_value()) << parts[0];
  EXPECT_EQ(found.error().code(), StatusCode::kBadFile);
  for (const std::string& part : parts) EXPECT_THAT(found.error().message(), HasSubstr(part));
  EXPECT_EQ(found.error().message().find('\n'), std::string::npos);
}

Edit Set(const std::string& key, Value value) {
  return [=](Metadata* metadata) { metadata->keys[key] = value; };
}
Edit Drop(const std::string& key) {
  return [=](Metadata* metadata) { metadata->keys.erase(key); };
}

TEST(StateGeometry, AnUnknownArchitectureIsNamedWithTheKnown) {
  ExpectRefusal(
      Lfm2(), [](Metadata* metadata) { metadata->architecture = "rwkv7"; },
      {"general.architecture", "'rwkv7'", "granitehybrid", "nemotron_h", "qwen3next", "jamba"});
}

TEST(StateGeometry, EachMissingKeyIsNamed) {
  for (const Metadata& metadata :
       {FalconH1(4), GraniteTiny(), NemotronH8B(), Qwen3Next(), Lfm2(), JambaMini()}) {
    for (const auto& [key, value] : metadata.keys) {
      Metadata without = metadata;
      without.keys.erase(key);
      const auto found = Read(without);
      const bool optional = key == "full_attention_interval" || key == "attention.value_length" ||
                            key == "ssm.time_step_rank" ||
                            key.find("key_length") != std::string::npos ||
                            key == "attention.head_count_kv";
      if (found.has_value()) {
        EXPECT_TRUE(optional) << metadata.architecture << " " << key;
      } else {
        EXPECT_THAT(found.error().message(), HasSubstr(metadata.architecture + "." + key));
      }
    }
  }
  ExpectRefusal(GraniteTiny(), Drop("attention.head_count_kv"),
                {"granitehybrid.attention.head_count_kv"});
  ExpectRefusal(FalconH1(4), Drop("attention.key_length"), {"falcon-h1.attention.key_length"});
}

TEST(StateGeometry, HostileMetadataIsRefusedNamingTheKey) {
  const std::string kv = "attention.head_count_kv";
  ExpectRefusal(GraniteTiny(), Set(kv, In({5}, 39, 4)), {kv, "40 values", "39"});
  ExpectRefusal(GraniteTiny(), Set(kv, In({5}, 40, -1)), {kv, "0 to 4096", "-1"});
  ExpectRefusal(GraniteTiny(), Set(kv, In({5}, 40, 1 << 20)), {kv, "4096", "1048576"});
  ExpectRefusal(GraniteTiny(),
                [&](Metadata* metadata) {
                  auto heads = In({5, 15}, 40, 4);
                  heads[15] = 2;
                  metadata->keys[kv] = heads;
                },
                {kv, "as many KV heads", "2 in layer 15"});
  ExpectRefusal(GraniteTiny(), Set(kv, In({5}, 40, 5)), {"attention.head_count", "12 in layer 5"});
  ExpectRefusal(GraniteTiny(), Set("attention.head_count", 0u), {"attention.head_count'"});
  ExpectRefusal(Qwen3Next(), Set(kv, 0u), {kv, "above 0"});
  ExpectRefusal(GraniteTiny(), Set("embedding_length", 1537u),
                {"attention.head_count", "embedding_length = 1537"});
  ExpectRefusal(NemotronH8B(), Set("attention.key_length", 127u), {"key_length", "even", "127"});
  ExpectRefusal(NemotronH8B(), Set("attention.value_length", 64u), {"value_length", "128", "64"});
  ExpectRefusal(GraniteTiny(), Set("block_count", 0u), {"block_count", "1 to 4096"});
  ExpectRefusal(GraniteTiny(), Set("block_count", 4000000000u), {"block_count", "4000000000"});
  ExpectRefusal(GraniteTiny(), Set("ssm.time_step_rank", 0u), {"ssm.time_step_rank"});
  ExpectRefusal(GraniteTiny(), Set("ssm.time_step_rank", 47u),
                {"ssm.time_step_rank", "ssm.inner_size = 3072", "47"});
  ExpectRefusal(GraniteTiny(), Set("ssm.group_count", 5u), {"ssm.group_count", "48", "5"});
  ExpectRefusal(GraniteTiny(), Set("ssm.conv_kernel", 1u), {"ssm.conv_kernel", "2 to 16"});
  ExpectRefusal(GraniteTiny(), Set("ssm.state_size", 1u << 13), {"ssm.state_size", "4096"});
  ExpectRefusal(GraniteTiny(), Set("context_length", 0u), {"context_length"});
  ExpectRefusal(Lfm2(), Set("shortconv.l_cache", 1u), {"shortconv.l_cache", "2 to 16", "1"});
  ExpectRefusal(Qwen3Next(), Set("full_attention_interval", 0u), {"full_attention_interval"});
  ExpectRefusal(Qwen3Next(), Set("nextn_predict_layers", 48u), {"nextn_predict_layers", "47"});
  ExpectRefusal(Qwen3Next(), Set("attention.recurrent_layers", std::vector<int32_t>(48, 2)),
                {"attention.recurrent_layers", "0 to 1"});
  // Layers without any state.
  ExpectRefusal(NemotronH8B(), Set("feed_forward_length", 21504u), {"nemotron_h.*", "no state"});
}

}  // namespace
}  // namespace tessera::testing
