// SPDX-License-Identifier: Apache-2.0
//
// The texts Python gives for values: str(), repr() and json.dumps(), byte for byte. repr writes
// control characters and a few invisible ones as escapes and takes everything else for printable.
//
// Undefined, namespaces, loops, macros, methods and generators: str of undefined is empty, the
// others cannot be written.
// Failure: TemplateError through the workspace.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "template/value.h"
#include "template/workspace.h"

namespace tessera::jinja {

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // of one level; nullopt: all on one line
  std::string item_separator = ", ";  // with an indent Python's default is ","
  std::string key_separator = ": ";
};

std::string FloatText(double value);  // repr: shortest digits that give the same number

// A string is appended as it is.
void AppendText(Workspace& space, const Value& value, std::string& out);
std::string ToText(Workspace& space, const Value& value);
void AppendRepr(Workspace& space, const Value& value, std::string& out);
void AppendJson(Workspace& space, const Value& value, const JsonStyle& style, std::string& out);

}  // namespace tessera::jinja
