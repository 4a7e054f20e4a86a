// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: a template, a zero byte, and a request as JSON {messages, tools, kwargs};
// without a request that parses, two messages. Compiling and rendering may fail and must not do
// worse: the same text comes out twice, within its bound, and known ends of messages lie in it in
// order.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/check.h"
#include "template/chat_template.h"
#include "template/limits.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// An instrumented step takes up to 50 times as long: so that an input is done in well under a
// second, less than a product's rendering may use.
constexpr jinja::Limits kLimits = {.steps_max = 50'000, .bytes_made_max = 2 * 1024 * 1024};

Json DefaultRequest() {
  return Json::parse(R"({"messages": [{"role": "system", "content": "a b"},
      {"role": "user", "content": [{"type": "text", "text": "<x>"}], "n": [1, -2.5, null, true]}],
      "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]})");
}

Json ParseRequest(std::string_view text) {
  static const Json otherwise = DefaultRequest();
  Json request = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return request.is_object() && request.contains("messages") ? request : otherwise;
}

const Json* Member(const Json& request, const char* name) {
  const auto found = request.find(name);
  return found == request.end() ? nullptr : &*found;
}

void CheckEnds(const ChatPrompt& prompt) {
  size_t before = 0;
  for (const std::optional<size_t>& end : prompt.message_ends) {
#ifdef TESSERA_FUZZ_CANARY
    TESSERA_CHECK(end.has_value());  // false for templates that count: the corpus has one
#endif
    TESSERA_CHECK(end.value_or(before) >= before);
    before = end.value_or(before);
  }
  TESSERA_CHECK(before <= prompt.text.size());
}

}  // namespace
}  // namespace tessera

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tessera;  // NOLINT: the entry point has no namespace of its own
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const Result<ChatTemplate> chat = ChatTemplate::Compile(input.substr(0, zero), "<s>", "</s>");
  if (!chat.has_value()) {
    return 0;
  }
  const Json request =
      ParseRequest(zero == std::string_view::npos ? std::string_view() : input.substr(zero + 1));
  const ChatInput chat_input = {.messages = Member(request, "messages"),
                                .tools = Member(request, "tools"),
                                .documents = nullptr,
                                .kwargs = Member(request, "kwargs"),
                                .add_generation_prompt = true,
                                .now = {}};
  const Result<ChatPrompt> prompt = chat->Render(chat_input, kLimits);
  const Result<ChatPrompt> again = chat->Render(chat_input, kLimits);
  TESSERA_CHECK(prompt.has_value() == again.has_value());
  if (prompt.has_value()) {
    TESSERA_CHECK(prompt->text == again->text);
    TESSERA_CHECK(prompt->text.size() <= jinja::kPromptBytesMax);
    CheckEnds(*prompt);
  }
  return 0;
}
