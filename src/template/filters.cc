// SPDX-License-Identifier: Apache-2.0
//
// Filters of one value: text, numbers, JSON. Those over lists are in list_filters.cc.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "template/builtins.h"
#include "template/list_filters.h"
#include "template/operators.h"
#include "template/python_text.h"
#include "template/text.h"

namespace tessera::jinja {
namespace {

template <std::string (*kChange)(std::string_view)>
Value Changed(Workspace& space, const Value& input, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  return space.MakeString(kChange(ToText(space, input)));
}

Value ToStringValue(Workspace& space, const Value& input, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  return input.is(Kind::kString) ? input : space.MakeString(ToText(space, input));
}

Value Escape(Workspace& space, const Value& input, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  std::string escaped;
  for (const char c : ToText(space, input)) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '\'':
        escaped += "&#39;";
        break;
      case '"':
        escaped += "&#34;";
        break;
      default:
        escaped += c;
    }
  }
  return space.MakeString(std::move(escaped));
}

Value Trim(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [characters] = Bind(space, arguments, {"chars"});
  const std::string text = ToText(space, input);
  if (characters == nullptr || characters->is(Kind::kNone)) {
    return space.MakeString(Strip(text, Side::kBoth));
  }
  const std::string_view set = RequiredText(space, arguments, characters, "chars");
  space.ChargeReading(text.size() * set.size());
  return space.MakeString(Strip(text, Side::kBoth, set));
}

Value ReplaceText(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [from, to, count] = Bind(space, arguments, {"old", "new", "count"});
  const bool all = count == nullptr || count->is(Kind::kNone);
  return Replace(space, ToText(space, input),
                 ToText(space, Required(space, arguments, from, "old")),
                 ToText(space, Required(space, arguments, to, "new")),
                 all ? -1 : ToInteger(space, *count, "count"));
}

Value Indent(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [width, first, blank] = Bind(space, arguments, {"width", "first", "blank"});
  std::string margin(4, ' ');
  if (width != nullptr && width->is(Kind::kString)) {
    margin = width->text();
  } else if (width != nullptr) {
    const int64_t spaces = std::max<int64_t>(ToInteger(space, *width, "width of indent"), 0);
    space.ChargeMaking(static_cast<uint64_t>(spaces));
    margin.assign(static_cast<size_t>(spaces), ' ');
  }
  const std::string text = ToText(space, input) + '\n';
  const bool indent_blank = blank != nullptr && Truth(*blank);
  const bool indent_first = first != nullptr && Truth(*first);
  std::string result;
  bool is_first = true;
  for (const std::string_view line : SplitLines(text, /*keep_ends=*/false)) {
    if (!is_first) {
      result += '\n';
    }
    if (is_first ? indent_first : indent_blank || !line.empty()) {
      space.ChargeMaking(margin.size());
      result += margin;
    }
    result += line;
    is_first = false;
  }
  return space.MakeString(std::move(result));
}

Value Default(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [otherwise, boolean] = Bind(space, arguments, {"default_value", "boolean"});
  const bool missing =
      input.is(Kind::kUndefined) || (boolean != nullptr && Truth(*boolean) && !Truth(input));
  if (!missing) {
    return input;
  }
  return otherwise != nullptr ? *otherwise : space.MakeString("");
}

std::optional<double> ParseFloat(std::string_view text) {
  text = Strip(text, Side::kBoth);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
  }
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

std::optional<int64_t> ParseInt(std::string_view text, int base) {
  text = Strip(text, Side::kBoth);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
  }
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

std::optional<int64_t> Truncated(std::optional<double> number) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  if (!number.has_value() || !(*number > -kLimit && *number < kLimit)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(*number);
}

Value ToInt(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [otherwise, base] = Bind(space, arguments, {"default", "base"});
  const int64_t radix = base == nullptr ? 10 : ToInteger(space, *base, "base of int");
  if (radix < 2 || radix > 36) {
    space.Fail("the base of int is not from 2 to 36");
  }
  std::optional<int64_t> number;
  if (input.is_integral()) {
    number = input.integer();
  } else if (input.is_number()) {
    number = Truncated(input.number());
  } else if (input.is(Kind::kString)) {
    number = ParseInt(input.text(), static_cast<int>(radix));
    if (!number.has_value()) {
      number = Truncated(ParseFloat(input.text()));
    }
  }
  return number.has_value()     ? Value::Int(*number)
         : otherwise != nullptr ? *otherwise
                                : Value::Int(0);
}

