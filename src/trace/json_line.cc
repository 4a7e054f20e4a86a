// SPDX-License-Identifier: Apache-2.0
#include "trace/json_line.h"

#include <fmt/format.h>

#include <cmath>

namespace tessera {
namespace {

constexpr uint64_t kMaxId = uint64_t{1} << 62;
constexpr size_t kQuoted = 40;

}  // namespace

std::string QuoteFound(std::string_view found) {
  std::string text(found.substr(0, kQuoted));
  for (char& c : text) {
    if (c < 0x20 || c == 0x7f) c = '?';
  }
  return found.size() > kQuoted ? text + "..." : text;
}

std::string QuoteJson(const Json& found) {
  if (found.is_structured()) return found.is_array() ? "an array" : "an object";
  return QuoteFound(std::string_view(found.dump(-1, ' ', true, Json::error_handler_t::replace)));
}

void JsonLine::Fail(std::string_view field, std::string_view expected, const std::string& found) {
  if (!ok()) return;
  status_ = BadFile(
      fmt::format("{}:{}: {}: expected {}, found {}", name_, number_, field, expected, found));
}

const Json* JsonLine::Field(const Json& json, const char* field) {
  if (!ok()) return nullptr;
  const auto found = json.find(field);
  if (found != json.end()) return &*found;
  Fail(field, "the field", "none");
  return nullptr;
}

uint64_t JsonLine::Whole(const Json& json, const char* field, uint64_t most) {
  const Json* value = Field(json, field);
  if (value == nullptr) return 0;
  if (value->is_number_unsigned() && value->get<uint64_t>() <= most) return value->get<uint64_t>();
  Fail(field, fmt::format("a whole number up to {}", most), QuoteJson(*value));
  return 0;
}

double JsonLine::Time(const Json& json, const char* field, double ms_per_unit) {
  const Json* value = Field(json, field);
  if (value == nullptr) return 0;
  const double ms = value->is_number() ? value->get<double>() * ms_per_unit : -1;
  if (std::isfinite(ms) && ms >= 0) return ms;
  Fail(field, "a time of 0 or later", QuoteJson(*value));
  return 0;
}

std::string JsonLine::Text(const Json& json, const char* field) {
  const Json* value = Field(json, field);
  if (value == nullptr) return {};
  if (value->is_string() && !value->get_ref<const std::string&>().empty()) return *value;
  Fail(field, "a name", QuoteJson(*value));
  return {};
}

bool JsonLine::Flag(const Json& json, const char* field) {
  const Json* value = Field(json, field);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  Fail(field, "true or false", QuoteJson(*value));
  return false;
}

std::vector<uint64_t> JsonLine::Ids(const Json& json, const char* field) {
  std::vector<uint64_t> ids;
  const Json* value = Field(json, field);
  if (value == nullptr) return ids;
  if (!value->is_array()) {
    Fail(field, "an array", QuoteJson(*value));
    return ids;
  }
  ids.reserve(value->size());
  for (const Json& id : *value) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() > kMaxId) {
      Fail(field, fmt::format("ids that are whole numbers up to {}", kMaxId), QuoteJson(id));
      return {};
    }
    ids.push_back(id.get<uint64_t>());
  }
  return ids;
}

}  // namespace tessera
