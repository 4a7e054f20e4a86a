// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/serve/workload_kinds.h"
#include "port/mapped_file.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kDefaultOutputTokens = 64;

class PromptFile : public Workload {
 public:
  PromptFile(std::vector<LoadPrompt> prompts, std::string name, std::string hash)
      : prompts_(std::move(prompts)), name_(std::move(name)), hash_(std::move(hash)) {}

  std::vector<LoadPrompt> Prompts(uint64_t, uint32_t) const override { return prompts_; }
  std::string Describe() const override {
    return fmt::format("{}: {} prompts", name_, prompts_.size());
  }
  std::string file_hash() const override { return hash_; }

 private:
  const std::vector<LoadPrompt> prompts_;
  const std::string name_;
  const std::string hash_;
};

// Each returns what was expected, or "".
std::string ReadPrompt(const Json& json, bool chat, LoadPrompt* prompt) {
  if (json.is_string()) {
    prompt->text = json.get<std::string>();
    return prompt->text.empty() ? "prompt: expected a text that is not empty" : "";
  }
  if (!json.is_array() || json.empty() || chat) {
    return chat ? "prompt: expected a string, which a chat can say"
                : "prompt: expected a string or an array of token ids";
  }
  for (const Json& id : json) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
      return "prompt: expected token ids";
    }
    prompt->tokens.push_back(id.get<int32_t>());
  }
  return "";
}

std::string ReadLine(const Json& json, const WorkloadOptions& options, LoadPrompt* prompt) {
  if (!json.is_object()) return "expected a JSON object";
  const bool has_messages = json.contains("messages");
  if (has_messages == json.contains("prompt")) return "expected one of prompt and messages";
  if (has_messages) {
    if (!options.chat) return "messages: only /v1/chat/completions takes them";
    if (!json["messages"].is_array()) return "messages: expected an array";
    prompt->messages = json["messages"].dump();
  } else if (std::string why = ReadPrompt(json["prompt"], options.chat, prompt); !why.empty()) {
    return why;
  }
  prompt->output_tokens = options.output_tokens.value_or(kDefaultOutputTokens);
  if (json.contains("max_tokens") && !options.output_tokens) {
    const Json& value = json["max_tokens"];
    if (!value.is_number_unsigned() || value.get<uint64_t>() == 0 ||
        value.get<uint64_t>() > INT32_MAX) {
      return "max_tokens: expected a number of at least 1";
    }
    prompt->output_tokens = value.get<uint32_t>();
  }
  return "";
}

}  // namespace

Result<std::unique_ptr<Workload>> ParsePromptFile(std::string_view text, const std::string& name,
                                                  const WorkloadOptions& options) {
  const std::string hash = FileHash(text);
  std::vector<LoadPrompt> prompts;
  const size_t most = options.prompt_count.value_or(UINT32_MAX);
  for (size_t line = 1; !text.empty() && prompts.size() < most; ++line) {
    const std::string_view bytes = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), bytes.size() + 1));
    if (bytes.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json json = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
    LoadPrompt prompt;
    const std::string why = ReadLine(json, options, &prompt);
    if (!why.empty()) return BadFile(fmt::format("{}:{}: {}", name, line, why));
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return BadFile(fmt::format("{}: expected a prompt, found none", name));
  return std::unique_ptr<Workload>(std::make_unique<PromptFile>(std::move(prompts), name, hash));
}

Result<std::unique_ptr<Workload>> OpenPromptFile(const WorkloadOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(options.prompts_path));
  const std::span<const std::byte> bytes = file.bytes();
  return ParsePromptFile({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                         options.prompts_path, options);
}

}  // namespace tessera
