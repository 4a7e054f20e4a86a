// SPDX-License-Identifier: Apache-2.0
#include "server/json_body.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace tessera {
namespace {

using Json = nlohmann::json;

struct TextPosition {
  size_t line = 1;
  size_t column = 1;
};

TextPosition PositionOf(std::string_view text, size_t offset) {
  TextPosition position;
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  position.line += static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
  const size_t newline = before.rfind('\n');
  position.column += newline == std::string_view::npos ? offset : offset - newline - 1;
  return position;
}

// Offset of the bracket that goes deeper than kJsonDepthMax. Strings are skipped, nothing else is
// checked: the parser does that.
std::optional<size_t> FindTooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kJsonDepthMax) return i;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return std::nullopt;
}

// The parser's message without its own code and position: "[json.exception.parse_error.101] parse
// error at line 1, column 2: syntax error …" → "syntax error …".
std::string_view Reason(std::string_view what) {
  if (const size_t bracket = what.find("] "); bracket != std::string_view::npos) {
    what.remove_prefix(bracket + 2);
  }
  if (what.starts_with("parse error")) {
    if (const size_t colon = what.find(": "); colon != std::string_view::npos) {
      what.remove_prefix(colon + 2);
    }
  }
  return what;
}

// Commas outside of strings, which is one less than values at each level.
size_t CountValues(std::string_view text) {
  size_t commas = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
    } else if (text[i] == ',' && !in_string) {
      ++commas;
    }
  }
  return commas;
}

ApiError InvalidJson(std::string message) {
  return InvalidField("", "invalid_json", "the body is not valid JSON: " + std::move(message));
}

}  // namespace

ApiResult<Json> ParseJsonBody(std::string_view text) {
  if (const std::optional<size_t> deep = FindTooDeep(text)) {
    const TextPosition at = PositionOf(text, *deep);
    return InvalidJson(fmt::format("line {}, column {}: nested more than {} deep", at.line,
                                   at.column, kJsonDepthMax));
  }
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    // `byte` counts from 1 and points at the last byte read.
    const TextPosition at = PositionOf(text, error.byte > 0 ? error.byte - 1 : 0);
    return InvalidJson(
        fmt::format("line {}, column {}: {}", at.line, at.column, Reason(error.what())));
  } catch (const Json::exception& error) {  // a number that no double holds
    return InvalidJson(std::string(Reason(error.what())));
  }
}

bool HasMoreValuesThan(size_t values_max, std::string_view text) {
  // Most bodies are done with the first, quick look.
  return std::count(text.begin(), text.end(), ',') > static_cast<int64_t>(values_max) &&
         CountValues(text) > values_max;
}

std::string DescribeJson(const Json& value) {
  constexpr size_t kShown = 40;
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    if (text.size() > kShown) return fmt::format("a string of {} bytes", text.size());
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
