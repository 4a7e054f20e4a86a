// SPDX-License-Identifier: Apache-2.0
#include "server/field_reader.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "server/json_body.h"

namespace tessera {

using Json = nlohmann::json;

ApiError WrongType(std::string_view field, std::string_view expected, const Json& actual) {
  return InvalidField(
      std::string(field), "invalid_type",
      fmt::format("{}: expected {}, got {}", field, expected, DescribeJson(actual)));
}

ApiError WrongValue(std::string_view field, std::string_view expected, const Json& actual) {
  return InvalidField(
      std::string(field), "invalid_value",
      fmt::format("{}: expected {}, got {}", field, expected, DescribeJson(actual)));
}

std::string ShownName(const std::string& name) {
  return name.size() <= 64 ? name : DescribeJson(Json(name));
}

FieldError In(std::string_view param, FieldError error) {
  if (error) error->param = param;
  return error;
}

FieldError ReadBool(std::string_view field, const Json& value, bool* out) {
  if (!value.is_boolean()) return WrongType(field, "true or false", value);
  *out = value.get<bool>();
  return std::nullopt;
}

FieldError ReadString(std::string_view field, const Json& value, std::string* out) {
  if (!value.is_string()) return WrongType(field, "a string", value);
  *out = value.get<std::string>();
  return std::nullopt;
}

FieldError ReadNumber(std::string_view field, const Json& value, double low, double high,
                      float* out) {
  const auto expected = [&] { return fmt::format("a number from {} to {}", low, high); };
  if (!value.is_number()) return WrongType(field, expected(), value);
  const double number = value.get<double>();
  if (!(number >= low && number <= high)) return WrongValue(field, expected(), value);
  *out = static_cast<float>(number);
  return std::nullopt;
}

FieldError ReadInteger(std::string_view field, const Json& value, int64_t low, int64_t high,
                       int64_t* out) {
  const auto expected = [&] { return fmt::format("an integer from {} to {}", low, high); };
  if (!value.is_number_integer()) return WrongType(field, expected(), value);
  // An unsigned value beyond int64 must not wrap into the range.
  const bool too_large =
      value.is_number_unsigned() &&
      value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (too_large || value.get<int64_t>() < low || value.get<int64_t>() > high) {
    return WrongValue(field, expected(), value);
  }
  *out = value.get<int64_t>();
  return std::nullopt;
}

FieldError ReadTokenIds(std::string_view field, const Json& array, uint32_t vocab_size,
                        std::vector<TokenId>* out) {
  const int64_t last = int64_t{vocab_size} - 1;
  out->reserve(array.size());
  for (size_t i = 0; i < array.size(); ++i) {
    int64_t id = 0;
    // The name of the place is made only for a message.
    if (ReadInteger(field, array[i], 0, last, &id)) {
      return ReadInteger(fmt::format("{}[{}]", field, i), array[i], 0, last, &id);
    }
    out->push_back(static_cast<TokenId>(id));
  }
  return std::nullopt;
}

ApiError UnknownField(const std::string& name, std::string_view known) {
  const std::string shown = ShownName(name);
  return InvalidField(shown, "unknown_parameter",
                      fmt::format("{}: not a field of this server, which reads {}", shown, known));
}

ApiResult<Json> ParseObject(std::string_view body) {
  ApiResult<Json> parsed = ParseJsonBody(body);
  if (std::holds_alternative<ApiError>(parsed)) return parsed;
  const Json& root = std::get<Json>(parsed);
  if (root.is_object()) return parsed;
  return InvalidField("", "invalid_type",
                      fmt::format("the body: expected an object, got {}", DescribeJson(root)));
}

}  // namespace tessera
