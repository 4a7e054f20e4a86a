// SPDX-License-Identifier: Apache-2.0
#include "compute/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "compute/gguf/printable.h"
#include "compute/tokenizer/bpe_merger.h"
#include "compute/tokenizer/pre_tokenizer.h"
#include "compute/tokenizer/special_tokens.h"
#include "compute/tokenizer/vocabulary.h"

namespace tessera {
namespace {

// Unknown tokens are treated as control tokens, as in llama.cpp.
SpecialTokens CollectSpecialTokens(const Vocabulary& vocabulary, bool with_control) {
  std::vector<SpecialToken> tokens;
  for (uint32_t i = 0; i < vocabulary.size(); ++i) {
    const TokenId token = static_cast<TokenId>(i);
    const TokenKind kind = vocabulary.kind(token);
    const bool control = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    const bool wanted = kind == TokenKind::kUserDefined || (with_control && control);
    if (wanted && !vocabulary.bytes(token).empty()) {
      tokens.push_back({vocabulary.bytes(token), token});
    }
  }
  return SpecialTokens(tokens);
}

}  // namespace

struct Tokenizer::State {
  State(Vocabulary words, BpeMerger bpe, const PreTokenizerRow& row)
      : vocabulary(std::move(words)),
        merger(std::move(bpe)),
        pre_tokenizer(row),
        user_defined(CollectSpecialTokens(vocabulary, /*with_control=*/false)),
        all_special(CollectSpecialTokens(vocabulary, /*with_control=*/true)),
        ignore_merges(row.ignore_merges) {}

  struct Scratch {
    std::vector<std::string_view> pieces;
    BpeMerger::Scratch merge;
  };
  void EncodeText(std::string_view text, Scratch* scratch, std::vector<TokenId>* tokens) const;

  Vocabulary vocabulary;
  BpeMerger merger;
  PreTokenizer pre_tokenizer;
  SpecialTokens user_defined;
  SpecialTokens all_special;
  bool ignore_merges;
  std::optional<TokenId> prefix;  // BOS, when it is to be added
  std::optional<TokenId> suffix;  // EOS, when it is to be added
};

Result<Tokenizer> Tokenizer::FromGguf(const GgufFile& file) {
  TESSERA_ASSIGN_OR_RETURN(const VocabularyData data, VocabularyData::Read(file));
  return FromVocabulary(data);
}

Result<Tokenizer> Tokenizer::FromVocabulary(const VocabularyData& data) {
  TESSERA_ASSIGN_OR_RETURN(Vocabulary vocabulary, Vocabulary::Create(data));
  const PreTokenizerRow* const row = FindPreTokenizer(data.pre.value_or(kDefaultPreTokenizer));
  if (row == nullptr) {
    return BadFile(fmt::format("tokenizer.ggml.pre: expected one of {}, found {}",
                               KnownPreTokenizers(), Quoted(*data.pre)));
  }
  TESSERA_ASSIGN_OR_RETURN(BpeMerger merger, BpeMerger::Create(vocabulary, data.merges));
  auto state = std::make_unique<State>(std::move(vocabulary), std::move(merger), *row);
  if (data.add_bos.value_or(row->add_bos)) {
    state->prefix = state->vocabulary.bos();
  }
  if (data.add_eos.value_or(false)) {
    state->suffix = state->vocabulary.eos();
  }
  return Tokenizer(std::move(state));
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

std::vector<TokenId> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  const SpecialTokens& special = options.parse_special ? state_->all_special : state_->user_defined;
  std::vector<TokenId> tokens;
  State::Scratch scratch;
  if (options.add_special && state_->prefix) {
    tokens.push_back(*state_->prefix);
  }
  size_t done = 0;
  for (const SpecialTokens::Match& match : special.FindIn(text)) {
    state_->EncodeText(text.substr(done, match.begin - done), &scratch, &tokens);
    tokens.push_back(match.token);
    done = match.begin + match.size;
  }
  state_->EncodeText(text.substr(done), &scratch, &tokens);
  if (options.add_special && state_->suffix) {
    tokens.push_back(*state_->suffix);
  }
  return tokens;
}

void Tokenizer::State::EncodeText(std::string_view text, Scratch* scratch,
                                  std::vector<TokenId>* tokens) const {
  scratch->pieces.clear();
  pre_tokenizer.Split(text, &scratch->pieces);
  for (const std::string_view piece : scratch->pieces) {
    const std::optional<TokenId> whole = ignore_merges ? vocabulary.FindBytes(piece) : std::nullopt;
    if (whole) {
      tokens->push_back(*whole);
    } else {
      merger.Merge(piece, &scratch->merge, tokens);
    }
  }
}

std::string Tokenizer::TokenBytes(TokenId token, bool special) const {
  // A model may have more rows of output than its tokenizer has tokens.
  if (!state_->vocabulary.Contains(token)) {
    return {};
  }
  const std::string_view bytes = state_->vocabulary.bytes(token);
  switch (state_->vocabulary.kind(token)) {
    case TokenKind::kNormal:
    case TokenKind::kUserDefined:
      return std::string(bytes);
    case TokenKind::kControl:
    case TokenKind::kUnknown:
      return special ? std::string(bytes) : std::string();
    case TokenKind::kUndefined:
    case TokenKind::kUnused:
    case TokenKind::kByte:
      break;  // not part of byte-level BPE; llama.cpp prints nothing either
  }
  return {};
}

std::string Tokenizer::Decode(std::span<const TokenId> tokens, bool special) const {
  std::string text;
  for (const TokenId token : tokens) {
    text += TokenBytes(token, special);
  }
  return text;
}

uint32_t Tokenizer::vocab_size() const { return state_->vocabulary.size(); }
std::optional<TokenId> Tokenizer::bos() const { return state_->vocabulary.bos(); }
std::optional<TokenId> Tokenizer::eos() const { return state_->vocabulary.eos(); }

std::optional<TokenId> Tokenizer::added_before() const { return state_->prefix; }
std::optional<TokenId> Tokenizer::added_after() const { return state_->suffix; }

std::span<const TokenId> Tokenizer::end_tokens() const { return state_->vocabulary.ends(); }

bool Tokenizer::IsEndOfGeneration(TokenId token) const {
  return state_->vocabulary.IsEndOfGeneration(token);
}

}  // namespace tessera
