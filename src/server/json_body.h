// SPDX-License-Identifier: Apache-2.0
//
// Parsing of a request body as JSON, for text that nobody has checked: depth is bounded before the
// parser sees it, invalid UTF-8, NaN and numbers beyond a double are refused, and the message has
// line and column.
//
// Threads: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/openai_error.h"

namespace tessera {

// Requests nest three deep (an array of arrays of ids); more than this is an attack or a mistake.
inline constexpr int kJsonDepthMax = 32;

// Of an object whose order is kept: the library compares each key with all before it.
inline constexpr size_t kJsonMembersMax = 2048;

// Whether a text has more values, before it is parsed: a parsed value takes 16 bytes or more, its
// text may be 2.
bool HasMoreValuesThan(size_t values_max, std::string_view text);

ApiResult<nlohmann::json> ParseJsonBody(std::string_view text);

// A short description of a value for messages: `"abc"`, `5.5`, `true`, `an array`, at most ~50
// bytes.
std::string DescribeJson(const nlohmann::json& value);

}  // namespace tessera
