// SPDX-License-Identifier: Apache-2.0
#include "compute/tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/random.h"

namespace tessera {
namespace {

std::vector<std::string> Split(std::string_view pre, std::string_view text) {
  const PreTokenizerRow* const row = FindPreTokenizer(pre);
  EXPECT_NE(row, nullptr) << pre;
  const PreTokenizer pre_tokenizer(*row);
  std::vector<std::string_view> pieces;
  pre_tokenizer.Split(text, &pieces);
  return {pieces.begin(), pieces.end()};
}

using Strings = std::vector<std::string>;

// ------------------------------------------------------------------------------------------------
// The slow twin: the rules as prose, over characters whose class is known here.

enum class Class { kLetter, kMark, kNumber, kSpace, kNewline, kOther };

struct Character {
  const char* text;
  Class kind;
};

constexpr Character kCharacters[] = {
    {"a", Class::kLetter},
    {"s", Class::kLetter},
    {"L", Class::kLetter},
    {"l", Class::kLetter},
    {"R", Class::kLetter},
    {"e", Class::kLetter},
    {"\xC3\xA9", Class::kLetter},      // é
    {"\xE4\xB8\xAD", Class::kLetter},  // 中
    {"\xC5\xBF", Class::kLetter},      // long s: folds to s, and must not
    {"\xCC\x81", Class::kMark},        // combining acute
    {"1", Class::kNumber},
    {"7", Class::kNumber},
    {"\xD9\xA3", Class::kNumber},  // Arabic-Indic 3
    {"\xC2\xBD", Class::kNumber},  // ½
    {" ", Class::kSpace},
    {" ", Class::kSpace},
    {"\t", Class::kSpace},
    {"\xC2\xA0", Class::kSpace},
    {"\xC2\x85", Class::kSpace},      // next line: White_Space, unlike in JavaScript
    {"\xE3\x80\x80", Class::kSpace},  // ideographic space
    {"\n", Class::kNewline},
    {"\r", Class::kNewline},
    {"'", Class::kOther},
    {"'", Class::kOther},
    {"!", Class::kOther},
    {"_", Class::kOther},
    {"\xE1\xA0\x8E", Class::kOther},  // U+180E: not White_Space, unlike in PCRE2
    {"\xEF\xBB\xBF", Class::kOther},  // U+FEFF: not White_Space, unlike in JavaScript
    {"\xF0\x9F\x98\x80", Class::kOther},
    {"\xE2\x80\x8D", Class::kOther},  // zero width joiner
};

struct Rules {
  size_t digits_max;
  bool newline_rules;  // \s*[\r\n]+, and punctuation takes the newlines behind it
  bool any_case;       // contractions
  bool marks_are_letters = false;
};

class SlowSplitter {
 public:
  SlowSplitter(std::vector<Character> text, Rules rules) : text_(std::move(text)), rules_(rules) {}

  Strings Run() {
    Strings pieces;
    while (at_ < text_.size()) {
      const size_t count = PieceLength();
      std::string piece;
      for (size_t i = 0; i < count; ++i) {
        piece += text_[at_++].text;
      }
      pieces.push_back(piece);
    }
    return pieces;
  }

 private:
  bool Is(size_t i, std::string_view what) const {
    return i < text_.size() && text_[i].text == what;
  }
  bool IsLetter(size_t i) const {
    return i < text_.size() && (text_[i].kind == Class::kLetter ||
                                (rules_.marks_are_letters && text_[i].kind == Class::kMark));
  }
  bool IsNumber(size_t i) const { return i < text_.size() && text_[i].kind == Class::kNumber; }
  bool IsNewline(size_t i) const { return i < text_.size() && text_[i].kind == Class::kNewline; }
  bool IsSpace(size_t i) const {
    return IsNewline(i) || (i < text_.size() && text_[i].kind == Class::kSpace);
  }
  bool IsOther(size_t i) const {
    return i < text_.size() && !IsLetter(i) && !IsNumber(i) && !IsSpace(i);
  }
  template <typename F>
  size_t RunEnd(size_t i, F is) const {
    while ((this->*is)(i)) {
      ++i;
    }
    return i;
  }

