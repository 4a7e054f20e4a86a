// SPDX-License-Identifier: Apache-2.0
#include "compute/tokenizer/special_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/random.h"

namespace tessera {
namespace {

struct Fragment {
  std::string text;
  TokenId token = -1;  // or text
  bool operator==(const Fragment&) const = default;
};

// The rule, literally: token by token, cut every fragment.
std::vector<Fragment> SlowCut(const std::string& text, std::vector<SpecialToken> tokens) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const SpecialToken& a, const SpecialToken& b) {
    return a.text.size() > b.text.size();
  });
  std::vector<Fragment> fragments = {{text}};
  for (const SpecialToken& special : tokens) {
    std::vector<Fragment> next;
    for (const Fragment& fragment : fragments) {
      size_t done = 0;
      for (size_t at;
           fragment.token < 0 && (at = fragment.text.find(special.text, done)) != std::string::npos;
           done = at + special.text.size()) {
        next.push_back({fragment.text.substr(done, at - done)});
        next.push_back({std::string(special.text), special.token});
      }
      next.push_back({fragment.text.substr(done), fragment.token});
    }
    fragments.swap(next);
  }
  std::erase_if(fragments, [](const Fragment& fragment) { return fragment.text.empty(); });
  return fragments;
}

std::vector<Fragment> Cut(const std::string& text, const SpecialTokens& tokens) {
  std::vector<Fragment> fragments;
  size_t done = 0;
  for (const SpecialTokens::Match& match : tokens.FindIn(text)) {
    fragments.push_back({text.substr(done, match.begin - done)});
    fragments.push_back({text.substr(match.begin, match.size), match.token});
    done = match.begin + match.size;
  }
  fragments.push_back({text.substr(done)});
  std::erase_if(fragments, [](const Fragment& fragment) { return fragment.text.empty(); });
  return fragments;
}

TEST(SpecialTokens, AgreesWithCuttingTokenByToken) {
  Random random(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<std::string> texts;
    while (texts.size() < 8) {
      std::string text(random.Below(5) + 1, ' ');
      for (char& c : text) {
        c = "ab<"[random.Below(3)];
      }
      if (std::find(texts.begin(), texts.end(), text) == texts.end()) {
        texts.push_back(text);
      }
    }
    std::vector<SpecialToken> tokens;
    for (size_t i = 0; i < texts.size(); ++i) {
      tokens.push_back({texts[i], static_cast<TokenId>(i)});
    }
    const SpecialTokens special(tokens);
    for (int i = 0; i < 20; ++i) {
      std::string text(random.Below(30), ' ');
      for (char& c : text) {
        c = "abx<"[random.Below(4)];
      }
      ASSERT_EQ(Cut(text, special), SlowCut(text, tokens)) << "round " << round << ": " << text;
    }
  }
}

TEST(SpecialTokens, TheLongerTokenWinsEvenFromTheRight) {
  const std::vector<SpecialToken> tokens = {{"ab", 1}, {"bcd", 2}};
  EXPECT_EQ(Cut("abcd", SpecialTokens(tokens)), (std::vector<Fragment>{{"a"}, {"bcd", 2}}));
}

TEST(SpecialTokens, ABlockedTokenFallsBackToAShorterOne) {
  const std::vector<SpecialToken> tokens = {{"ab", 1}, {"abc", 2}, {"cdef", 3}};
  EXPECT_EQ(Cut("abcdef", SpecialTokens(tokens)), (std::vector<Fragment>{{"ab", 1}, {"cdef", 3}}));
}

TEST(SpecialTokens, NoTokensNoMatches) {
  EXPECT_TRUE(SpecialTokens({}).FindIn("anything").empty());
}

TEST(SpecialTokens, RunsOfSpacesAndThousandsOfTokensStayCheap) {
  std::vector<std::string> texts;
  for (size_t n = 2; n <= 24; ++n) {
    texts.emplace_back(n, ' ');
  }
  for (int i = 0; i < 5000; ++i) {
    texts.push_back("<|reserved_" + std::to_string(i) + "|>");
  }
  std::vector<SpecialToken> tokens;
  for (size_t i = 0; i < texts.size(); ++i) {
    tokens.push_back({texts[i], static_cast<TokenId>(i)});
  }
  const SpecialTokens special(tokens);
  EXPECT_EQ(special.FindIn(std::string(240'001, ' ')).size(), 10'000u);
  std::string text;
  for (const std::string& t : texts) {
    text += t + "x";
  }
  EXPECT_EQ(special.FindIn(text).size(), texts.size());
}

}  // namespace
}  // namespace tessera
