// SPDX-License-Identifier: Apache-2.0
//
// Pieces and tokens against tests/golden/tokenizer, made by another implementation with the
// vocabulary of the bundled model (README.md there).
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "compute/gguf/gguf_file.h"
#include "compute/tokenizer/pre_tokenizer.h"
#include "compute/tokenizer/tokenizer.h"
#include "compute/tokenizer/vocabulary.h"

namespace tessera {
namespace {

const std::string kRoot = TESSERA_SOURCE_DIR;

std::string ReadAll(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

class TokenizerGolden : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto file = GgufFile::Open(kRoot + "/models/harbour-2.8m-q8_0.gguf");
    ASSERT_TRUE(file.has_value()) << file.error().ToString();
    file_.emplace(std::move(*file));
    auto data = VocabularyData::Read(*file_);
    ASSERT_TRUE(data.has_value()) << data.error().ToString();
    EXPECT_EQ(data->pre, "qwen2");
    data->pre = GetParam();
    auto tokenizer = Tokenizer::FromVocabulary(*data);
    ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().ToString();
    tokenizer_.emplace(std::move(*tokenizer));
    golden_ =
        nlohmann::json::parse(ReadAll(kRoot + "/tests/golden/tokenizer/" + GetParam() + ".json"));
  }

  static std::string Text(const nlohmann::json& vector) {
    return vector.contains("file") ? ReadAll(kRoot + "/" + vector["file"].get<std::string>())
                                   : vector["text"].get<std::string>();
  }

  std::optional<GgufFile> file_;
  std::optional<Tokenizer> tokenizer_;
  nlohmann::json golden_;
};

TEST_P(TokenizerGolden, Pieces) {
  const PreTokenizer pre_tokenizer(*FindPreTokenizer(GetParam()));
  size_t checked = 0;
  for (const auto& vector : golden_["cases"]) {
    if (vector.contains("pieces")) {
      const std::string text = Text(vector);
      std::vector<std::string_view> pieces;
      pre_tokenizer.Split(text, &pieces);
      EXPECT_EQ(std::vector<std::string>(pieces.begin(), pieces.end()),
                vector["pieces"].get<std::vector<std::string>>())
          << vector["name"];
      ++checked;
    }
  }
  EXPECT_GE(checked, 100u);
}

TEST_P(TokenizerGolden, Tokens) {
  ASSERT_GE(golden_["cases"].size(), 100u);
  for (const auto& vector : golden_["cases"]) {
    const bool parse_special = vector.value("parse_special", false);
    const std::string text = Text(vector);
    const std::vector<TokenId> tokens = tokenizer_->Encode(text, {.parse_special = parse_special});
    EXPECT_EQ(tokens, vector["tokens"].get<std::vector<TokenId>>()) << vector["name"];
    EXPECT_EQ(tokenizer_->Decode(tokens, parse_special), text) << vector["name"];
  }
}

INSTANTIATE_TEST_SUITE_P(AllFamilies, TokenizerGolden,
                         ::testing::Values("qwen2", "qwen35", "llama-bpe", "gpt-2", "default"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(TokenizerFromGguf, ReadsTheBundledModel) {
  const auto file = GgufFile::Open(kRoot + "/models/harbour-2.8m-q8_0.gguf");
  ASSERT_TRUE(file.has_value()) << file.error().ToString();
  const auto tokenizer = Tokenizer::FromGguf(*file);
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().ToString();
  EXPECT_EQ(tokenizer->vocab_size(), 514u);
  EXPECT_EQ(tokenizer->bos(), 512);
  EXPECT_EQ(tokenizer->eos(), 512);
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(512));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(513));
  EXPECT_EQ(tokenizer->TokenBytes(512, /*special=*/true), "<|endoftext|>");
  // add_bos_token is false in the file; "h e" is its first merge.
  EXPECT_EQ(tokenizer->Encode("the"), (std::vector<TokenId>{'t', 256}));
}

}  // namespace
}  // namespace tessera
