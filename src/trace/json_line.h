// SPDX-License-Identifier: Apache-2.0
//
// JsonLine reads the fields of one line of JSON that somebody else wrote, and keeps the first thing
// that is wrong with it.
//
//   ok --Fail, or a field that is not as expected--> failed: every field reads as nothing
//
// Failure: status() is then kBadFile: name:line, the field, what was expected and what was found.
// Threads: none shared. `name` outlives it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

using Json = nlohmann::json;

// What was found, at most 40 characters of it. Bytes a terminal would act on are not repeated.
std::string QuoteFound(std::string_view found);
// Not what is in an array or object: it may be nested deeper than the stack.
std::string QuoteJson(const Json& found);

class JsonLine {
 public:
  JsonLine(const std::string& name, uint64_t number) : name_(name), number_(number) {}

  bool ok() const { return status_.ok(); }
  const Status& status() const { return status_; }
  void Fail(std::string_view field, std::string_view expected, const std::string& found);

  // nullptr after an error, so that no caller reads a field of a line that is not an object.
  const Json* Field(const Json& json, const char* field);
  uint64_t Whole(const Json& json, const char* field, uint64_t most);
  double Time(const Json& json, const char* field, double ms_per_unit);
  std::string Text(const Json& json, const char* field);  // not empty
  bool Flag(const Json& json, const char* field);
  // Whole numbers; their count is the caller's to judge.
  std::vector<uint64_t> Ids(const Json& json, const char* field);

 private:
  const std::string& name_;
  const uint64_t number_;
  Status status_;
};

}  // namespace tessera
