// SPDX-License-Identifier: Apache-2.0
#include "template/python_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <vector>

#include "template/text.h"

namespace tessera::jinja {
namespace {

// Writing charges as it goes: a small list may be written into a large text, many times over.
void Append(Workspace& space, std::string_view text, std::string& out) {
  space.ChargeMaking(text.size());
  out.append(text);
}

bool IsPrintable(uint32_t code) {
  return !(code < 0x20 || (code >= 0x7F && code <= 0xA0) || code == 0xAD || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200F) || (code >= 0x2028 && code <= 0x202F) ||
           (code >= 0x205F && code <= 0x206F) || code == 0x3000 || code == 0xFEFF ||
           (code >= 0xE000 && code <= 0xF8FF));
}

void AppendEscaped(uint32_t code, char quote, std::string_view bytes, std::string& out) {
  switch (code) {
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\\':
      out += "\\\\";
      return;
    default:
      break;
  }
  if (code == static_cast<unsigned char>(quote)) {
    out += '\\';
    out += quote;
  } else if (IsPrintable(code)) {
    out += bytes;
  } else if (code < 0x100) {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", code);
  } else {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
  }
}

void AppendQuoted(Workspace& space, std::string_view text, std::string& out) {
  space.ChargeMaking(2 * text.size());
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    AppendEscaped(character.code, quote, text.substr(at, character.size), out);
    at += character.size;
  }
  out += quote;
}

void AppendItems(Workspace& space, const std::vector<Value>& items, std::string& out) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      out += ", ";
    }
    AppendRepr(space, items[i], out);
  }
}

void AppendJsonString(Workspace& space, std::string_view text, bool ensure_ascii,
                      std::string& out) {
  space.ChargeMaking(2 * text.size());
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    const uint32_t code = character.code;
    const std::string_view named = "\"\\\b\f\n\r\t";
    if (const size_t i = code < 0x80 ? named.find(static_cast<char>(code)) : named.npos;
        i != named.npos) {
      out += '\\';
      out += "\"\\bfnrt"[i];
    } else if (code < 0x20 || (ensure_ascii && code >= 0x7F && code < 0x10000)) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
    } else if (ensure_ascii && code >= 0x10000) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}",
                     0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
    } else {
      out += text.substr(at, character.size);
    }
    at += character.size;
  }
  out += '"';
}

// One value of any depth; `level` is how deep it lies.
class JsonWriter {
 public:
  JsonWriter(Workspace& space, const JsonStyle& style, std::string& out)
      : space_(space), style_(style), out_(out) {}

  void Write(const Value& value, size_t level) {
    space_.ChargeSteps(1);
    switch (value.kind()) {
      case Kind::kNone:
        return Append(space_, "null", out_);
      case Kind::kBool:
        return Append(space_, value.boolean() ? "true" : "false", out_);
      case Kind::kFloat:
        return Append(space_, Number(value.number()), out_);
      case Kind::kInt:
        return Append(space_, fmt::to_string(value.integer()), out_);
      case Kind::kString:
        return AppendJsonString(space_, value.text(), style_.ensure_ascii, out_);
      case Kind::kList:
      case Kind::kTuple:
        return WriteList(value.items(), level);
      case Kind::kDict:
        return WriteDict(value.dict(), level);
      default:
        space_.Fail(fmt::format(
            "tojson cannot write {}{}", KindName(value.kind()),
            value.missing_name().empty() ? "" : fmt::format(" ('{}')", value.missing_name())));
    }
  }

 private:
  static std::string Number(double value) {
    if (std::isnan(value)) {
      return "NaN";
    }
    if (std::isinf(value)) {
      return value > 0 ? "Infinity" : "-Infinity";
    }
    return FloatText(value);
  }

  void NewLine(size_t level) {
    if (!style_.indent.has_value()) {
      return;
    }
    space_.ChargeMaking(1 + level * style_.indent->size());
    out_ += '\n';
    for (size_t i = 0; i < level; ++i) {
      out_ += *style_.indent;
    }
  }

  void WriteList(const std::vector<Value>& items, size_t level) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) {
        Append(space_, style_.item_separator, out_);
      }
      NewLine(level + 1);
      Write(items[i], level + 1);
    }
    if (!items.empty()) {
      NewLine(level);
    }
    out_ += ']';
  }

  void WriteDict(const DictBody& dict, size_t level) {
    std::vector<const DictBody::Entry*> entries;
    for (const DictBody::Entry& entry : dict.entries()) {
      entries.push_back(&entry);
    }
    if (style_.sort_keys) {
      std::sort(entries.begin(), entries.end(),
                [](const auto* a, const auto* b) { return *a->first < *b->first; });
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) {
        Append(space_, style_.item_separator, out_);
      }
      NewLine(level + 1);
      AppendJsonString(space_, *entries[i]->first, style_.ensure_ascii, out_);
      Append(space_, style_.key_separator, out_);
      Write(entries[i]->second, level + 1);
    }
    if (!entries.empty()) {
      NewLine(level);
    }
    out_ += '}';
  }

  Workspace& space_;
  const JsonStyle& style_;
  std::string& out_;
};

}  // namespace

std::string FloatText(double value) {
  if (std::isnan(value)) {
    return "nan";
  }
  if (std::isinf(value)) {
    return value > 0 ? "inf" : "-inf";
  }
  char buffer[64];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string digits(buffer, scientific.ptr);
  const int exponent = std::stoi(digits.substr(digits.find('e') + 1));
  if (exponent < -4 || exponent >= 16) {
    return digits;  // 1e+16, 1.5e-05: to_chars and Python agree on two digits of exponent
  }
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string text(buffer, fixed.ptr);
  return text.find('.') == std::string::npos ? text + ".0" : text;
}

void AppendText(Workspace& space, const Value& value, std::string& out) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return;
    case Kind::kString:
      return Append(space, value.text(), out);
    default:
      return AppendRepr(space, value, out);
  }
}

std::string ToText(Workspace& space, const Value& value) {
  std::string text;
  AppendText(space, value, text);
  return text;
}

void AppendRepr(Workspace& space, const Value& value, std::string& out) {
  space.ChargeSteps(1);
  switch (value.kind()) {
    case Kind::kUndefined:
      return Append(space, "Undefined", out);
    case Kind::kNone:
      return Append(space, "None", out);
    case Kind::kBool:
      return Append(space, value.boolean() ? "True" : "False", out);
    case Kind::kInt:
      return Append(space, fmt::to_string(value.integer()), out);
    case Kind::kFloat:
      return Append(space, FloatText(value.number()), out);
    case Kind::kString:
      return AppendQuoted(space, value.text(), out);
    case Kind::kList:
    case Kind::kTuple:
      out += value.is(Kind::kList) ? '[' : '(';
      AppendItems(space, value.items(), out);
      if (value.is(Kind::kTuple) && value.items().size() == 1) {
        out += ',';
      }
      out += value.is(Kind::kList) ? ']' : ')';
      return;
    case Kind::kDict: {
      out += '{';
      std::string_view separator;
      for (const auto& [key, member] : value.dict().entries()) {
        Append(space, separator, out);
        AppendQuoted(space, *key, out);
        out += ": ";
        AppendRepr(space, member, out);
        separator = ", ";
      }
      out += '}';
      return;
    }
    default:
      space.Fail(fmt::format("{} cannot be written as text", KindName(value.kind())));
  }
}

void AppendJson(Workspace& space, const Value& value, const JsonStyle& style, std::string& out) {
  JsonWriter(space, style, out).Write(value, 0);
}

}  // namespace tessera::jinja
