// SPDX-License-Identifier: Apache-2.0
//
// Calls of tools written as a list of Python calls, which LFM2 models do:
//
//   [find(place="the barn", colours=['red', 'blue'], deep=True), stop()]
//
// Arguments have names; values are strings, numbers, True, False, None, lists, and dicts whose keys
// are strings. Nothing is evaluated.
//
// Failure: nothing when it is not such a list. Threads: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct PythonCall {
  std::string name;
  nlohmann::ordered_json arguments;  // an object, in the order they came
};

std::optional<std::vector<PythonCall>> ParsePythonCalls(std::string_view text);

}  // namespace tessera
