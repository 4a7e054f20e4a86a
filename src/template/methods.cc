// SPDX-License-Identifier: Apache-2.0
//
// The methods of strings, lists and dicts. Those that change a list or dict are not here: Jinja's
// sandbox refuses them too.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "template/builtins.h"
#include "template/operators.h"
#include "template/text.h"

namespace tessera::jinja {
namespace {

// Without a limit, Python's -1 and any other number below 0.
size_t SplitsMax(Workspace& space, const Value* value) {
  const int64_t splits = value == nullptr ? -1 : ToInteger(space, *value, "maxsplit");
  return splits < 0 ? std::numeric_limits<size_t>::max() : static_cast<size_t>(splits);
}

// Every other character may begin a piece.
void ChargeSplitting(Workspace& space, std::string_view text) {
  space.ChargeMaking(text.size() / 2 * sizeof(std::string_view));
}

Value StringList(Workspace& space, const std::vector<std::string_view>& pieces) {
  std::vector<Value> items;
  items.reserve(pieces.size());
  for (const std::string_view piece : pieces) {
    items.push_back(space.MakeString(piece));
  }
  return space.MakeList(std::move(items));
}

Value SplitBy(Workspace& space, const Value& self, const Arguments& arguments, bool from_right) {
  const auto [separator, splits] = Bind(space, arguments, {"sep", "maxsplit"});
  const size_t splits_max = SplitsMax(space, splits);
  ChargeSplitting(space, self.text());
  if (separator == nullptr || separator->is(Kind::kNone)) {
    return StringList(space, SplitWords(self.text(), splits_max, from_right));
  }
  const std::string_view text = RequiredText(space, arguments, separator, "sep");
  if (text.empty()) {
    space.Fail("split by an empty string");
  }
  return StringList(space, Split(self.text(), text, splits_max, from_right));
}

Value SplitLeft(Workspace& space, const Value& self, const Arguments& arguments) {
  return SplitBy(space, self, arguments, false);
}
Value SplitRight(Workspace& space, const Value& self, const Arguments& arguments) {
  return SplitBy(space, self, arguments, true);
}

Value SplitAtLines(Workspace& space, const Value& self, const Arguments& arguments) {
  const auto [keep_ends] = Bind(space, arguments, {"keepends"});
  ChargeSplitting(space, self.text());
  return StringList(space, SplitLines(self.text(), keep_ends != nullptr && Truth(*keep_ends)));
}

Value PartitionAt(Workspace& space, const Value& self, const Arguments& arguments,
                  bool from_right) {
  const auto [separator] = Bind(space, arguments, {"sep"});
  const std::string_view sep = RequiredText(space, arguments, separator, "sep");
  if (sep.empty()) {
    space.Fail("partition by an empty string");
  }
  space.ChargeReading(self.text().size());
  const auto pieces = Split(self.text(), sep, 1, from_right);
  const bool found = pieces.size() == 2;
  const std::string_view whole = self.text();
  const std::string_view head = found ? pieces[0] : from_right ? "" : whole;
  const std::string_view tail = found ? pieces[1] : from_right ? whole : "";
  return space.MakeSequence(
      Kind::kTuple, {space.MakeString(head), space.MakeString(found ? sep : std::string_view()),
                     space.MakeString(tail)});
}

Value PartitionLeft(Workspace& space, const Value& self, const Arguments& arguments) {
  return PartitionAt(space, self, arguments, false);
}
Value PartitionRight(Workspace& space, const Value& self, const Arguments& arguments) {
  return PartitionAt(space, self, arguments, true);
}

Value StripSide(Workspace& space, const Value& self, const Arguments& arguments, Side side) {
  const auto [characters] = Bind(space, arguments, {"chars"});
  if (characters == nullptr || characters->is(Kind::kNone)) {
    return space.MakeString(Strip(self.text(), side));
  }
  const std::string_view set = RequiredText(space, arguments, characters, "chars");
  space.ChargeReading(self.text().size() * set.size());
  return space.MakeString(Strip(self.text(), side, set));
}

Value StripBoth(Workspace& space, const Value& self, const Arguments& arguments) {
  return StripSide(space, self, arguments, Side::kBoth);
}
Value StripLeft(Workspace& space, const Value& self, const Arguments& arguments) {
  return StripSide(space, self, arguments, Side::kLeft);
}
Value StripRight(Workspace& space, const Value& self, const Arguments& arguments) {
  return StripSide(space, self, arguments, Side::kRight);
}

template <std::string (*kChange)(std::string_view)>
Value Changed(Workspace& space, const Value& self, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  return space.MakeString(kChange(self.text()));
}

// A string, or any of a tuple of them.
bool AnyAffix(Workspace& space, const Arguments& arguments,
              bool (*matches)(std::string_view, std::string_view), std::string_view text) {
  const auto [affix] = Bind(space, arguments, {"prefix"});
  const Value& there = Required(space, arguments, affix, "prefix");
  if (there.is(Kind::kTuple)) {
    return std::any_of(there.items().begin(), there.items().end(), [&](const Value& item) {
      space.ChargeSteps(1);
      space.ChargeReading(item.is(Kind::kString) ? item.text().size() : 0);
      return item.is(Kind::kString) && matches(text, item.text());
    });
  }
  const std::string_view wanted = RequiredText(space, arguments, affix, "prefix");
  space.ChargeReading(wanted.size());
  return matches(text, wanted);
}

bool BeginsWith(std::string_view text, std::string_view affix) { return text.starts_with(affix); }
bool EndsIn(std::string_view text, std::string_view affix) { return text.ends_with(affix); }

Value StartsWith(Workspace& space, const Value& self, const Arguments& arguments) {
  return Value::Bool(AnyAffix(space, arguments, BeginsWith, self.text()));
}
Value EndsWith(Workspace& space, const Value& self, const Arguments& arguments) {
  return Value::Bool(AnyAffix(space, arguments, EndsIn, self.text()));
}

Value RemovePrefix(Workspace& space, const Value& self, const Arguments& arguments) {
  const auto [prefix] = Bind(space, arguments, {"prefix"});
  const std::string_view affix = RequiredText(space, arguments, prefix, "prefix");
  space.ChargeReading(affix.size());
  const std::string_view text = self.text();
  return space.MakeString(text.starts_with(affix) ? text.substr(affix.size()) : text);
}

Value RemoveSuffix(Workspace& space, const Value& self, const Arguments& arguments) {
  const auto [suffix] = Bind(space, arguments, {"suffix"});
  const std::string_view affix = RequiredText(space, arguments, suffix, "suffix");
  space.ChargeReading(affix.size());
  const std::string_view text = self.text();
  return space.MakeString(text.ends_with(affix) ? text.substr(0, text.size() - affix.size())
                                                : text);
}

Value ReplaceText(Workspace& space, const Value& self, const Arguments& arguments) {
  const auto [from, to, count] = Bind(space, arguments, {"old", "new", "count"});
  return Replace(space, self.text(), RequiredText(space, arguments, from, "old"),
                 RequiredText(space, arguments, to, "new"),
                 count == nullptr ? -1 : ToInteger(space, *count, "count"));
}

Value JoinItems(Workspace& space, const Value& self, const Arguments& arguments) {
  const auto [iterable] = Bind(space, arguments, {"iterable"});
  const auto list = Items(space, Required(space, arguments, iterable, "iterable"));
  for (const Value& item : list->items) {
    if (!item.is(Kind::kString)) {
      space.Fail(fmt::format("join of {}, not of strings", KindName(item.kind())));
    }
  }
  return Join(space, list->items, self.text());
}

Value FindText(Workspace& space, const Value& self, const Arguments& arguments) {
  const auto [needle] = Bind(space, arguments, {"sub"});
  space.ChargeReading(self.text().size());
  const size_t at = Find(self.text(), RequiredText(space, arguments, needle, "sub"));
  return Value::Int(at == std::string_view::npos
                        ? -1
                        : static_cast<int64_t>(CountCharacters(self.text().substr(0, at))));
}

Value FindLastText(Workspace& space, const Value& self, const Arguments& arguments) {
  const auto [needle] = Bind(space, arguments, {"sub"});
  const std::string_view sub = RequiredText(space, arguments, needle, "sub");
  space.ChargeReading(self.text().size());
  if (sub.empty()) {
    return Value::Int(Length(space, self));
  }
  const auto pieces = Split(self.text(), sub, 1, /*from_right=*/true);
  return Value::Int(pieces.size() == 1 ? -1 : static_cast<int64_t>(CountCharacters(pieces[0])));
}

Value CountText(Workspace& space, const Value& self, const Arguments& arguments) {
  const auto [needle] = Bind(space, arguments, {"sub"});
  const std::string_view sub = RequiredText(space, arguments, needle, "sub");
  if (sub.empty()) {
    return Value::Int(Length(space, self) + 1);
  }
  space.ChargeReading(self.text().size());
  int64_t count = 0;
  for (size_t at = Find(self.text(), sub); at != std::string_view::npos;
       at = Find(self.text(), sub, at + sub.size())) {
    ++count;
  }
  return Value::Int(count);
}

bool IsAsciiDigit(uint32_t code) { return code >= '0' && code <= '9'; }
bool IsAnyLetter(uint32_t code) {
  return (code | 0x20u) >= 'a' && (code | 0x20u) <= 'z' ? code < 0x80
                                                        : code > 0xA0 && !IsSpace(code);
}
bool IsLetterOrDigit(uint32_t code) { return IsAsciiDigit(code) || IsAnyLetter(code); }

template <bool (*kIs)(uint32_t)>
Value AllCharacters(Workspace& space, const Value& self, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  const std::string_view text = self.text();
  space.ChargeReading(text.size());
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    if (!kIs(character.code)) {
      return Value::Bool(false);
    }
    at += character.size;
  }
  return Value::Bool(!text.empty());
}

// Some letter has a case, and each that has one is unchanged.
template <std::string (*kChange)(std::string_view)>
Value HasCase(Workspace& space, const Value& self, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  space.ChargeMaking(2 * self.text().size());
  return Value::Bool(kChange(self.text()) == self.text() &&
                     ToLower(self.text()) != ToUpper(self.text()));
}

Value Get(Workspace& space, const Value& self, const Arguments& arguments) {
  const auto [key, otherwise] = Bind(space, arguments, {"key", "default"});
  const Value& name = Required(space, arguments, key, "key");
  const Value* there =
      name.is(Kind::kString) ? FindEntry(space, self.dict(), name.text()) : nullptr;
  return there != nullptr ? *there : otherwise != nullptr ? *otherwise : Value::None();
}

Value Entries(Workspace& space, const Value& self, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  return DictItems(space, self.dict(), Kind::kList);
}

Value Keys(Workspace& space, const Value& self, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  return Value::Sequence(Kind::kList, Items(space, self));
}

Value Values(Workspace& space, const Value& self, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  std::vector<Value> values;
  for (const DictBody::Entry& entry : self.dict().entries()) {
    values.push_back(entry.second);
  }
  return space.MakeList(std::move(values));
}

Value CopyDict(Workspace& space, const Value& self, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  return self;
}

int64_t CountItems(Workspace& space, const Value& self, const Value& item) {
  return std::count_if(self.items().begin(), self.items().end(),
                       [&](const Value& other) { return Equal(space, other, item); });
}

Value CountItem(Workspace& space, const Value& self, const Arguments& arguments) {
  const auto [item] = Bind(space, arguments, {"value"});
  return Value::Int(CountItems(space, self, Required(space, arguments, item, "value")));
}

Value IndexOf(Workspace& space, const Value& self, const Arguments& arguments) {
  const auto [item] = Bind(space, arguments, {"value"});
  const Value& wanted = Required(space, arguments, item, "value");
  for (size_t i = 0; i < self.items().size(); ++i) {
    if (Equal(space, self.items()[i], wanted)) {
      return Value::Int(static_cast<int64_t>(i));
    }
  }
  space.Fail("index of what is not in the list");
}

struct Row {
  std::string_view name;
  Filter method;
};

constexpr Row kStringMethods[] = {
    {"capitalize", Changed<Capitalize>},
    {"count", CountText},
    {"endswith", EndsWith},
    {"find", FindText},
    {"isalnum", AllCharacters<IsLetterOrDigit>},
    {"isalpha", AllCharacters<IsAnyLetter>},
    {"isdigit", AllCharacters<IsAsciiDigit>},
    {"islower", HasCase<ToLower>},
    {"isspace", AllCharacters<IsSpace>},
    {"isupper", HasCase<ToUpper>},
    {"join", JoinItems},
    {"lower", Changed<ToLower>},
    {"lstrip", StripLeft},
    {"partition", PartitionLeft},
    {"removeprefix", RemovePrefix},
    {"removesuffix", RemoveSuffix},
    {"replace", ReplaceText},
    {"rfind", FindLastText},
    {"rpartition", PartitionRight},
    {"rsplit", SplitRight},
    {"rstrip", StripRight},
    {"split", SplitLeft},
    {"splitlines", SplitAtLines},
    {"startswith", StartsWith},
    {"strip", StripBoth},
    {"title", Changed<TitleByLetters>},
    {"upper", Changed<ToUpper>},
};
constexpr Row kListMethods[] = {{"count", CountItem}, {"index", IndexOf}};
constexpr Row kDictMethods[] = {
    {"copy", CopyDict}, {"get", Get}, {"items", Entries}, {"keys", Keys}, {"values", Values},
};

template <size_t N>
Filter FindRow(const Row (&rows)[N], std::string_view name) {
  for (const Row& row : rows) {
    if (row.name == name) {
      return row.method;
    }
  }
  return nullptr;
}

}  // namespace

Filter FindMethod(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kString:
      return FindRow(kStringMethods, name);
    case Kind::kList:
    case Kind::kTuple:
      return FindRow(kListMethods, name);
    case Kind::kDict:
      return FindRow(kDictMethods, name);
    default:
      return nullptr;
  }
}

bool IsMethodName(std::string_view name) {
  return FindMethod(Kind::kString, name) != nullptr || FindMethod(Kind::kList, name) != nullptr ||
         FindMethod(Kind::kDict, name) != nullptr;
}

}  // namespace tessera::jinja
