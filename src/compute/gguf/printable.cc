// SPDX-License-Identifier: Apache-2.0
#include "compute/gguf/printable.h"

#include <fmt/format.h>

#include <cstdint>
#include <iterator>

namespace tessera {
namespace {

constexpr size_t kQuotedBytesMax = 80;

struct Character {
  size_t bytes;
  bool printable;
};

// U+0080-9F are controls; U+2028/9 break lines; U+200E/F, 202A-202E and 2066-2069 reorder what is
// around them.
bool IsPrintable(uint32_t code_point) {
  if (code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0)) return false;
  if (code_point == 0x200E || code_point == 0x200F) return false;
  if (code_point >= 0x2028 && code_point <= 0x202E) return false;
  return code_point < 0x2066 || code_point > 0x2069;
}

// The character at the start of `text` (not empty); a byte that starts no valid sequence is one
// unprintable character.
Character FirstCharacter(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, IsPrintable(lead)};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {1, false};
  uint32_t code_point = lead & (0x7F >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {1, false};
    code_point = code_point << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (bytes == 3 && code_point < 0x800) || (bytes == 4 && code_point < 0x10000);
  const bool surrogate = code_point >= 0xD800 && code_point < 0xE000;
  if (overlong || surrogate || code_point > 0x10FFFF) return {1, false};
  return {bytes, IsPrintable(code_point)};
}

}  // namespace

std::string Printable(std::string_view text, size_t max_bytes) {
  std::string out;
  size_t used = 0;
  while (used < text.size()) {
    const Character c = FirstCharacter(text.substr(used));
    if (used + c.bytes > max_bytes) {
      out += "...";
      break;
    }
    for (char byte : text.substr(used, c.bytes)) {
      if (!c.printable) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint8_t>(byte));
      } else if (byte == '\\') {
        out += "\\\\";
      } else {
        out += byte;
      }
    }
    used += c.bytes;
  }
  return out;
}

std::string Quoted(std::string_view text) {
  const std::string shown = Printable(text, kQuotedBytesMax);
  if (text.size() <= kQuotedBytesMax) return fmt::format("'{}'", shown);
  return fmt::format("'{}' ({} bytes)", shown, text.size());
}

}  // namespace tessera
