// SPDX-License-Identifier: Apache-2.0
#include "compute/tokenizer/vocabulary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "compute/tokenizer/byte_alphabet.h"
#include "compute/tokenizer/test_vocabulary.h"

namespace tessera {
namespace {

using testing::TestVocabulary;

void ExpectBadFile(const VocabularyData& data, std::string_view message) {
  const auto tokenizer = Tokenizer::FromVocabulary(data);
  ASSERT_FALSE(tokenizer.has_value()) << message;
  EXPECT_EQ(tokenizer.error().code(), StatusCode::kBadFile);
  EXPECT_NE(tokenizer.error().message().find(message), std::string::npos)
      << tokenizer.error().message();
  EXPECT_EQ(tokenizer.error().message().find('\n'), std::string::npos);
}

TEST(ByteAlphabet, IsABijection) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    all.push_back(static_cast<char>(byte));
  }
  EXPECT_EQ(BytesFromAlphabet(AlphabetFromBytes(all)), all);
  EXPECT_EQ(AlphabetFromBytes(" \n"), "\xC4\xA0\xC4\x8A");  // Ġ Ċ
  EXPECT_EQ(AlphabetFromBytes("\xAD"), "\xC5\x83");         // U+0143, the last
  EXPECT_EQ(AlphabetFromBytes("a~"), "a~");
}

TEST(ByteAlphabet, RefusesOtherCharacters) {
  for (const char* text : {" ", "\n", "\xC5\x84", "\xC2\xAD", "\xE4\xB8\xAD", "\xC4", "\xFF"}) {
    EXPECT_FALSE(BytesFromAlphabet(text).has_value()) << text;
  }
}

TEST(Vocabulary, OtherModelsAreNamed) {
  TestVocabulary words;
  for (const char* model : {"llama", "bert", "none", ""}) {
    VocabularyData data = words.Data();
    data.model = model;
    ExpectBadFile(data, "tokenizer.ggml.model: expected gpt2 (byte-level BPE), found '" +
                            std::string(model) + "'");
  }
}

TEST(Vocabulary, AnUnknownPreTokenizerIsNamedWithTheKnown) {
  TestVocabulary words;
  ExpectBadFile(words.Data("tek\nken"), "tokenizer.ggml.pre: expected one of default, gpt-2");
  ExpectBadFile(words.Data("tekken"), "found 'tekken'");
}

TEST(Vocabulary, DamagedArraysAreNamed) {
  TestVocabulary words;
  VocabularyData data = words.Data();
  data.token_types->pop_back();
  ExpectBadFile(data, "tokenizer.ggml.token_type: expected 256 elements, found 255");
  data = words.Data();
  (*data.token_types)[7] = 9;
  ExpectBadFile(data, "tokenizer.ggml.token_type[7]: expected 0 to 6, found 9");
  data = words.Data();
  data.tokens = {};
  ExpectBadFile(data, "tokenizer.ggml.tokens: expected at least one token");
  words.AddBytes("a");
  ExpectBadFile(words.Data(), "tokenizer.ggml.tokens: expected distinct tokens, found 'a' twice");
}

TEST(Vocabulary, ALongSpecialTokenIsRefusedWithItsIdAndLength) {
  for (const TokenKind kind : {TokenKind::kControl, TokenKind::kUserDefined, TokenKind::kUnknown}) {
    TestVocabulary words;
    words.AddToken(std::string(1024, '<'), kind);
    EXPECT_TRUE(Tokenizer::FromVocabulary(words.Data()).has_value());
    words.AddToken(std::string(1025, '<'), kind);
    ExpectBadFile(words.Data(),
                  "tokenizer.ggml.tokens[257]: expected at most 1024 bytes in a special token, "
                  "found 1025");
  }
  TestVocabulary words;  // of another kind it costs nothing but its bytes
  words.AddToken(std::string(5000, 'a'), TokenKind::kNormal);
  EXPECT_TRUE(Tokenizer::FromVocabulary(words.Data()).has_value());
}

TEST(Vocabulary, AbsentTypesAreNormalAndEmptyTextsAreTolerated) {
  TestVocabulary words;
  words.AddToken("", TokenKind::kNormal);
  words.AddToken("", TokenKind::kControl);
  VocabularyData data = words.Data();
  data.token_types.reset();
  const auto tokenizer = Tokenizer::FromVocabulary(data);
  ASSERT_TRUE(tokenizer.has_value());
  EXPECT_EQ(tokenizer->Encode("ab"), (std::vector<TokenId>{'a', 'b'}));
}

TEST(Vocabulary, EndOfGenerationIsKnownByIdAndByText) {
  TestVocabulary words;
  const TokenId end = words.AddToken("<|im_end|>", TokenKind::kNormal);  // mislabelled
  VocabularyData data = words.Data();
  data.eos = 1;
  data.eot = 2;
  data.eom = 3;
  const auto vocabulary = Vocabulary::Create(data);
  ASSERT_TRUE(vocabulary.has_value());
  for (const TokenId token : {1, 2, 3, end}) {
    EXPECT_TRUE(vocabulary->IsEndOfGeneration(token)) << token;
  }
  EXPECT_TRUE(std::ranges::equal(vocabulary->ends(), std::vector<TokenId>{1, 2, 3, end}));
  EXPECT_FALSE(vocabulary->IsEndOfGeneration(4));
  EXPECT_FALSE(vocabulary->IsEndOfGeneration(-1));
  EXPECT_EQ(vocabulary->kind(end), TokenKind::kControl);
}

TEST(Vocabulary, IdsOutsideTheVocabularyAreIgnored) {
  TestVocabulary words;
  VocabularyData data = words.Data();
  data.bos = 256;
  data.eos = UINT64_MAX;
  data.add_bos = true;
  data.add_eos = true;
  const auto tokenizer = Tokenizer::FromVocabulary(data);
  ASSERT_TRUE(tokenizer.has_value());
  EXPECT_EQ(tokenizer->bos(), std::nullopt);
  EXPECT_EQ(tokenizer->eos(), std::nullopt);
  EXPECT_EQ(tokenizer->Encode("a"), (std::vector<TokenId>{'a'}));
}

TEST(Vocabulary, OnlyNormalTokensAreFoundByBytes) {
  TestVocabulary words;
  const TokenId normal = words.AddBytes("ab");
  words.AddToken("cd", TokenKind::kControl);
  words.AddToken("ef", TokenKind::kUnused);
  words.AddToken("\xE4\xB8\xAD", TokenKind::kNormal);  // not spelled in the alphabet
  const auto vocabulary = Vocabulary::Create(words.Data());
  ASSERT_TRUE(vocabulary.has_value());
  EXPECT_EQ(vocabulary->FindBytes("ab"), normal);
  EXPECT_EQ(vocabulary->FindBytes("cd"), std::nullopt);
  EXPECT_EQ(vocabulary->FindBytes("ef"), std::nullopt);
  EXPECT_EQ(vocabulary->FindBytes("\xE4\xB8\xAD"), std::nullopt);
  EXPECT_EQ(vocabulary->FindBytes(""), std::nullopt);
}

}  // namespace
}  // namespace tessera
