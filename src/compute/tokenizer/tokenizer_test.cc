// SPDX-License-Identifier: Apache-2.0
#include "compute/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

#include "base/random.h"
#include "compute/tokenizer/test_vocabulary.h"

namespace tessera {
namespace {

using testing::TestVocabulary;
using Tokens = std::vector<TokenId>;

TEST(Tokenizer, ControlTokensNeedParseSpecialAndUserDefinedOnesDoNot) {
  TestVocabulary words;
  const TokenId control = words.AddToken("<|c|>", TokenKind::kControl);
  const TokenId user = words.AddToken("<u>", TokenKind::kUserDefined);
  const TokenId unknown = words.AddToken("?!", TokenKind::kUnknown);
  const Tokenizer tokenizer = words.Make();
  EXPECT_EQ(tokenizer.Encode("a<u>?!<|c|>"),
            (Tokens{'a', user, '?', '!', '<', '|', 'c', '|', '>'}));
  EXPECT_EQ(tokenizer.Encode("a<u>?!<|c|>", {.parse_special = true}),
            (Tokens{'a', user, unknown, control}));
}

TEST(Tokenizer, TextNeverBecomesAControlTokenByMergingOrAsAWhole) {
  TestVocabulary words;
  words.AddMerge("E", "O", /*add_token=*/false);
  words.AddToken("EO", TokenKind::kControl);
  for (const char* pre : {"qwen2", "llama-bpe"}) {
    EXPECT_EQ(words.Make(pre).Encode("EO"), (Tokens{'E', 'O'})) << pre;
  }
}

TEST(Tokenizer, BosAndEosAsTheFileOrElseTheFamilySays) {
  TestVocabulary words;
  const TokenId bos = words.AddToken("<s>", TokenKind::kControl);
  const TokenId eos = words.AddToken("<e>", TokenKind::kControl);
  const auto encode = [&](std::string_view pre, std::optional<bool> add_bos,
                          std::optional<bool> add_eos, bool add_special) {
    VocabularyData data = words.Data(pre);
    data.bos = static_cast<uint64_t>(bos);
    data.eos = static_cast<uint64_t>(eos);
    data.add_bos = add_bos;
    data.add_eos = add_eos;
    return Tokenizer::FromVocabulary(data)->Encode("a", {.add_special = add_special});
  };
  EXPECT_EQ(encode("falcon-h1", {}, {}, true), (Tokens{bos, 'a'}));
  EXPECT_EQ(encode("falcon-h1", false, {}, true), (Tokens{'a'}));
  EXPECT_EQ(encode("falcon-h1", {}, {}, false), (Tokens{'a'}));
  EXPECT_EQ(encode("qwen2", {}, {}, true), (Tokens{'a'}));
  EXPECT_EQ(encode("qwen2", true, true, true), (Tokens{bos, 'a', eos}));
  EXPECT_EQ(encode("qwen2", true, true, false), (Tokens{'a'}));
}

TEST(Tokenizer, IgnoreMergesTakesAWholePieceThatNoMergeReaches) {
  TestVocabulary words;
  const TokenId word = words.AddBytes(" word");
  EXPECT_EQ(words.Make("llama-bpe").Encode(" word"), (Tokens{word}));
  EXPECT_EQ(words.Make("qwen2").Encode(" word"), (Tokens{' ', 'w', 'o', 'r', 'd'}));
}

TEST(Tokenizer, AFileWithoutPreGetsTheDefault) {
  TestVocabulary words;
  const TokenId digits = words.AddBytes("23");
  words.AddMerge("2", "3", /*add_token=*/false);
  VocabularyData data = words.Data("default");
  const auto named = Tokenizer::FromVocabulary(data);
  data.pre.reset();
  const auto absent = Tokenizer::FromVocabulary(data);
  ASSERT_TRUE(absent.has_value());
  EXPECT_EQ(absent->Encode("123 23"), (Tokens{'1', digits, ' ', digits}));
  EXPECT_EQ(absent->Encode("12 3"), named->Encode("12 3"));
}

TEST(Tokenizer, BytesOfATokenDependOnItsKind) {
  TestVocabulary words;
  const TokenId normal = words.AddBytes(" \n\xFF");
  const TokenId control = words.AddToken("<c>", TokenKind::kControl);
  const TokenId user = words.AddToken("\xC4\xA0u", TokenKind::kUserDefined);  // text as it is
  const TokenId unused = words.AddToken("<x>", TokenKind::kUnused);
  const TokenId foreign = words.AddToken("\xE4\xB8\xAD", TokenKind::kNormal);
  const Tokenizer tokenizer = words.Make();
  EXPECT_EQ(tokenizer.TokenBytes(normal), " \n\xFF");
  EXPECT_EQ(tokenizer.TokenBytes(control), "");
  EXPECT_EQ(tokenizer.TokenBytes(control, /*special=*/true), "<c>");
  EXPECT_EQ(tokenizer.TokenBytes(user), "\xC4\xA0u");
  EXPECT_EQ(tokenizer.TokenBytes(unused, /*special=*/true), "");
  EXPECT_EQ(tokenizer.TokenBytes(foreign), "\xE4\xB8\xAD");
  EXPECT_EQ(tokenizer.TokenBytes(-1, true), "");
  EXPECT_EQ(tokenizer.TokenBytes(100'000, true), "");
  EXPECT_EQ(tokenizer.vocab_size(), 261u);
}

TEST(Tokenizer, AnyBytesComeBack) {
  TestVocabulary words;
  words.AddMerge("\xE4", "\xB8");
  words.AddMerge(" ", " ");
  words.AddMerge("\xFF", "\xFF");
  words.AddToken("<|c|>", TokenKind::kControl);
  words.AddToken("<u>", TokenKind::kUserDefined);
  Random random(23);
  for (const char* pre : {"qwen2", "llama-bpe", "gpt-2", "default"}) {
    const Tokenizer tokenizer = words.Make(pre);
    for (int round = 0; round < 1000; ++round) {
      std::string text;
      for (uint64_t n = random.Below(20); n > 0; --n) {
        const std::string_view parts[] = {"<u>", "<|c|>", "\xE4\xB8\xAD", "  ", "\xFF\xFF", "\n"};
        text += random.Below(2) == 1 ? std::string(parts[random.Below(std::size(parts))])
                                     : std::string(1, static_cast<char>(random.Below(256)));
      }
      const Tokens plain = tokenizer.Encode(text);
      ASSERT_EQ(tokenizer.Decode(plain), text);
      const Tokens parsed = tokenizer.Encode(text, {.parse_special = true});
      ASSERT_EQ(tokenizer.Decode(parsed, /*special=*/true), text);
    }
  }
}

TEST(Tokenizer, LongRunsEncodeInAMoment) {
  TestVocabulary words;
  for (const char c : {'a', ' ', '='}) {
    for (size_t n = 1; n <= 16; n *= 2) {
      words.AddMerge(std::string(n, c), std::string(n, c));
    }
  }
  const Tokenizer tokenizer = words.Make("falcon-h1");
  for (const char c : {'a', ' ', '=', '\n', '\xFF'}) {
    const std::string text(200'000, c);
    EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text)), text);
  }
}

TEST(Tokenizer, ManyThreadsEncodeAtOnce) {
  TestVocabulary words;
  words.AddMerge("a", "b");
  const Tokenizer tokenizer = words.Make();
  const std::string text = "ab ab  12\r\nab's \xE4\xB8\xAD";
  const Tokens expected = tokenizer.Encode(text);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (int& count : wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        count += tokenizer.Encode(text) != expected;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, std::vector<int>(4));
}

}  // namespace
}  // namespace tessera