Value ToFloat(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [otherwise] = Bind(space, arguments, {"default"});
  std::optional<double> number;
  if (input.is_number()) {
    number = input.number();
  } else if (input.is(Kind::kString)) {
    number = ParseFloat(input.text());
  }
  return number.has_value()     ? Value::Float(*number)
         : otherwise != nullptr ? *otherwise
                                : Value::Float(0);
}

Value Absolute(Workspace& space, const Value& input, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  const Value negated = Negate(space, input);
  return input.number() < 0 ? negated : input;
}

// Half to even on the number as it is, as Python: 2.5 -> 2, 0.125 to two digits -> 0.12.
double RoundCommon(Workspace& space, double value, int64_t digits) {
  if (digits == 0) {
    return std::nearbyint(value);
  }
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(value / unit) * unit;
  }
  char text[1024];
  const auto [end, error] =
      std::to_chars(text, text + sizeof(text), value, std::chars_format::fixed,
                    static_cast<int>(std::min<int64_t>(digits, 300)));
  if (error != std::errc()) {
    space.Fail("round of a number that has too many digits");
  }
  std::from_chars(text, end, value);
  return value;
}

Value Round(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [precision, method] = Bind(space, arguments, {"precision", "method"});
  const int64_t digits = precision == nullptr ? 0 : ToInteger(space, *precision, "precision");
  const std::string_view how =
      method == nullptr ? "common" : RequiredText(space, arguments, method, "method");
  if (how != "common" && how != "ceil" && how != "floor") {
    space.Fail("the method of round is 'common', 'ceil' or 'floor'");
  }
  if (!input.is_number()) {
    space.Fail(fmt::format("round of {}, not of a number", KindName(input.kind())));
  }
  if (how == "common") {
    return input.is_integral() && digits >= 0
               ? Value::Int(input.integer())
               : Value::Float(RoundCommon(space, input.number(), digits));
  }
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = input.number() * unit;
  return Value::Float((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

std::optional<std::string> JsonIndent(Workspace& space, const Value* indent) {
  if (indent == nullptr || indent->is(Kind::kNone)) {
    return std::nullopt;
  }
  if (indent->is(Kind::kString)) {
    return std::string(indent->text());
  }
  const int64_t width = std::max<int64_t>(ToInteger(space, *indent, "indent of tojson"), 0);
  space.ChargeMaking(static_cast<uint64_t>(width));
  return std::string(static_cast<size_t>(width), ' ');
}

Value ToJson(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [ascii, indent, separators, sort_keys] =
      Bind(space, arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = ascii != nullptr && Truth(*ascii);
  style.sort_keys = sort_keys != nullptr && Truth(*sort_keys);
  style.indent = JsonIndent(space, indent);
  if (style.indent.has_value()) {
    style.item_separator.assign(1, ',');
  }
  if (separators != nullptr && !separators->is(Kind::kNone)) {
    if (!separators->is_sequence() || separators->items().size() != 2 ||
        !separators->items()[0].is(Kind::kString) || !separators->items()[1].is(Kind::kString)) {
      space.Fail("separators of tojson are two strings");
    }
    style.item_separator = separators->items()[0].text();
    style.key_separator = separators->items()[1].text();
  }
  std::string json;
  AppendJson(space, input, style, json);
  return space.MakeString(std::move(json));
}

Value CountWords(Workspace& space, const Value& input, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  const std::string text = ToText(space, input);
  return Value::Int(
      static_cast<int64_t>(SplitWords(text, std::string::npos, /*from_right=*/false).size()));
}

}  // namespace

Filter FindFilter(std::string_view name) {
  struct Row {
    std::string_view name;
    Filter filter;
  };
  static constexpr Row kFilters[] = {
      {"abs", Absolute},
      {"capitalize", Changed<Capitalize>},
      {"d", Default},
      {"default", Default},
      {"e", Escape},
      {"escape", Escape},
      {"float", ToFloat},
      {"indent", Indent},
      {"int", ToInt},
      {"lower", Changed<ToLower>},
      {"replace", ReplaceText},
      {"round", Round},
      {"safe", ToStringValue},
      {"string", ToStringValue},
      {"title", Changed<TitleByWords>},
      {"tojson", ToJson},
      {"trim", Trim},
      {"upper", Changed<ToUpper>},
      {"wordcount", CountWords},
  };
  for (const Row& row : kFilters) {
    if (row.name == name) {
      return row.filter;
    }
  }
  return FindListFilter(name);
}

}  // namespace tessera::jinja
