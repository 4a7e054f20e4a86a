// SPDX-License-Identifier: Apache-2.0
#include "template/text.h"

#include <string.h>  // NOLINT: memmem is GNU's, not in <cstring>

#include <algorithm>

#include "base/utf8.h"

namespace tessera::jinja {
namespace {

bool IsLetter(unsigned char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}
char Lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
char Upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; }

bool IsContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Start of the character that ends before `end`.
size_t CharacterBefore(std::string_view text, size_t end) {
  for (size_t back = 1; back <= 4 && back <= end; ++back) {
    if (!IsContinuation(text[end - back])) {
      return CharacterAt(text, end - back).size == back ? end - back : end - 1;
    }
  }
  return end - 1;
}

bool Contains(const std::optional<std::string_view>& characters, std::string_view text, size_t at) {
  const Character character = CharacterAt(text, at);
  if (!characters.has_value()) {
    return IsSpace(character.code);
  }
  const std::string_view bytes = text.substr(at, character.size);
  for (size_t i = 0; i < characters->size();) {
    const size_t size = CharacterAt(*characters, i).size;
    if (characters->substr(i, size) == bytes) {
      return true;
    }
    i += size;
  }
  return false;
}

// The end of the run of white space, or of other characters, that begins at `at`.
size_t RunEnd(std::string_view text, size_t at, bool space) {
  while (at < text.size()) {
    const Character character = CharacterAt(text, at);
    if (IsSpace(character.code) != space) {
      break;
    }
    at += character.size;
  }
  return at;
}

size_t RunBegin(std::string_view text, size_t end, bool space) {
  while (end > 0) {
    const size_t at = CharacterBefore(text, end);
    if (IsSpace(CharacterAt(text, at).code) != space) {
      break;
    }
    end = at;
  }
  return end;
}

bool IsLineEnd(uint32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

}  // namespace

Character CharacterAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const Utf8Part part = FirstUtf8Part(text.substr(at));
  if (part.kind != Utf8Part::Kind::kValid || part.size == 1) {
    return {.code = byte(0), .size = 1};
  }
  uint32_t code = byte(0) & (0xFFu >> (part.size + 1));
  for (size_t i = 1; i < part.size; ++i) {
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  return {.code = code, .size = part.size};
}

size_t CountCharacters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += CharacterAt(text, at).size) {
    ++count;
  }
  return count;
}

std::vector<size_t> CharacterOffsets(std::string_view text) {
  std::vector<size_t> offsets;
  offsets.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += CharacterAt(text, at).size) {
    offsets.push_back(at);
  }
  offsets.push_back(text.size());
  return offsets;
}

bool IsSpace(uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

std::string_view Strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters) {
  size_t begin = 0;
  size_t end = text.size();
  if (side != Side::kRight) {
    while (begin < end && Contains(characters, text, begin)) {
      begin += CharacterAt(text, begin).size;
    }
  }
  if (side != Side::kLeft) {
    while (end > begin) {
      const size_t at = CharacterBefore(text, end);
      if (at < begin || !Contains(characters, text, at)) {
        break;
      }
      end = at;
    }
  }
  return text.substr(begin, end - begin);
}

std::string ToLower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), Lower);
  return result;
}

std::string ToUpper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), Upper);
  return result;
}

std::string Capitalize(std::string_view text) {
  std::string result = ToLower(text);
  if (!result.empty()) {
    result[0] = Upper(result[0]);
  }
  return result;
}

std::string TitleByLetters(std::string_view text) {
  std::string result(text);
  bool in_word = false;
  for (char& c : result) {
    c = in_word ? Lower(c) : Upper(c);
    in_word = IsLetter(static_cast<unsigned char>(c));
  }
  return result;
}

std::string TitleByWords(std::string_view text) {
  std::string result(text);
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    result[at] = in_word ? Lower(text[at]) : Upper(text[at]);
    in_word =
        !IsSpace(character.code) &&
        (character.size > 1 || std::string_view("-({[<").find(text[at]) == std::string_view::npos);
    at += character.size;
  }
  return result;
}

size_t Find(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) {
    return std::string_view::npos;
  }
  if (needle.empty()) {
    return from;
  }
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

std::vector<std::string_view> Split(std::string_view text, std::string_view separator,
                                    size_t splits_max, bool from_right) {
  std::vector<size_t> cuts;  // where separators begin
  for (size_t at = Find(text, separator); at != std::string_view::npos && !from_right;
       at = Find(text, separator, at + separator.size())) {
    if (cuts.size() == splits_max) {
      break;
    }
    cuts.push_back(at);
  }
  if (from_right && splits_max > 0) {
    // Separators that overlap are met from the right, so the reversed text is split.
    const std::string reversed(text.rbegin(), text.rend());
    const std::string reversed_separator(separator.rbegin(), separator.rend());
    for (const std::string_view piece : Split(reversed, reversed_separator, splits_max, false)) {
      const size_t end = static_cast<size_t>(piece.data() - reversed.data()) + piece.size();
      if (end < text.size()) {
        cuts.push_back(text.size() - end - separator.size());
      }
    }
    std::reverse(cuts.begin(), cuts.end());
  }
  std::vector<std::string_view> pieces;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    pieces.push_back(text.substr(begin, cut - begin));
    begin = cut + separator.size();
  }
  pieces.push_back(text.substr(begin));
  return pieces;
}

std::vector<std::string_view> SplitWords(std::string_view text, size_t splits_max,
                                         bool from_right) {
  std::vector<std::string_view> words;
  if (from_right) {
    for (size_t end = RunBegin(text, text.size(), true); end > 0;) {
      const size_t begin = words.size() == splits_max ? 0 : RunBegin(text, end, false);
      words.push_back(text.substr(begin, end - begin));
      end = RunBegin(text, begin, true);
    }
    std::reverse(words.begin(), words.end());
    return words;
  }
  for (size_t begin = RunEnd(text, 0, true); begin < text.size();) {
    const size_t end = words.size() == splits_max ? text.size() : RunEnd(text, begin, false);
    words.push_back(text.substr(begin, end - begin));
    begin = RunEnd(text, end, true);
  }
  return words;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    if (!IsLineEnd(character.code)) {
      at += character.size;
      continue;
    }
    const bool crlf = text.substr(at, 2) == "\r\n";
    const size_t next = at + (crlf ? 2 : character.size);
    lines.push_back(text.substr(begin, (keep_ends ? next : at) - begin));
    begin = at = next;
  }
  if (begin < text.size()) {
    lines.push_back(text.substr(begin));
  }
  return lines;
}

}  // namespace tessera::jinja
