// SPDX-License-Identifier: Apache-2.0
//
// Strings as Python sees them: characters are code points, white space is Unicode's. Bytes that are
// not UTF-8 count as one character each and pass through unchanged.
//
// Letters: only ASCII ones change case; every character beyond counts as a letter of no case.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::jinja {

struct Character {
  uint32_t code = 0;  // the byte itself where it is not UTF-8
  size_t size = 0;    // 1 to 4 bytes
};

// `at` is within `text`.
Character CharacterAt(std::string_view text, size_t at);

size_t CountCharacters(std::string_view text);

// Byte offsets of every character, and the size of the text last.
std::vector<size_t> CharacterOffsets(std::string_view text);

bool IsSpace(uint32_t code);

enum class Side { kLeft, kRight, kBoth };

// Without `characters`: white space.
std::string_view Strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters = std::nullopt);

std::string ToLower(std::string_view text);
std::string ToUpper(std::string_view text);
std::string Capitalize(std::string_view text);      // first character upper, the others lower
std::string TitleByLetters(std::string_view text);  // str.title: they're -> They'Re
std::string TitleByWords(std::string_view text);    // Jinja's filter: they're -> They're

// Offset of the first `needle` at or after `from`, or npos; linear in both, unlike string::find.
size_t Find(std::string_view text, std::string_view needle, size_t from = 0);

// Pieces between `separator`, which is not empty, at most `splits_max` + 1 of them; from the right
// when `from_right`.
std::vector<std::string_view> Split(std::string_view text, std::string_view separator,
                                    size_t splits_max, bool from_right);
// Words between white space; after `splits_max` splits what is left, with the space at its far end.
std::vector<std::string_view> SplitWords(std::string_view text, size_t splits_max, bool from_right);
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

}  // namespace tessera::jinja
