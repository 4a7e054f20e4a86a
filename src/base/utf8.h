// SPDX-License-Identifier: Apache-2.0
//
// Utf8Part is the next thing in a byte string seen as UTF-8: one well-formed sequence, one maximal
// invalid part (Unicode §3.9, definition of "maximal subpart"), or a tail that more bytes could
// still complete. Well-formed means table 3-7: no overlong forms, no surrogates, at most U+10FFFF.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string_view>

namespace tessera {

// U+FFFD, what stands for one maximal invalid part.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Part {
  enum class Kind {
    kValid,
    kInvalid,     // no continuation can make these bytes valid
    kIncomplete,  // the text ends inside a sequence that is well-formed so far
  };
  Kind kind = Kind::kValid;
  size_t size = 0;  // 1 to 4 bytes, at most 3 when not valid
};

// `text` is not empty.
Utf8Part FirstUtf8Part(std::string_view text);

// Length of the longest valid prefix.
size_t ValidUtf8Prefix(std::string_view text);

}  // namespace tessera
