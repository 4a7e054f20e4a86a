// SPDX-License-Identifier: Apache-2.0
#include "compute/tokenizer/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace tessera {
namespace {

constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> character{};
  std::array<int16_t, 0x144> byte{};  // -1 where the character is not in the alphabet
};

constexpr Alphabet MakeAlphabet() {
  Alphabet alphabet;
  for (int16_t& byte : alphabet.byte) {
    byte = -1;
  }
  uint16_t next = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint16_t character = StandsForItself(byte) ? static_cast<uint16_t>(byte) : next++;
    alphabet.character[byte] = character;
    alphabet.byte[character] = static_cast<int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = MakeAlphabet();
static_assert(kAlphabet.character[0xAD] == 0x143, "the last of the 68 moved bytes");
static_assert(kAlphabet.character[' '] == 0x120);

}  // namespace

std::string AlphabetFromBytes(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char c : bytes) {
    const uint16_t character = kAlphabet.character[static_cast<uint8_t>(c)];
    if (character < 0x80) {
      text.push_back(static_cast<char>(character));
    } else {
      text.push_back(static_cast<char>(0xC0 | (character >> 6)));
      text.push_back(static_cast<char>(0x80 | (character & 0x3F)));
    }
  }
  return text;
}

std::optional<std::string> BytesFromAlphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Part part = FirstUtf8Part(text.substr(at));
    if (part.kind != Utf8Part::Kind::kValid || part.size > 2) {
      return std::nullopt;  // the alphabet ends at U+0143, two bytes
    }
    const uint32_t first = static_cast<uint8_t>(text[at]);
    const uint32_t character =
        part.size == 1 ? first
                       : ((first & 0x1F) << 6) | (static_cast<uint8_t>(text[at + 1]) & 0x3F);
    if (character >= kAlphabet.byte.size() || kAlphabet.byte[character] < 0) {
      return std::nullopt;
    }
    bytes.push_back(static_cast<char>(kAlphabet.byte[character]));
    at += part.size;
  }
  return bytes;
}

}  // namespace tessera
