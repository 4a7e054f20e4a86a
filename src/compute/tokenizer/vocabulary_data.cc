// SPDX-License-Identifier: Apache-2.0
//
// VocabularyData::Read: from the keys of a GGUF file.
#include <variant>

#include "compute/gguf/gguf_file.h"
#include "compute/tokenizer/vocabulary.h"

namespace tessera {
namespace {

// Any integer; a negative one is how some writers say "none".
Result<std::optional<uint64_t>> ReadId(const GgufFile& file, std::string_view key) {
  const GgufValue* const value = file.FindValue(key);
  if (value == nullptr) {
    return std::optional<uint64_t>();
  }
  if (const auto* number = std::get_if<uint64_t>(value)) {
    return std::optional<uint64_t>(*number);
  }
  if (const auto* number = std::get_if<int64_t>(value)) {
    return *number < 0 ? std::optional<uint64_t>()
                       : std::optional<uint64_t>(static_cast<uint64_t>(*number));
  }
  return file.GetU32(key).error();
}

Result<std::optional<bool>> ReadFlag(const GgufFile& file, std::string_view key) {
  if (file.FindValue(key) == nullptr) {
    return std::optional<bool>();
  }
  TESSERA_ASSIGN_OR_RETURN(const bool flag, file.GetBool(key, false));
  return std::optional<bool>(flag);
}

}  // namespace

Result<VocabularyData> VocabularyData::Read(const GgufFile& file) {
  VocabularyData data;
  TESSERA_ASSIGN_OR_RETURN(data.model, file.GetString("tokenizer.ggml.model"));
  if (data.model != "gpt2") {
    return data;  // Vocabulary::Create says so; the other keys of another model may differ
  }
  if (file.FindValue("tokenizer.ggml.pre") != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(data.pre, file.GetString("tokenizer.ggml.pre"));
  }
  TESSERA_ASSIGN_OR_RETURN(data.tokens, file.GetStringArray("tokenizer.ggml.tokens"));
  TESSERA_ASSIGN_OR_RETURN(data.merges, file.GetStringArray("tokenizer.ggml.merges"));
  if (file.FindValue("tokenizer.ggml.token_type") != nullptr) {
    TESSERA_ASSIGN_OR_RETURN(data.token_types, file.GetI32Array("tokenizer.ggml.token_type"));
  }
  TESSERA_ASSIGN_OR_RETURN(data.bos, ReadId(file, "tokenizer.ggml.bos_token_id"));
  TESSERA_ASSIGN_OR_RETURN(data.eos, ReadId(file, "tokenizer.ggml.eos_token_id"));
  TESSERA_ASSIGN_OR_RETURN(data.eot, ReadId(file, "tokenizer.ggml.eot_token_id"));
  TESSERA_ASSIGN_OR_RETURN(data.eom, ReadId(file, "tokenizer.ggml.eom_token_id"));
  TESSERA_ASSIGN_OR_RETURN(data.add_bos, ReadFlag(file, "tokenizer.ggml.add_bos_token"));
  TESSERA_ASSIGN_OR_RETURN(data.add_eos, ReadFlag(file, "tokenizer.ggml.add_eos_token"));
  return data;
}

}  // namespace tessera
