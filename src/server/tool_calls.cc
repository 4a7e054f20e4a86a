// SPDX-License-Identifier: Apache-2.0
#include "server/tool_calls.h"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/json_body.h"
#include "server/python_calls.h"
#include "server/text_marks.h"

namespace tessera {
namespace {

constexpr ToolCallForm kForms[] = {
    {"<tool_call>", "<tool_call>", "</tool_call>"},
    {"<|tool_call|>", "<|tool_call|>", ""},
    {"<TOOLCALL>", "<TOOLCALL>", "</TOOLCALL>"},
    // The template shows tools and their answers; how to call them the model knows.
    {"<|tool_list_start|>", "<|tool_call_start|>", "<|tool_call_end|>", CallNotation::kPython},
};

using Json = nlohmann::ordered_json;

std::optional<ToolCall> CallOf(const Json& call) {
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return std::nullopt;
  const Json arguments = call.contains("arguments") ? call["arguments"] : Json::object();
  if (!arguments.is_object()) return std::nullopt;
  return ToolCall{call["name"], arguments.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

// Of one call or a list; none when one of them is none.
std::vector<ToolCall> ParseJsonCalls(std::string_view text) {
  // A model's text is no more trusted than a client's: depth first.
  if (std::holds_alternative<ApiError>(ParseJsonBody(text))) return {};
  if (HasMoreValuesThan(kJsonMembersMax, text)) return {};
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) json = Json::array({std::move(json)});
  std::vector<ToolCall> calls;
  for (const Json& one : json) {
    std::optional<ToolCall> call = CallOf(one);
    if (!call) return {};
    calls.push_back(std::move(*call));
  }
  return calls;
}

std::vector<ToolCall> ParseCalls(CallNotation notation, std::string_view text) {
  if (notation == CallNotation::kJson) return ParseJsonCalls(text);
  std::vector<ToolCall> calls;
  if (std::optional<std::vector<PythonCall>> list = ParsePythonCalls(text)) {
    for (PythonCall& call : *list) {
      calls.push_back({std::move(call.name),
                       call.arguments.dump(-1, ' ', false, Json::error_handler_t::replace)});
    }
  }
  return calls;
}

}  // namespace

const ToolCallForm* ToolCallFormOf(std::string_view source) {
  const auto has = [&](std::string_view text) { return source.find(text) != source.npos; };
  // Qwen 3.5's calls look alike from afar.
  if (has("<tool_call>") && (has("<function=") || !has("arguments"))) return nullptr;
  for (const ToolCallForm& form : kForms) {
    if (has(form.sign)) return &form;
  }
  return nullptr;
}

ToolText ToolCallReader::Append(std::string_view text) {
  held_ += text;
  ToolText out;
  while (true) {
    if (!in_call_) ReadContent(/*last=*/false, &out);
    if (!in_call_ || !ReadCall(/*last=*/false, &out)) return out;
  }
}

ToolText ToolCallReader::Finish() {
  ToolText out;
  if (in_call_) (void)ReadCall(/*last=*/true, &out);
  ReadContent(/*last=*/true, &out);
  return out;
}

void ToolCallReader::ReadContent(bool last, ToolText* out) {
  const size_t open = held_.find(form_.open);
  if (open != std::string::npos) {
    const std::string_view before = std::string_view(held_).substr(0, open);
    out->content += before.substr(0, EndOfWords(before));
    held_.erase(0, open + form_.open.size());
    in_call_ = true;
    return;
  }
  // After a call white space alone is nothing.
  const bool blank = held_.find_first_not_of(kWhiteSpace) == std::string::npos;
  if (last && blank && has_calls()) held_.clear();
  const size_t end = last ? held_.size() : HoldFrom(held_, form_.open);
  out->content += held_.substr(0, end);
  held_.erase(0, end);
}

bool ToolCallReader::ReadCall(bool last, ToolText* out) {
  const size_t close = form_.close.empty() ? std::string::npos : held_.find(form_.close);
  if (close == std::string::npos && !last) return false;
  const size_t size = std::min(close, held_.size());
  const std::string text = held_.substr(0, size);
  held_.erase(0, std::min(size + form_.close.size(), held_.size()));
  in_call_ = false;
  std::vector<ToolCall> calls = ParseCalls(form_.notation, text);
  call_count_ += calls.size();
  if (calls.empty()) {
    out->content += form_.open;
    out->content += text;
    if (close != std::string::npos) out->content += form_.close;
  }
  std::move(calls.begin(), calls.end(), std::back_inserter(out->calls));
  return true;
}

}  // namespace tessera
