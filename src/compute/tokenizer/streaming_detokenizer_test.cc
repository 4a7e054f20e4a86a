// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "base/random.h"
#include "base/utf8.h"
#include "compute/tokenizer/test_vocabulary.h"
#include "compute/tokenizer/tokenizer.h"

namespace tessera {
namespace {

using testing::TestVocabulary;

bool IsValid(std::string_view text) { return ValidUtf8Prefix(text) == text.size(); }

// A second, dumber decoder: at each place the longest byte string that begins some valid sequence.
std::string SlowReplace(const std::string& bytes) {
  std::string text;
  for (size_t at = 0; at < bytes.size();) {
    size_t invalid = 1;
    size_t valid = 0;
    for (size_t n = 1; n <= 4 && at + n <= bytes.size(); ++n) {
      const std::string part = bytes.substr(at, n);
      if (IsValid(part)) {
        valid = n;
        break;
      }
      // Does any tail complete it? The extremes of the continuation range suffice.
      for (const char* tail : {"\x80", "\xBF", "\x80\x80", "\xBF\xBF", "\x80\x80\x80",
                               "\xBF\xBF\xBF", "\x90\x80\x80", "\xA0\x80"}) {
        if (FirstUtf8Part(part + tail).kind == Utf8Part::Kind::kValid && IsValid(part + tail)) {
          invalid = n;
        }
      }
    }
    text += valid > 0 ? bytes.substr(at, valid) : std::string(kReplacementCharacter);
    at += valid > 0 ? valid : invalid;
  }
  return text;
}

TEST(StreamingDetokenizer, YieldsValidTextEqualToDecodeWithInvalidPartsReplaced) {
  TestVocabulary words;
  words.AddMerge("\xE4", "\xB8");  // ends inside a character
  words.AddMerge("\xB8", "\xAD");  // begins inside one
  words.AddMerge("\xF0\x9F", "\x98");
  words.AddMerge("a", "\xC3");
  words.AddBytes("\xE4\xB8\xAD\xE4");
  words.AddToken("<|x|>", TokenKind::kControl);
  words.AddToken("\xC3\xA9!", TokenKind::kUserDefined);
  const Tokenizer tokenizer = words.Make();
  Random random(17);
  for (int round = 0; round < 20'000; ++round) {
    const bool special = random.Below(2) == 1;
    std::vector<TokenId> tokens(random.Below(12));
    for (TokenId& token : tokens) {
      // Half of them from 0x80 up, where sequences begin and break; sometimes out of range.
      token = static_cast<TokenId>(random.Below(2) == 1 ? 0xC0 + random.Below(75)
                                                        : random.Below(tokenizer.vocab_size() + 3));
    }
    StreamingDetokenizer stream(&tokenizer, special);
    std::string text;
    for (const TokenId token : tokens) {
      const std::string chunk = stream.Append(token);
      ASSERT_TRUE(IsValid(chunk));
      text += chunk;
    }
    const std::string last = stream.Finish();
    ASSERT_TRUE(IsValid(last));
    ASSERT_EQ(text + last, SlowReplace(tokenizer.Decode(tokens, special))) << "round " << round;
    ASSERT_EQ(stream.Finish(), "");
  }
}

TEST(StreamingDetokenizer, HoldsBackOnlyAnUnfinishedSequence) {
  TestVocabulary words;
  const Tokenizer tokenizer = words.Make();
  StreamingDetokenizer stream(&tokenizer);
  EXPECT_EQ(stream.Append('a'), "a");
  EXPECT_EQ(stream.Append(0xE4), "");
  EXPECT_EQ(stream.Append(0xB8), "");
  EXPECT_EQ(stream.Append(0xAD), "\xE4\xB8\xAD");
  EXPECT_EQ(stream.Append(0xE4), "");
  EXPECT_EQ(stream.Append('b'),
            "\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(stream.Append(0xFF), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.Append(0xF0), "");
  EXPECT_EQ(stream.Append(0x9F), "");
  EXPECT_EQ(stream.Finish(), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace tessera
