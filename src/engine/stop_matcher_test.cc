// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "base/utf8.h"

namespace tessera {
namespace {

struct Outcome {
  std::string text;
  bool matched = false;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// The whole text at once: the first end at which any stop ends, the longest that ends there.
Outcome SlowMatch(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

Outcome Stream(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  StopMatcher matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    outcome.text += matcher.Append(piece);
    if (matcher.matched()) return {outcome.text, true};
  }
  outcome.text += matcher.Finish();
  return outcome;
}

TEST(StopMatcher, ResultDoesNotDependOnHowTheTextIsCut) {
  // A small alphabet with characters of 1 to 4 bytes makes overlapping prefixes likely.
  const std::vector<std::string> alphabet = {"a", "b", "\n", "é", "あ", "😀"};
  Random random(3);
  for (int i = 0; i < 20000; ++i) {
    const auto random_text = [&](uint64_t most) {
      std::string text;
      for (uint64_t n = 1 + random.Below(most); n > 0; --n) {
        text += alphabet[random.Below(random.Below(2) == 0 ? 2 : alphabet.size())];
      }
      return text;
    };
    std::vector<std::string> stops;
    for (uint64_t n = random.Below(4); n > 0; --n) stops.push_back(random_text(5));
    std::vector<std::string> pieces;
    std::string text;
    for (uint64_t n = random.Below(8); n > 0; --n) {
      pieces.push_back(random.Below(5) == 0 ? "" : random_text(4));
      text += pieces.back();
    }
    ASSERT_EQ(Stream(pieces, stops), SlowMatch(text, stops)) << i;
  }
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"\nQ:", "END"});
  EXPECT_EQ(matcher.Append("yes"), "yes");
  EXPECT_EQ(matcher.Append(" E"), " ");
  EXPECT_EQ(matcher.Append("N"), "");
  EXPECT_EQ(matcher.Append("E"), "EN");  // the last E may begin END anew
  EXPECT_EQ(matcher.Append(".\n"), "E.");
  EXPECT_EQ(matcher.Append("Q"), "");
  EXPECT_FALSE(matcher.matched());
  EXPECT_EQ(matcher.Append(": more"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.Append("after"), "");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcher, GivesBackWhatWasHeldWhenNoStopCame) {
  StopMatcher matcher({"abcd"});
  EXPECT_EQ(matcher.Append("xabc"), "x");
  EXPECT_EQ(matcher.Finish(), "abc");
}

TEST(StopMatcher, NeverCutsACharacter) {
  StopMatcher matcher({"あいう", "ああ"});
  for (const char* piece : {"いあ", "い", "あ", "い", "x"}) {
    const std::string text = matcher.Append(piece);
    EXPECT_EQ(ValidUtf8Prefix(text), text.size());
  }
}

}  // namespace
}  // namespace tessera
