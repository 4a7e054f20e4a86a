// SPDX-License-Identifier: Apache-2.0
//
// Tokenizer turns text into token ids and back, as the tokenizer.* keys of a GGUF file describe:
// byte-level BPE (`tokenizer.ggml.model` = gpt2) with the pre-tokenizers of kPreTokenizers.
//
// Encoding: special tokens are cut out first (longest text first; control tokens only with
// parse_special, user-defined ones always), the rest is split by the pre-tokenizer's pattern, each
// piece is mapped to the byte alphabet and merged lowest rank first, leftmost on ties.
//
// T1  Decode(Encode(text)) == text for any text without special tokens, when the vocabulary holds
//     the 256 bytes.
// T2  Encoding never fails on input: invalid UTF-8 bytes are encoded as bytes. Its time is
//     O(n log n) in the text.
// T3  Without parse_special no text becomes a control token, however the file spells its tokens.
//
// Failure: kBadFile, naming the key, for a vocabulary that is inconsistent or of an unknown kind.
// Threads: const after creation; any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"

namespace tessera {

class GgufFile;
struct VocabularyData;

struct EncodeOptions {
  bool add_special = true;     // prepend BOS when the file asks for it
  bool parse_special = false;  // text such as <|im_end|> becomes its control token
};

class Tokenizer {
 public:
  static Result<Tokenizer> FromGguf(const GgufFile& file);
  // From the same keys as a plain struct (compute/tokenizer/vocabulary.h), for tests and tools.
  static Result<Tokenizer> FromVocabulary(const VocabularyData& data);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  std::vector<TokenId> Encode(std::string_view text, const EncodeOptions& options = {}) const;

  // Raw bytes of one token: the inverse byte map for normal tokens, the text itself for special
  // ones. Control and unknown tokens are empty unless `special`; unused tokens and ids outside the
  // vocabulary always are. May be half a UTF-8 sequence.
  std::string TokenBytes(TokenId token, bool special = false) const;
  std::string Decode(std::span<const TokenId> tokens, bool special = false) const;

  uint32_t vocab_size() const;
  std::optional<TokenId> bos() const;  // none when the id is absent or out of range
  std::optional<TokenId> eos() const;
  // What Encode with add_special puts around a text; none when the file does not ask for it.
  std::optional<TokenId> added_before() const;
  std::optional<TokenId> added_after() const;
  bool IsEndOfGeneration(TokenId token) const;
  std::span<const TokenId> end_tokens() const;  // all of those, ascending

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// StreamingDetokenizer yields text as tokens come, never cutting a UTF-8 sequence: bytes of an
// unfinished sequence wait for the next token. Bytes that can never become valid UTF-8 come out as
// U+FFFD, one per maximal invalid part (Unicode §3.9), so that what it yields is always valid.
//
// Threads: one stream, one thread at a time.
class StreamingDetokenizer {
 public:
  explicit StreamingDetokenizer(const Tokenizer* tokenizer, bool special = false)
      : tokenizer_(tokenizer), special_(special) {}
  // Text that became complete with this token; often empty.
  std::string Append(TokenId token) { return Append(token, special_); }
  std::string Append(TokenId token, bool special);
  // What is left at the end: an unfinished sequence as U+FFFD, or nothing.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool special_;
  std::string pending_;  // at most 3 bytes between calls
};

}  // namespace tessera
