// SPDX-License-Identifier: Apache-2.0
//
// Reading the fields of a JSON body: each function takes a value, checks type and range, and says
// what was wrong with the field's name, what was expected and what came.
//
// A request type has a table of its fields, ReadFields walks the body by it: null means absent, a
// field that is in no table is refused by name. A field that is ignored silently is an answer to a
// question nobody asked.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/strong_id.h"
#include "server/model_limits.h"
#include "server/openai_error.h"

namespace tessera {

using FieldError = std::optional<ApiError>;

// `actual` is described in ~50 bytes.
ApiError WrongType(std::string_view field, std::string_view expected, const nlohmann::json& actual);
ApiError WrongValue(std::string_view field, std::string_view expected,
                    const nlohmann::json& actual);
// A name comes from outside and may be long: a message shows a short one, else its length.
std::string ShownName(const std::string& name);
// The error, with `param` the field that the named place is in.
FieldError In(std::string_view param, FieldError error);

FieldError ReadBool(std::string_view field, const nlohmann::json& value, bool* out);
FieldError ReadString(std::string_view field, const nlohmann::json& value, std::string* out);
FieldError ReadNumber(std::string_view field, const nlohmann::json& value, double low, double high,
                      float* out);
FieldError ReadInteger(std::string_view field, const nlohmann::json& value, int64_t low,
                       int64_t high, int64_t* out);
// Token ids of the vocabulary, at most `count_max`.
FieldError ReadTokenIds(std::string_view field, const nlohmann::json& array, uint32_t vocab_size,
                        std::vector<TokenId>* out);

template <typename Request>
struct Field {
  std::string_view name;
  FieldError (*read)(const nlohmann::json&, const ModelLimits&, Request&);
};

template <typename Request>
const Field<Request>* FindField(std::span<const Field<Request>> table, std::string_view name) {
  for (const Field<Request>& field : table) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

template <typename Request>
std::string FieldNames(std::span<const Field<Request>> table) {
  std::string names;
  for (const Field<Request>& field : table) {
    if (!names.empty()) names += ", ";
    names += field.name;
  }
  return names;
}

// The names of both tables, each once.
template <typename Request, typename Base>
std::string FieldNames(std::span<const Field<Request>> own, std::span<const Field<Base>> shared) {
  std::string names = FieldNames(own);
  for (const Field<Base>& field : shared) {
    if (FindField(own, field.name) == nullptr) (names += ", ") += field.name;
  }
  return names;
}

ApiError UnknownField(const std::string& name, std::string_view known);

// Parses a body that must be an object.
ApiResult<nlohmann::json> ParseObject(std::string_view body);

// Reads every member of `root` by the first table that has it; `Base` is what Request derives from
// or Request itself.
template <typename Request, typename Base>
FieldError ReadFields(const nlohmann::json& root, const ModelLimits& limits,
                      std::span<const Field<Request>> own, std::span<const Field<Base>> shared,
                      Request& request) {
  for (const auto& [name, value] : root.items()) {
    const Field<Request>* field = FindField(own, name);
    const Field<Base>* base = field == nullptr ? FindField(shared, name) : nullptr;
    if (field == nullptr && base == nullptr) {
      return UnknownField(name, FieldNames(own, shared));
    }
    if (value.is_null()) continue;
    FieldError error =
        field != nullptr ? field->read(value, limits, request) : base->read(value, limits, request);
    if (error) return error;
  }
  return std::nullopt;
}

}  // namespace tessera
