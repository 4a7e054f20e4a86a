// SPDX-License-Identifier: Apache-2.0
//
// The parser: Jinja's grammar, precedence and all. What it does not support is an error here, so
// that a template which compiles fails later only over its data: other statements (include, block,
// import …), recursive loops, arguments by * and **, nested unpacking, and any filter, test, method
// or function that template/builtins.h lacks.
//
// Failure: TemplateError. Threads: pure.
#pragma once

#include <string_view>

#include "template/syntax.h"

namespace tessera::jinja {

Program Parse(std::string_view source);

}  // namespace tessera::jinja
