// SPDX-License-Identifier: Apache-2.0
#include "template/template.h"

#include <fmt/format.h>

#include <algorithm>

#include "template/limits.h"
#include "template/parser.h"

namespace tessera::jinja {
namespace {

// What a raise_exception says may hold the text of a message.
constexpr size_t kErrorBytesMax = 500;

// One line, and not more than a log or a client wants.
std::string MessageOf(const TemplateError& error) {
  size_t size = std::min(error.message().size(), kErrorBytesMax);
  while (size > 0 && size < error.message().size() &&
         (static_cast<unsigned char>(error.message()[size]) & 0xC0) == 0x80) {
    --size;  // not within a character
  }
  std::string message = error.message().substr(0, size);
  std::replace_if(
      message.begin(), message.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  return fmt::format("{}:{}: {}", error.place().line, error.place().column, message);
}

}  // namespace

Result<Template> Template::Compile(std::string_view source) {
  if (source.size() > kTemplateBytesMax) {
    return BadFile(fmt::format("1:1: the template has {} bytes, more than {}", source.size(),
                               kTemplateBytesMax));
  }
  try {
    return Template(Parse(source));
  } catch (const TemplateError& error) {
    return BadFile(MessageOf(error));
  }
}

Result<std::string> Template::Render(const std::tm& now, const Limits& limits,
                                     FunctionRef<Variables(Workspace&)> make_variables,
                                     LoopObserver* observer) const {
  Workspace space(now, limits);
  try {
    Interpreter interpreter(&program_, &space, observer);
    for (auto& [name, value] : make_variables(space)) {
      interpreter.SetVariable(name, std::move(value));
    }
    return interpreter.Run();
  } catch (const TemplateError& error) {
    return InvalidArgument(MessageOf(error));
  }
}

bool Template::Reads(std::string_view name) const {
  const auto found = program_.symbols.find(name);
  return found != program_.symbols.end() && program_.read[found->second];
}

}  // namespace tessera::jinja
