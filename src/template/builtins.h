// SPDX-License-Identifier: Apache-2.0
//
// The filters, tests, methods and functions that templates may name. They are looked up when a
// template is compiled, so that one which is not here is refused then, wherever it stands.
//
// What a filter that Python evaluates lazily gives is a generator (template/value.h). `safe` and
// `escape` give plain strings: nothing is escaped by itself, as in Hugging Face's environment.
//
// Threads: the tables are constant; calls belong to their workspace. Failure: TemplateError.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "template/value.h"
#include "template/workspace.h"

namespace tessera::jinja {

struct Arguments {
  std::string_view callee;  // for messages
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

// A pointer per parameter, null where it was not given; an error for an argument too many.
void BindArguments(Workspace& space, const Arguments& arguments, const std::string_view* names,
                   const Value** bound, size_t count);
template <size_t N>
std::array<const Value*, N> Bind(Workspace& space, const Arguments& arguments,
                                 const std::string_view (&names)[N]) {
  std::array<const Value*, N> bound = {};
  BindArguments(space, arguments, names, bound.data(), N);
  return bound;
}
// An error when `value` is null.
const Value& Required(Workspace& space, const Arguments& arguments, const Value* value,
                      std::string_view name);
// Its text, or an error when it is no string.
std::string_view RequiredText(Workspace& space, const Arguments& arguments, const Value* value,
                              std::string_view name);

using Filter = Value (*)(Workspace&, const Value& input, const Arguments&);
using Test = bool (*)(Workspace&, const Value& input, const Arguments&);
using Function = Value (*)(Workspace&, const Arguments&);

// Null: there is none of that name.
Filter FindFilter(std::string_view name);
Test FindTest(std::string_view name);
Function FindFunction(std::string_view name);
Filter FindMethod(Kind kind, std::string_view name);
bool IsMethodName(std::string_view name);  // of any kind

// Shared by the filter and the method of that name. `count_max` below 0: all.
Value Replace(Workspace& space, std::string_view text, std::string_view from, std::string_view to,
              int64_t count_max);
Value Join(Workspace& space, const std::vector<Value>& items, std::string_view separator);
Value DictItems(Workspace& space, const DictBody& dict, Kind kind);

}  // namespace tessera::jinja
