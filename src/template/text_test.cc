// SPDX-License-Identifier: Apache-2.0
#include "template/text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tessera::jinja {
namespace {

using Words = std::vector<std::string_view>;

TEST(TemplateText, CountsCharactersNotBytes) {
  EXPECT_EQ(CountCharacters("aé€😀"), 4u);
  EXPECT_EQ(CharacterOffsets("aé€"), (std::vector<size_t>{0, 1, 3, 6}));
}

TEST(TemplateText, CountsBytesThatAreNotUtf8OneByOne) {
  EXPECT_EQ(CountCharacters("\xFF\xC3"), 2u);
  EXPECT_EQ(CountCharacters("\xE2\x82"), 2u);      // the beginning of a character
  EXPECT_EQ(CountCharacters("\x80\x80\x80"), 3u);  // its middle
  EXPECT_EQ(CountCharacters("\xE0\x80\x80"), 3u);  // overlong
  EXPECT_EQ(CountCharacters("\xED\xA0\x80"), 3u);  // a surrogate
}

TEST(TemplateText, StripsWhiteSpaceOfUnicode) {
  EXPECT_EQ(Strip("\u3000 a\u00A0\n", Side::kBoth), "a");
  EXPECT_EQ(Strip("\u3000", Side::kRight), "");
  EXPECT_EQ(Strip("\x80\x80 ", Side::kRight), "\x80\x80");
}

TEST(TemplateText, StripsAnyOfTheCharactersGiven) {
  EXPECT_EQ(Strip("éaéb", Side::kLeft, "aé"), "b");
  // é is C3 A9 and ã is C3 A3: a shared byte is no shared character.
  EXPECT_EQ(Strip("ãxã", Side::kBoth, "é"), "ãxã");
}

// The twin walks the text and looks for the separator at each place.
Words SplitSlowly(std::string_view text, std::string_view separator, size_t splits_max) {
  Words pieces;
  size_t begin = 0;
  for (size_t at = 0; at + separator.size() <= text.size() && pieces.size() < splits_max;) {
    if (text.substr(at, separator.size()) == separator) {
      pieces.push_back(text.substr(begin, at - begin));
      at += separator.size();
      begin = at;
    } else {
      ++at;
    }
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

Words SplitSlowlyFromRight(std::string_view text, std::string_view separator, size_t splits_max) {
  Words pieces;
  size_t end = text.size();
  for (size_t at = text.size(); at >= separator.size() && pieces.size() < splits_max;) {
    if (text.substr(at - separator.size(), separator.size()) == separator) {
      pieces.push_back(text.substr(at, end - at));
      at -= separator.size();
      end = at;
    } else {
      --at;
    }
  }
  pieces.push_back(text.substr(0, end));
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

TEST(TemplateText, SplitsAsTheSlowTwin) {
  uint64_t state = 1;
  const auto draw = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  for (int round = 0; round < 3000; ++round) {
    std::string text(draw(12), 'a');
    for (char& c : text) {
      c = draw(2) == 0 ? 'a' : 'b';
    }
    const std::string separator = std::vector<std::string>{"a", "aa", "ab", "aba"}[draw(4)];
    const size_t splits_max = draw(3) == 0 ? std::string::npos : draw(4);
    EXPECT_EQ(Split(text, separator, splits_max, false), SplitSlowly(text, separator, splits_max))
        << text << " by " << separator << " " << splits_max;
    EXPECT_EQ(Split(text, separator, splits_max, true),
              SplitSlowlyFromRight(text, separator, splits_max))
        << text << " by " << separator << " " << splits_max;
  }
}

TEST(TemplateText, SplitsWordsFromEitherEnd) {
  EXPECT_EQ(SplitWords(" a  b c ", std::string::npos, false), (Words{"a", "b", "c"}));
  EXPECT_EQ(SplitWords(" a  b c ", std::string::npos, true), (Words{"a", "b", "c"}));
  EXPECT_EQ(SplitWords(" a  b c ", 1, false), (Words{"a", "b c "}));
  EXPECT_EQ(SplitWords(" a  b c ", 1, true), (Words{" a  b", "c"}));
  EXPECT_EQ(SplitWords(" \t ", 1, false), Words());
  EXPECT_EQ(SplitWords("a b", 0, false), Words{"a b"});
}

TEST(TemplateText, SplitsLinesAtEveryEndOfLine) {
  EXPECT_EQ(SplitLines("a\r\nb\u2028c\n\nd", false), (Words{"a", "b", "c", "", "d"}));
  EXPECT_EQ(SplitLines("a\r\nb\n", true), (Words{"a\r\n", "b\n"}));
}

}  // namespace
}  // namespace tessera::jinja
