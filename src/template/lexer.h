// SPDX-License-Identifier: Apache-2.0
//
// The lexer cuts a template into text and the tokens of its tags, with Jinja's white space rules as
// Hugging Face sets them:
//   trim_blocks    the newline right after a statement or comment goes
//   lstrip_blocks  so do blanks between the start of a line and a statement or comment
//   a minus sign inside a delimiter takes all white space on its side, a plus sign none
//   line ends are \n, and one at the very end of the template goes
// Comments leave no token, and {% raw %} becomes text.
//
// Failure: TemplateError. Threads: pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "template/template_error.h"

namespace tessera::jinja {

struct Token {
  enum class Kind : uint8_t {
    kText,
    kOutputBegin,     // {{
    kOutputEnd,       // }}
    kStatementBegin,  // {%
    kStatementEnd,    // %}
    kName,
    kString,  // text is what it stands for
    kInteger,
    kFloat,
    kSymbol,  // operators and brackets
    kEnd,
  };
  Kind kind = Kind::kEnd;
  Place place;
  std::string text;
};

// Ends with one kEnd.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace tessera::jinja
