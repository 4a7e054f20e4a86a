// SPDX-License-Identifier: Apache-2.0
#include "server/tool_calls.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "server/json_body.h"

namespace tessera {
namespace {

constexpr std::string_view kOpen = "<tool_call>";
constexpr std::string_view kClose = "</tool_call>";
constexpr std::string_view kSpace = " \t\r\n";

// Where text begins that must wait: a suffix that a tag begins with, and the white space before it.
size_t HoldFrom(std::string_view text) {
  size_t hold = text.size();
  for (size_t size = std::min(text.size(), kOpen.size() - 1); size > 0; --size) {
    if (kOpen.starts_with(text.substr(text.size() - size))) {
      hold = text.size() - size;
      break;
    }
  }
  const size_t last = text.substr(0, hold).find_last_not_of(kSpace);
  return last == std::string_view::npos ? 0 : last + 1;
}

std::optional<ToolCall> ParseCall(std::string_view text) {
  using Json = nlohmann::ordered_json;
  // A model's text is no more trusted than a client's: depth first.
  if (std::holds_alternative<ApiError>(ParseJsonBody(text))) return std::nullopt;
  if (HasMoreValuesThan(kJsonMembersMax, text)) return std::nullopt;
  const Json call = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!call.is_object() || !call.contains("name") || !call["name"].is_string()) return std::nullopt;
  const Json arguments = call.contains("arguments") ? call["arguments"] : Json::object();
  if (!arguments.is_object()) return std::nullopt;
  return ToolCall{call["name"], arguments.dump()};
}

}  // namespace

ToolCallStyle ToolCallStyleOf(std::string_view source) {
  const auto has = [&](std::string_view text) { return source.find(text) != source.npos; };
  return has(kOpen) && has("arguments") && !has("<function=") ? ToolCallStyle::kTaggedJson
                                                              : ToolCallStyle::kUnknown;
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
  const size_t open = held_.find(kOpen);
  if (open != std::string::npos) {
    const std::string_view before = std::string_view(held_).substr(0, open);
    const size_t end = before.find_last_not_of(kSpace);
    if (end != std::string_view::npos) out->content += before.substr(0, end + 1);
    held_.erase(0, open + kOpen.size());
    in_call_ = true;
    return;
  }
  // After a call white space alone is nothing.
  const bool blank = held_.find_first_not_of(kSpace) == std::string::npos;
  if (last && blank && has_calls()) held_.clear();
  const size_t end = last ? held_.size() : HoldFrom(held_);
  out->content += held_.substr(0, end);
  held_.erase(0, end);
}

bool ToolCallReader::ReadCall(bool last, ToolText* out) {
  const size_t close = held_.find(kClose);
  if (close == std::string::npos && !last) return false;
  const size_t size = std::min(close, held_.size());
  const std::string text = held_.substr(0, size);
  held_.erase(0, std::min(size + kClose.size(), held_.size()));
  in_call_ = false;
  if (std::optional<ToolCall> call = ParseCall(text)) {
    out->calls.push_back(std::move(*call));
    ++call_count_;
  } else {
    out->content += kOpen;
    out->content += text;
    if (close != std::string::npos) out->content += kClose;
  }
  return true;
}

}  // namespace tessera
