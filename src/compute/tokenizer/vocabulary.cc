// SPDX-License-Identifier: Apache-2.0
#include "compute/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "compute/gguf/printable.h"
#include "compute/tokenizer/byte_alphabet.h"

namespace tessera {
namespace {

// Texts that end a generation whatever the ids say (llama.cpp's list). Files exist that name only
// one of their two end tokens, Falcon-H1 among them, and files that label these as normal.
constexpr std::string_view kEndTexts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<\xEF\xBD\x9C"
    "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
    "[e~[",
};

// Every position of a text is compared with the special tokens that begin there, so their length
// bounds what a prompt costs, and each byte is a node of 20 bytes. Published ones have under 40.
constexpr size_t kSpecialBytesMax = 1024;

bool IsEndText(std::string_view text) {
  return std::find(std::begin(kEndTexts), std::end(kEndTexts), text) != std::end(kEndTexts);
}

Status CheckTokens(const VocabularyData& data) {
  if (data.model != "gpt2") {
    return BadFile(fmt::format("tokenizer.ggml.model: expected gpt2 (byte-level BPE), found {}",
                               Quoted(data.model)));
  }
  if (data.tokens.empty()) {
    return BadFile("tokenizer.ggml.tokens: expected at least one token, found none");
  }
  std::vector<std::string_view> texts;
  texts.reserve(data.tokens.size());
  std::copy_if(data.tokens.begin(), data.tokens.end(), std::back_inserter(texts),
               [](std::string_view text) { return !text.empty(); });
  NameIndex index;
  if (const auto twice = index.Build(texts)) {
    return BadFile(fmt::format("tokenizer.ggml.tokens: expected distinct tokens, found {} twice",
                               Quoted(*twice)));
  }
  return Status::Ok();
}

Status CheckTypes(const VocabularyData& data) {
  if (!data.token_types) {
    return Status::Ok();
  }
  if (data.token_types->size() != data.tokens.size()) {
    return BadFile(fmt::format("tokenizer.ggml.token_type: expected {} elements, found {}",
                               data.tokens.size(), data.token_types->size()));
  }
  for (size_t i = 0; i < data.token_types->size(); ++i) {
    const int32_t type = (*data.token_types)[i];
    if (type < 0 || type > static_cast<int32_t>(TokenKind::kByte)) {
      return BadFile(
          fmt::format("tokenizer.ggml.token_type[{}]: expected 0 to 6, found {}", i, type));
    }
  }
  return Status::Ok();
}

}  // namespace

Result<Vocabulary> Vocabulary::Create(const VocabularyData& data) {
  TESSERA_RETURN_IF_ERROR(CheckTokens(data));
  TESSERA_RETURN_IF_ERROR(CheckTypes(data));
  Vocabulary vocabulary;
  vocabulary.text_begin_.push_back(0);
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const bool end = IsEndText(data.tokens[i]);
    const auto kind =
        data.token_types ? static_cast<TokenKind>((*data.token_types)[i]) : TokenKind::kNormal;
    if (kind != TokenKind::kNormal && data.tokens[i].size() > kSpecialBytesMax) {
      return BadFile(fmt::format(
          "tokenizer.ggml.tokens[{}]: expected at most {} bytes in a special token, found {}", i,
          kSpecialBytesMax, data.tokens[i].size()));
    }
    vocabulary.AddToken(data.tokens[i], end ? TokenKind::kControl : kind);
    if (end) {
      vocabulary.AddEnd(static_cast<TokenId>(i));
    }
  }
  vocabulary.BuildIndex();
  vocabulary.bos_ = vocabulary.InRange(data.bos);
  vocabulary.eos_ = vocabulary.InRange(data.eos);
  vocabulary.AddEnd(vocabulary.eos_);
  vocabulary.AddEnd(vocabulary.InRange(data.eot));
  vocabulary.AddEnd(vocabulary.InRange(data.eom));
  std::vector<TokenId>& ends = vocabulary.ends_;
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  return vocabulary;
}

void Vocabulary::AddToken(std::string_view text, TokenKind kind) {
  std::optional<std::string> bytes;
  if (kind == TokenKind::kNormal) {
    bytes = BytesFromAlphabet(text);
  }
  if (bytes && !bytes->empty()) {
    indexed_.push_back(static_cast<TokenId>(kinds_.size()));
  }
  const std::string_view stored = bytes ? std::string_view(*bytes) : text;
  text_.insert(text_.end(), stored.begin(), stored.end());
  text_begin_.push_back(text_.size());
  kinds_.push_back(kind);
}

void Vocabulary::BuildIndex() {
  std::vector<std::string_view> names;
  names.reserve(indexed_.size());
  for (const TokenId token : indexed_) {
    names.push_back(bytes(token));
  }
  // Texts are unique and the alphabet is a bijection.
  TESSERA_CHECK(!by_bytes_.Build(names).has_value());
}

std::string_view Vocabulary::bytes(TokenId token) const {
  TESSERA_CHECK(Contains(token));
  const size_t begin = text_begin_[static_cast<uint32_t>(token)];
  const size_t end = text_begin_[static_cast<uint32_t>(token) + 1];
  return {text_.data() + begin, end - begin};
}

std::optional<TokenId> Vocabulary::FindBytes(std::string_view bytes) const {
  const std::optional<size_t> position = by_bytes_.Find(bytes);
  return position ? std::optional(indexed_[*position]) : std::nullopt;
}

bool Vocabulary::IsEndOfGeneration(TokenId token) const {
  return std::binary_search(ends_.begin(), ends_.end(), token);
}

std::optional<TokenId> Vocabulary::InRange(std::optional<uint64_t> id) const {
  return id && *id < size() ? std::optional(static_cast<TokenId>(*id)) : std::nullopt;
}

void Vocabulary::AddEnd(std::optional<TokenId> token) {
  if (token) {
    ends_.push_back(*token);
  }
}

}  // namespace tessera
