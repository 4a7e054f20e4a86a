// SPDX-License-Identifier: Apache-2.0
//
// TestVocabulary is a small vocabulary for tests and the fuzzer: the 256 bytes (id = byte), the
// results of the given merges, then whatever a test adds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/strong_id.h"
#include "compute/tokenizer/byte_alphabet.h"
#include "compute/tokenizer/tokenizer.h"
#include "compute/tokenizer/vocabulary.h"

namespace tessera::testing {

class TestVocabulary {
 public:
  using BytesPair = std::pair<std::string, std::string>;

  TestVocabulary() {
    for (int byte = 0; byte < 256; ++byte) {
      AddBytes(std::string(1, static_cast<char>(byte)));
    }
  }

  // Both sides as raw bytes; the merged token is added unless `add_token` is false.
  void AddMerge(const std::string& left, const std::string& right, bool add_token = true) {
    merges_.push_back(AlphabetFromBytes(left) + " " + AlphabetFromBytes(right));
    if (add_token) {
      AddBytes(left + right);
    }
  }
  TokenId AddBytes(std::string_view bytes) {
    return AddToken(AlphabetFromBytes(bytes), TokenKind::kNormal);
  }
  TokenId AddToken(std::string text, TokenKind kind) {
    tokens_.push_back(std::move(text));
    types_.push_back(static_cast<int32_t>(kind));
    return static_cast<TokenId>(tokens_.size() - 1);
  }

  std::vector<std::string>& tokens() { return tokens_; }
  std::vector<std::string>& merges() { return merges_; }

  // Views of this object; valid until it changes.
  VocabularyData Data(std::string_view pre = "qwen2") {
    token_views_.assign(tokens_.begin(), tokens_.end());
    merge_views_.assign(merges_.begin(), merges_.end());
    VocabularyData data;
    data.model = "gpt2";
    data.pre = pre;
    data.tokens = token_views_;
    data.token_types = types_;
    data.merges = merge_views_;
    return data;
  }

  Tokenizer Make(std::string_view pre = "qwen2") {
    auto tokenizer = Tokenizer::FromVocabulary(Data(pre));
    TESSERA_CHECK(tokenizer.has_value());
    return std::move(*tokenizer);
  }

 private:
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  std::vector<std::string> merges_;
  std::vector<std::string_view> token_views_;
  std::vector<std::string_view> merge_views_;
};

}  // namespace tessera::testing
