// SPDX-License-Identifier: Apache-2.0
//
// TemplateError is how a template fails inside this module: thrown where it is noticed, caught by
// Template::Compile and Template::Render, which return it as a Status. No other exception is
// thrown, and none leaves the module.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

namespace tessera::jinja {

// Where in the template's text, from 1; the column counts bytes.
struct Place {
  uint32_t line = 1;
  uint32_t column = 1;
};

class TemplateError {
 public:
  TemplateError(Place place, std::string message) : place_(place), message_(std::move(message)) {}

  Place place() const { return place_; }
  const std::string& message() const { return message_; }

 private:
  Place place_;
  std::string message_;
};

}  // namespace tessera::jinja
