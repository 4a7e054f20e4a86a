// SPDX-License-Identifier: Apache-2.0
//
// Marks in text that comes in pieces: how much of it may still become one.
//
// Threads: pure functions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace tessera {

inline constexpr std::string_view kWhiteSpace = " \t\r\n";

// Where the white space at the end of `text` begins.
inline size_t EndOfWords(std::string_view text) {
  const size_t last = text.find_last_not_of(kWhiteSpace);
  return last == std::string_view::npos ? 0 : last + 1;
}

// Where text begins that must wait: a suffix that `mark` begins with, and white space before it.
inline size_t HoldFrom(std::string_view text, std::string_view mark) {
  size_t hold = text.size();
  for (size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size) {
    if (!mark.starts_with(text.substr(text.size() - size))) continue;
    hold = text.size() - size;
    break;
  }
  return EndOfWords(text.substr(0, hold));
}

}  // namespace tessera
