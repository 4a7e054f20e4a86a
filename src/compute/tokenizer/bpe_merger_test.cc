// SPDX-License-Identifier: Apache-2.0
#include "compute/tokenizer/bpe_merger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/random.h"
#include "compute/tokenizer/test_vocabulary.h"

namespace tessera {
namespace {

using testing::TestVocabulary;

// The definition, literally: look at all pairs, merge the best, begin again.
std::vector<std::string> SlowMerge(std::string_view piece,
                                   const std::vector<TestVocabulary::BytesPair>& merges) {
  std::vector<std::string> parts;
  for (const char c : piece) {
    parts.emplace_back(1, c);
  }
  while (true) {
    size_t best = merges.size();
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const TestVocabulary::BytesPair pair(parts[i], parts[i + 1]);
      const size_t rank =
          static_cast<size_t>(std::find(merges.begin(), merges.end(), pair) - merges.begin());
      if (rank < best) {
        best = rank;
        best_at = i;
      }
    }
    if (best == merges.size()) {
      return parts;
    }
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + static_cast<ptrdiff_t>(best_at) + 1);
  }
}

std::vector<TokenId> Merge(TestVocabulary* words, std::string_view piece) {
  const VocabularyData data = words->Data();
  const auto vocabulary = Vocabulary::Create(data);
  const auto merger = BpeMerger::Create(*vocabulary, data.merges);
  EXPECT_TRUE(merger.has_value()) << merger.error().ToString();
  BpeMerger::Scratch scratch;
  std::vector<TokenId> tokens;
  merger->Merge(piece, &scratch, &tokens);
  return tokens;
}

TEST(BpeMerger, AgreesWithTheDefinition) {
  Random random(11);
  for (int round = 0; round < 60; ++round) {
    TestVocabulary words;
    std::vector<TestVocabulary::BytesPair> merges;
    std::vector<std::string> known = {"a", "b", "c", " "};
    for (int i = 0; i < 25; ++i) {
      const TestVocabulary::BytesPair pair(known[random.Below(known.size())],
                                           known[random.Below(known.size())]);
      const std::string merged = pair.first + pair.second;
      const bool is_new = std::find(known.begin(), known.end(), merged) == known.end();
      // Two merges may give one string, and a pair may be listed twice: the first counts.
      words.AddMerge(pair.first, pair.second, is_new);
      merges.push_back(pair);
      if (is_new) {
        known.push_back(merged);
      }
    }
    const VocabularyData data = words.Data();
    const auto vocabulary = Vocabulary::Create(data);
    ASSERT_TRUE(vocabulary.has_value());
    const auto merger = BpeMerger::Create(*vocabulary, data.merges);
    ASSERT_TRUE(merger.has_value());
    BpeMerger::Scratch scratch;
    for (int text = 0; text < 50; ++text) {
      std::string piece(random.Below(40), ' ');
      for (char& c : piece) {
        c = "abc "[random.Below(4)];
      }
      std::vector<TokenId> expected;
      for (const std::string& part : SlowMerge(piece, merges)) {
        expected.push_back(vocabulary->FindBytes(part).value());
      }
      std::vector<TokenId> tokens;
      merger->Merge(piece, &scratch, &tokens);
      ASSERT_EQ(tokens, expected) << "round " << round << ": " << piece;
    }
  }
}

TEST(BpeMerger, TiesGoLeft) {
  TestVocabulary words;
  words.AddMerge("a", "a");
  EXPECT_EQ(Merge(&words, "aaaaa"), (std::vector<TokenId>{256, 256, 'a'}));
}

TEST(BpeMerger, TheSeparatorIsTheFirstSpaceBehindTheFirstByte) {
  TestVocabulary words;
  const TokenId merged = words.AddBytes("ab");
  words.merges().push_back("a b c");  // left "a", right "b c": a space is not in the alphabet
  words.merges().push_back("a b");
  EXPECT_EQ(Merge(&words, "ab"), (std::vector<TokenId>{merged}));
}

TEST(BpeMerger, AMergeMayGoThroughAStringThatIsNoToken) {
  TestVocabulary words;
  words.AddMerge("a", "b", /*add_token=*/false);
  words.AddMerge("ab", "c");
  EXPECT_EQ(Merge(&words, "abc"), (std::vector<TokenId>{256}));
  EXPECT_EQ(Merge(&words, "abd"), (std::vector<TokenId>{'a', 'b', 'd'}));
}

TEST(BpeMerger, AByteWithoutATokenIsDropped) {
  TestVocabulary words;
  words.tokens()['b'] = "<unused-b>";
  EXPECT_EQ(Merge(&words, "abc"), (std::vector<TokenId>{'a', 'c'}));
}

TEST(BpeMerger, AMergeThatIsNotTwoStringsIsRefused) {
  for (const char* bad : {"ab", "", " ab", "ab ", " "}) {
    TestVocabulary words;
    words.AddMerge("a", "b");
    words.merges().push_back(bad);
    const VocabularyData data = words.Data();
    const auto merger = BpeMerger::Create(*Vocabulary::Create(data), data.merges);
    ASSERT_FALSE(merger.has_value()) << bad;
    EXPECT_EQ(merger.error().code(), StatusCode::kBadFile);
    EXPECT_NE(merger.error().message().find("tokenizer.ggml.merges[1]"), std::string::npos);
  }
}

// Quadratic time would be 10^12 steps.
TEST(BpeMerger, AMillionEqualBytesMergeInNLogN) {
  TestVocabulary words;
  for (size_t n = 1; n <= 64; n *= 2) {
    words.AddMerge(std::string(n, 'a'), std::string(n, 'a'));
  }
  const std::vector<TokenId> tokens = Merge(&words, std::string(1 << 20, 'a'));
  EXPECT_EQ(tokens, std::vector<TokenId>((1 << 20) / 128, 256 + 6));
}

}  // namespace
}  // namespace tessera
