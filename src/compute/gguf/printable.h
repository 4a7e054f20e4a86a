// SPDX-License-Identifier: Apache-2.0
//
// Text from a file made safe to print on one line of a terminal: control characters, bytes that are
// not UTF-8, line separators and direction overrides become \xNN, a backslash becomes two, and the
// length is bounded.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera {

// At most `max_bytes` bytes of `text`, cut between characters, then "...".
std::string Printable(std::string_view text, size_t max_bytes);

// 'text', at most 80 bytes of it, and "(N bytes)" behind when it was cut.
std::string Quoted(std::string_view text);

}  // namespace tessera
