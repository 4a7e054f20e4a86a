// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes go through Encode and come back. The first byte chooses the
// pre-tokenizer and whether special tokens are parsed; the rest is the text. The stream of the
// tokens must be valid UTF-8 throughout.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "compute/tokenizer/pre_tokenizer.h"
#include "compute/tokenizer/test_vocabulary.h"
#include "compute/tokenizer/tokenizer.h"

namespace tessera {
namespace {

std::vector<Tokenizer> MakeTokenizers() {
  testing::TestVocabulary words;
  for (const auto& [left, right] :
       std::vector<testing::TestVocabulary::BytesPair>{{" ", " "},
                                                       {"  ", "  "},
                                                       {"\n", "\n"},
                                                       {"a", "a"},
                                                       {"aa", "a"},
                                                       {"\xE4", "\xB8"},
                                                       {"\xF0", "\x9F"},
                                                       {"1", "2"},
                                                       {"'", "s"},
                                                       {" ", "t"},
                                                       {"\xFF", "\xFF"}}) {
    words.AddMerge(left, right);
  }
  words.AddMerge("t", "h", /*add_token=*/false);
  words.AddBytes(" the");
  words.AddToken("<|end|>", TokenKind::kControl);
  words.AddToken("<|e", TokenKind::kControl);
  words.AddToken("<u>", TokenKind::kUserDefined);
  words.AddToken("<u>a", TokenKind::kUserDefined);
  std::vector<Tokenizer> tokenizers;
  for (const PreTokenizerRow& row : kPreTokenizers) {
    tokenizers.push_back(words.Make(row.names[0]));
  }
  return tokenizers;
}

void CheckStream(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  StreamingDetokenizer stream(&tokenizer, /*special=*/true);
  for (const TokenId token : tokens) {
    const std::string chunk = stream.Append(token);
    TESSERA_CHECK(ValidUtf8Prefix(chunk) == chunk.size());
  }
  (void)stream.Finish();
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<tessera::Tokenizer> tokenizers = tessera::MakeTokenizers();
  if (size == 0) {
    return 0;
  }
  const tessera::Tokenizer& tokenizer = tokenizers[(data[0] >> 1) % tokenizers.size()];
  const bool parse_special = (data[0] & 1) != 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::vector<tessera::TokenId> tokens =
      tokenizer.Encode(text, {.parse_special = parse_special});
#ifdef TESSERA_FUZZ_CANARY
  const bool special = false;  // loses the control tokens: the corpus must notice
#else
  const bool special = parse_special;
#endif
  TESSERA_CHECK(tokenizer.Decode(tokens, special) == text);
  tessera::CheckStream(tokenizer, tokens);
  return 0;
}
