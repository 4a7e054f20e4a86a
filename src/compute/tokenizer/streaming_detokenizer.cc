// SPDX-License-Identifier: Apache-2.0
#include "base/utf8.h"
#include "compute/tokenizer/tokenizer.h"

namespace tessera {

std::string StreamingDetokenizer::Append(TokenId token, bool special) {
  const std::string bytes = pending_ + tokenizer_->TokenBytes(token, special);
  std::string_view rest = bytes;
  std::string text;
  while (!rest.empty()) {
    const size_t valid = ValidUtf8Prefix(rest);
    text.append(rest.substr(0, valid));
    rest.remove_prefix(valid);
    if (rest.empty()) {
      break;
    }
    const Utf8Part part = FirstUtf8Part(rest);
    if (part.kind == Utf8Part::Kind::kIncomplete) {
      break;
    }
    text.append(kReplacementCharacter);
    rest.remove_prefix(part.size);
  }
  pending_ = rest;
  return text;
}

std::string StreamingDetokenizer::Finish() {
  // What waits is one incomplete sequence: one maximal part.
  std::string text(pending_.empty() ? std::string_view() : kReplacementCharacter);
  pending_.clear();
  return text;
}

}  // namespace tessera
