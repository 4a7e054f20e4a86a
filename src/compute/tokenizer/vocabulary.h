// SPDX-License-Identifier: Apache-2.0
//
// Vocabulary is what a file says about its tokens: their bytes, their kinds, which ones begin and
// end a text. VocabularyData is the same before it was checked, as a plain struct, so that tests
// and the fuzzer can make one without a file.
//
// V1  Texts are unique (an empty text, which llama.cpp tolerates, belongs to no index).
// V2  FindBytes only returns normal tokens that decode to exactly those bytes, so text can never
//     turn into a control token, however the file labels its tokens.
//
// Strict where a file must be damaged: an unknown kind of model, no tokens, equal texts, a
// token_type array of another length or with an unknown type. Tolerant as llama.cpp is: absent
// token_type (all normal), special ids outside the vocabulary (ignored). Unlike llama.cpp, which
// then falls back to id 11, an absent BOS or EOS is no token.
//
// Failure: kBadFile naming the key. Threads: const after creation.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"
#include "compute/gguf/name_index.h"

namespace tessera {

class GgufFile;

// The numbers of tokenizer.ggml.token_type.
enum class TokenKind : uint8_t {
  kUndefined = 0,
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

// The tokenizer.ggml.* keys. Texts are views that must last until the vocabulary is made.
struct VocabularyData {
  std::string_view model;               // .model
  std::optional<std::string_view> pre;  // .pre
  std::span<const std::string_view> tokens;
  std::optional<std::vector<int32_t>> token_types;
  std::span<const std::string_view> merges;
  std::optional<uint64_t> bos;  // .bos_token_id …, unchecked
  std::optional<uint64_t> eos;
  std::optional<uint64_t> eot;
  std::optional<uint64_t> eom;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;

  static Result<VocabularyData> Read(const GgufFile& file);
};

class Vocabulary {
 public:
  static Result<Vocabulary> Create(const VocabularyData& data);

  uint32_t size() const { return static_cast<uint32_t>(kinds_.size()); }
  bool Contains(TokenId token) const { return token >= 0 && static_cast<uint32_t>(token) < size(); }

  // `token` is in the vocabulary. Bytes are those the token stands for: of a normal token the
  // inverse of the byte alphabet, of others the text as it is.
  TokenKind kind(TokenId token) const { return kinds_[static_cast<uint32_t>(token)]; }
  std::string_view bytes(TokenId token) const;

  std::optional<TokenId> FindBytes(std::string_view bytes) const;

  std::optional<TokenId> bos() const { return bos_; }
  std::optional<TokenId> eos() const { return eos_; }
  // EOS, EOT, EOM by id, and tokens whose text is one of the known end marks.
  bool IsEndOfGeneration(TokenId token) const;
  std::span<const TokenId> ends() const { return ends_; }  // ascending, each once

 private:
  Vocabulary() = default;
  void AddToken(std::string_view text, TokenKind kind);
  void BuildIndex();
  std::optional<TokenId> InRange(std::optional<uint64_t> id) const;
  void AddEnd(std::optional<TokenId> token);

  std::vector<char> text_;          // all bytes; a vector, whose storage survives a move
  std::vector<size_t> text_begin_;  // size() + 1 offsets
  std::vector<TokenKind> kinds_;
  std::vector<TokenId> indexed_;  // normal tokens; by_bytes_ holds positions in this list
  NameIndex by_bytes_;
  std::vector<TokenId> ends_;  // sorted
  std::optional<TokenId> bos_;
  std::optional<TokenId> eos_;
};

}  // namespace tessera
