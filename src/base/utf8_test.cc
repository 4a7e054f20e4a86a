// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tessera {
namespace {

using Kind = Utf8Part::Kind;

std::string EncodeCodePoint(uint32_t c) {
  std::string s;
  if (c < 0x80) {
    s += static_cast<char>(c);
  } else if (c < 0x800) {
    s += static_cast<char>(0xC0 | (c >> 6));
    s += static_cast<char>(0x80 | (c & 63));
  } else if (c < 0x10000) {
    s += static_cast<char>(0xE0 | (c >> 12));
    s += static_cast<char>(0x80 | ((c >> 6) & 63));
    s += static_cast<char>(0x80 | (c & 63));
  } else {
    s += static_cast<char>(0xF0 | (c >> 18));
    s += static_cast<char>(0x80 | ((c >> 12) & 63));
    s += static_cast<char>(0x80 | ((c >> 6) & 63));
    s += static_cast<char>(0x80 | (c & 63));
  }
  return s;
}

// All valid two-byte beginnings of sequences of three or four bytes, from the definition.
std::set<std::string> BeginningsOfTwo() {
  std::set<std::string> beginnings;
  for (uint32_t c = 0x800; c <= 0x10FFFF; c += 64) {
    if (c < 0xD800 || c > 0xDFFF) {
      beginnings.insert(EncodeCodePoint(c).substr(0, 2));
    }
  }
  return beginnings;
}

TEST(Utf8, EveryCodePointIsOneValidPartAndItsPrefixesAreIncomplete) {
  for (uint32_t c = 0; c <= 0x10FFFF; c = c < 0x3000 ? c + 1 : c + 61) {
    if (c >= 0xD800 && c <= 0xDFFF) {
      continue;
    }
    const std::string s = EncodeCodePoint(c);
    const Utf8Part part = FirstUtf8Part(s + "x");
    ASSERT_EQ(part.kind, Kind::kValid) << c;
    ASSERT_EQ(part.size, s.size()) << c;
    for (size_t n = 1; n < s.size(); ++n) {
      const Utf8Part cut = FirstUtf8Part(s.substr(0, n));
      ASSERT_EQ(cut.kind, Kind::kIncomplete) << c;
      ASSERT_EQ(cut.size, n) << c;
    }
  }
}

TEST(Utf8, EveryPairOfBytesIsClassifiedAsTheDefinitionSays) {
  const std::set<std::string> beginnings = BeginningsOfTwo();
  for (int a = 0x80; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string pair = {static_cast<char>(a), static_cast<char>(b)};
      const Utf8Part part = FirstUtf8Part(pair);
      const bool continues = b >= 0x80 && b < 0xC0;
      if (a >= 0xC2 && a < 0xE0 && continues) {
        ASSERT_EQ(part.kind, Kind::kValid) << a << " " << b;
      } else if (beginnings.contains(pair)) {
        ASSERT_EQ(part.kind, Kind::kIncomplete) << a << " " << b;
        ASSERT_EQ(part.size, 2u);
      } else {
        ASSERT_EQ(part.kind, Kind::kInvalid) << a << " " << b;
        ASSERT_EQ(part.size, 1u);
      }
    }
  }
}

TEST(Utf8, AnInvalidPartIsAsLongAsItCouldHaveBeenValid) {
  // The examples of Unicode §3.9, tables 3-8 to 3-11.
  EXPECT_EQ(FirstUtf8Part("\xE1\x80\xE2").size, 2u);
  EXPECT_EQ(FirstUtf8Part("\xF0\x91\x92\xF1\xBF").size, 3u);
  EXPECT_EQ(FirstUtf8Part("\xED\xA0\x80").size, 1u);
  EXPECT_EQ(FirstUtf8Part("\xF4\x91\x92\x93").size, 1u);
  EXPECT_EQ(FirstUtf8Part("\xC0\xAF").size, 1u);
}

TEST(Utf8, ValidPrefixStopsAtTheFirstBadByte) {
  EXPECT_EQ(ValidUtf8Prefix(""), 0u);
  EXPECT_EQ(ValidUtf8Prefix("a\xC3\xA9z"), 4u);
  EXPECT_EQ(ValidUtf8Prefix("a\xC3\xA9\xC3"), 3u);
  EXPECT_EQ(ValidUtf8Prefix("\xFFz"), 0u);
}

}  // namespace
}  // namespace tessera
