// SPDX-License-Identifier: Apache-2.0
#include "template/builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "template/operators.h"
#include "template/python_text.h"
#include "template/text.h"

namespace tessera::jinja {
namespace {

// Longer formats than any date needs are a mistake or an attack.
constexpr size_t kDateFormatBytesMax = 256;
constexpr size_t kDateBytesMax = 1024;

Value RaiseException(Workspace& space, const Arguments& arguments) {
  const auto [message] = Bind(space, arguments, {"message"});
  space.Fail(ToText(space, Required(space, arguments, message, "message")));
}

Value StrftimeNow(Workspace& space, const Arguments& arguments) {
  const auto [format] = Bind(space, arguments, {"format"});
  const std::string text(RequiredText(space, arguments, format, "format"));
  if (text.size() > kDateFormatBytesMax) {
    space.Fail(fmt::format("strftime_now takes a format of at most {} bytes, not {}",
                           kDateFormatBytesMax, text.size()));
  }
  char date[kDateBytesMax];
  const size_t size = std::strftime(date, sizeof(date), text.c_str(), &space.now());
  return space.MakeString(std::string_view(date, size));
}

Value Range(Workspace& space, const Arguments& arguments) {
  const auto [first, second, third] = Bind(space, arguments, {"start", "stop", "step"});
  const Value& only = Required(space, arguments, first, "stop");
  const int64_t start = second == nullptr ? 0 : ToInteger(space, only, "start of range");
  const int64_t stop = ToInteger(space, second == nullptr ? only : *second, "stop of range");
  const int64_t step = third == nullptr ? 1 : ToInteger(space, *third, "step of range");
  if (step == 0) {
    space.Fail("the step of range is 0");
  }
  std::vector<Value> items;
  int64_t at = start;
  while (step > 0 ? at < stop : at > stop) {
    if (items.size() == static_cast<size_t>(kRangeMax)) {
      space.Fail(fmt::format("range has more than {} numbers", kRangeMax));
    }
    items.push_back(Value::Int(at));
    if (__builtin_add_overflow(at, step, &at)) {
      break;
    }
  }
  return space.MakeList(std::move(items));
}

DictBody Members(Workspace& space, const Arguments& arguments) {
  DictBody members;
  for (const Value& value : arguments.positional) {
    if (!value.is(Kind::kDict) || &value != arguments.positional.data()) {
      space.Fail(fmt::format("{} takes one dict and named values", arguments.callee));
    }
    space.ChargeSteps(value.dict().entries().size());
    members = value.dict();
  }
  for (const auto& [name, value] : arguments.named) {
    members.Set(std::make_shared<const std::string>(name), value);
  }
  return members;
}

Value MakeNamespace(Workspace& space, const Arguments& arguments) {
  return space.MakeNamespace(Members(space, arguments));
}

Value MakeDict(Workspace& space, const Arguments& arguments) {
  return space.MakeDict(Members(space, arguments));
}

}  // namespace

void BindArguments(Workspace& space, const Arguments& arguments, const std::string_view* names,
                   const Value** bound, size_t count) {
  if (arguments.positional.size() > count) {
    space.Fail(fmt::format("'{}' takes at most {} arguments, not {}", arguments.callee, count,
                           arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const std::string_view* found = std::find(names, names + count, name);
    const auto i = static_cast<size_t>(found - names);
    if (i == count || bound[i] != nullptr) {
      space.Fail(fmt::format("'{}' has {} argument '{}'", arguments.callee,
                             i == count ? "no" : "already an", name));
    }
    bound[i] = &value;
  }
}

const Value& Required(Workspace& space, const Arguments& arguments, const Value* value,
                      std::string_view name) {
  if (value == nullptr) {
    space.Fail(fmt::format("'{}' lacks its argument '{}'", arguments.callee, name));
  }
  return *value;
}

std::string_view RequiredText(Workspace& space, const Arguments& arguments, const Value* value,
                              std::string_view name) {
  const Value& there = Required(space, arguments, value, name);
  if (!there.is(Kind::kString)) {
    space.Fail(fmt::format("'{}' of '{}' is {}, not a string", name, arguments.callee,
                           KindName(there.kind())));
  }
  return there.text();
}

Function FindFunction(std::string_view name) {
  struct Row {
    std::string_view name;
    Function function;
  };
  static constexpr Row kFunctions[] = {
      {"dict", MakeDict}, {"namespace", MakeNamespace},  {"raise_exception", RaiseException},
      {"range", Range},   {"strftime_now", StrftimeNow},
  };
  for (const Row& row : kFunctions) {
    if (row.name == name) {
      return row.function;
    }
  }
  return nullptr;
}

Value Replace(Workspace& space, std::string_view text, std::string_view from, std::string_view to,
              int64_t count_max) {
  space.ChargeReading(text.size());
  std::string result;
  size_t copied = 0;
  size_t at = 0;
  for (int64_t count = 0; count_max < 0 || count < count_max; ++count) {
    at = Find(text, from, at);
    if (at == std::string_view::npos) {
      break;
    }
    space.ChargeMaking(at - copied + to.size());
    result.append(text.substr(copied, at - copied)).append(to);
    copied = at + from.size();
    at = copied;
    if (from.empty()) {  // between every two characters, and at both ends
      if (at == text.size()) {
        break;
      }
      const size_t size = CharacterAt(text, at).size;
      result.append(text.substr(at, size));
      copied = at += size;
    }
  }
  result.append(text.substr(copied));
  return space.MakeString(std::move(result));
}

Value Join(Workspace& space, const std::vector<Value>& items, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      space.ChargeMaking(separator.size());
      text += separator;
    }
    AppendText(space, items[i], text);
  }
  return space.MakeString(std::move(text));
}

Value DictItems(Workspace& space, const DictBody& dict, Kind kind) {
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries()) {
    items.push_back(space.MakeSequence(Kind::kTuple, {Value::Text(key), value}));
  }
  return space.MakeSequence(kind, std::move(items));
}

}  // namespace tessera::jinja