  size_t Contraction() const {
    if (!Is(at_, "'") || at_ + 1 >= text_.size()) {
      return 0;
    }
    std::string next = text_[at_ + 1].text;
    std::string after = at_ + 2 < text_.size() ? text_[at_ + 2].text : "";
    if (rules_.any_case) {
      for (std::string* s : {&next, &after}) {
        std::transform(s->begin(), s->end(), s->begin(),
                       [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
      }
    }
    if (next == "s") {
      return 2;
    }
    return next + after == "re" || next + after == "ll" ? 3 : 0;
  }

  size_t PieceLength() const {
    if (const size_t n = Contraction()) {
      return n;
    }
    if (IsLetter(at_)) {
      return RunEnd(at_, &SlowSplitter::IsLetter) - at_;
    }
    const bool prefix = rules_.newline_rules ? !IsNewline(at_) && !IsNumber(at_) : Is(at_, " ");
    if (prefix && IsLetter(at_ + 1)) {
      return RunEnd(at_ + 1, &SlowSplitter::IsLetter) - at_;
    }
    const size_t number = !rules_.newline_rules && Is(at_, " ") ? at_ + 1 : at_;
    if (IsNumber(number)) {
      return std::min(RunEnd(number, &SlowSplitter::IsNumber), number + rules_.digits_max) - at_;
    }
    const size_t other = Is(at_, " ") ? at_ + 1 : at_;
    if (IsOther(other)) {
      size_t end = RunEnd(other, &SlowSplitter::IsOther);
      return (rules_.newline_rules ? RunEnd(end, &SlowSplitter::IsNewline) : end) - at_;
    }
    return SpaceLength();
  }

  size_t SpaceLength() const {
    const size_t end = RunEnd(at_, &SlowSplitter::IsSpace);
    if (rules_.newline_rules) {
      for (size_t i = end; i > at_; --i) {
        if (IsNewline(i - 1)) {
          return i - at_;  // up to the last newline of the run
        }
      }
    }
    if (end < text_.size() && end - at_ > 1) {
      return end - at_ - 1;  // one is left for what follows
    }
    return end - at_;
  }

  std::vector<Character> text_;
  Rules rules_;
  size_t at_ = 0;
};

TEST(PreTokenizer, AgreesWithTheRulesOnRandomText) {
  struct Twin {
    const char* pre;
    Rules rules;
  };
  constexpr Twin kTwins[] = {
      {"gpt-2", {.digits_max = SIZE_MAX / 2, .newline_rules = false, .any_case = false}},
      {"llama-bpe", {.digits_max = 3, .newline_rules = true, .any_case = true}},
      {"qwen2", {.digits_max = 1, .newline_rules = true, .any_case = true}},
      {"qwen35",
       {.digits_max = 1, .newline_rules = true, .any_case = true, .marks_are_letters = true}},
  };
  Random random(7);
  for (const Twin& twin : kTwins) {
    const PreTokenizer pre_tokenizer(*FindPreTokenizer(twin.pre));
    for (int round = 0; round < 4000; ++round) {
      std::vector<Character> characters(random.Below(14) + 1);
      std::string text;
      for (Character& character : characters) {
        character = kCharacters[random.Below(std::size(kCharacters))];
        text += character.text;
      }
      std::vector<std::string_view> pieces;
      pre_tokenizer.Split(text, &pieces);
      ASSERT_EQ(Strings(pieces.begin(), pieces.end()), SlowSplitter(characters, twin.rules).Run())
          << twin.pre << " round " << round;
    }
  }
}

TEST(PreTokenizer, DigitsGoByFamily) {
  EXPECT_EQ(Split("qwen2", "1234 56"), (Strings{"1", "2", "3", "4", " ", "5", "6"}));
  EXPECT_EQ(Split("falcon-h1", "1234 56"), (Strings{"123", "4", " ", "56"}));
  EXPECT_EQ(Split("gpt-2", "1234 56"), (Strings{"1234", " 56"}));
  EXPECT_EQ(Split("default", "1234 56,7"), (Strings{"123", "4", " ", "56", ",", "7"}));
}

TEST(PreTokenizer, ContractionsFoldAsciiCaseOnly) {
  EXPECT_EQ(Split("llama-bpe", "I'Ll"), (Strings{"I", "'Ll"}));
  EXPECT_EQ(Split("llama-bpe", "I'\xC5\xBF."), (Strings{"I", "'\xC5\xBF", "."}));
  EXPECT_EQ(Split("qwen2", "'\xC5\xBFx"), (Strings{"'\xC5\xBFx"}));
  EXPECT_EQ(Split("gpt-2", "I'LL"), (Strings{"I", "'", "LL"}));
}

TEST(PreTokenizer, InvalidBytesAreAPieceAndNothingIsLost) {
  EXPECT_EQ(Split("qwen2", "ab\xFF\xC3zz"), (Strings{"ab", "\xFF\xC3", "zz"}));
  EXPECT_EQ(Split("qwen2", "\xF0\x9F"), (Strings{"\xF0\x9F"}));
  Random random(3);
  for (const PreTokenizerRow& row : kPreTokenizers) {
    const PreTokenizer pre_tokenizer(row);
    for (int round = 0; round < 500; ++round) {
      std::string text(random.Below(40), ' ');
      for (char& c : text) {
        c = static_cast<char>(random.Below(3) == 0 ? random.Below(256)
                                                   : "a 1\n'\xC3\xA9."[random.Below(8)]);
      }
      std::vector<std::string_view> pieces;
      pre_tokenizer.Split(text, &pieces);
      std::string joined;
      for (const std::string_view piece : pieces) {
        ASSERT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

// A quadratic step would take hours here, a limit of the matcher would cut the run.
TEST(PreTokenizer, AMillionOfOneCharacterIsOneStep) {
  const size_t n = 1'000'000;
  for (const PreTokenizerRow& row : kPreTokenizers) {
    const PreTokenizer pre_tokenizer(row);
    for (const char c : {'a', ' ', '\n', '!', '\t', '1', '\''}) {
      std::vector<std::string_view> pieces;
      pre_tokenizer.Split(std::string(n, c), &pieces);
      const size_t digits = row.patterns[0].find("{1,3}") != std::string_view::npos ? 3 : 1;
      const size_t expected = c != '1' || row.names[0] == "gpt-2" ? 1
                              : row.names[0] == "default"         ? (n + 2) / 3
                                                                  : (n + digits - 1) / digits;
      EXPECT_EQ(pieces.size(), expected) << row.names[0] << " '" << c << "'";
    }
  }
}

TEST(PreTokenizer, ALongRunOfSpacesLeavesOneForTheWord) {
  const std::string spaces(300'000, ' ');
  EXPECT_EQ(Split("qwen2", spaces + "b"), (Strings{spaces.substr(1), " b"}));
  EXPECT_EQ(Split("qwen2", "a" + spaces + "\n" + spaces + "b"),
            (Strings{"a", spaces + "\n", spaces.substr(1), " b"}));
}

TEST(PreTokenizer, NamesAreUniqueAndKnown) {
  std::vector<std::string_view> names;
  for (const PreTokenizerRow& row : kPreTokenizers) {
    for (const std::string_view name : row.names) {
      EXPECT_EQ(FindPreTokenizer(name), &row) << name;
      EXPECT_NE(KnownPreTokenizers().find(name), std::string::npos);
    }
  }
  EXPECT_EQ(FindPreTokenizer("tekken"), nullptr);
  EXPECT_TRUE(FindPreTokenizer("falcon-h1")->ignore_merges);
  EXPECT_TRUE(FindPreTokenizer("falcon-h1")->add_bos);
  EXPECT_FALSE(FindPreTokenizer("qwen2")->ignore_merges);
  EXPECT_FALSE(FindPreTokenizer("qwen2")->add_bos);
}

}  // namespace
}  // namespace tessera
