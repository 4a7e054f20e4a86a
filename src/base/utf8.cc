// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"

#include <cstdint>

#include "base/check.h"

namespace tessera {
namespace {

// What may follow a lead byte: how many bytes, and the range of the first of them. The rest are
// always 80..BF.
struct LeadByte {
  size_t size = 0;  // of the whole sequence; 0 when the byte starts none
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

LeadByte ClassifyLead(uint8_t byte) {
  if (byte < 0x80) {
    return {.size = 1};
  }
  if (byte < 0xC2) {
    return {};  // a continuation byte, or the lead of an overlong form
  }
  if (byte < 0xE0) {
    return {.size = 2};
  }
  if (byte < 0xF0) {
    return {.size = 3,
            .second_min = static_cast<uint8_t>(byte == 0xE0 ? 0xA0 : 0x80),   // overlong below
            .second_max = static_cast<uint8_t>(byte == 0xED ? 0x9F : 0xBF)};  // surrogates above
  }
  if (byte < 0xF5) {
    return {.size = 4,
            .second_min = static_cast<uint8_t>(byte == 0xF0 ? 0x90 : 0x80),
            .second_max = static_cast<uint8_t>(byte == 0xF4 ? 0x8F : 0xBF)};
  }
  return {};
}

}  // namespace

Utf8Part FirstUtf8Part(std::string_view text) {
  TESSERA_CHECK(!text.empty());
  const LeadByte lead = ClassifyLead(static_cast<uint8_t>(text[0]));
  if (lead.size == 0) {
    return {Utf8Part::Kind::kInvalid, 1};
  }
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == text.size()) {
      return {Utf8Part::Kind::kIncomplete, i};
    }
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    const uint8_t min = i == 1 ? lead.second_min : 0x80;
    const uint8_t max = i == 1 ? lead.second_max : 0xBF;
    if (byte < min || byte > max) {
      return {Utf8Part::Kind::kInvalid, i};
    }
  }
  return {Utf8Part::Kind::kValid, lead.size};
}

size_t ValidUtf8Prefix(std::string_view text) {
  size_t valid = 0;
  while (valid < text.size()) {
    if (static_cast<uint8_t>(text[valid]) < 0x80) {
      ++valid;
      continue;
    }
    const Utf8Part part = FirstUtf8Part(text.substr(valid));
    if (part.kind != Utf8Part::Kind::kValid) {
      break;
    }
    valid += part.size;
  }
  return valid;
}

}  // namespace tessera
