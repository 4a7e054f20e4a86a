// SPDX-License-Identifier: Apache-2.0
//
// jinja::Template is a compiled template: source text in, text out, with nothing of chats in it.
//
// Failure: kBadFile from Compile, kInvalidArgument from Render, "LINE:COLUMN: …", one line each.
// Threads: immutable once compiled.
#pragma once

#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "template/interpreter.h"
#include "template/syntax.h"
#include "template/workspace.h"

namespace tessera::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

class Template {
 public:
  static Result<Template> Compile(std::string_view source);

  // `make_variables` makes what the template sees, within the bounds of the rendering.
  Result<std::string> Render(const std::tm& now, const Limits& limits,
                             FunctionRef<Variables(Workspace&)> make_variables,
                             LoopObserver* observer = nullptr) const;

  bool Reads(std::string_view name) const;

 private:
  explicit Template(Program program) : program_(std::move(program)) {}

  Program program_;
};

}  // namespace tessera::jinja
