// SPDX-License-Identifier: Apache-2.0
#include "template/list_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>
#include <string>

#include "template/operators.h"
#include "template/python_text.h"
#include "template/text.h"

namespace tessera::jinja {
namespace {

// `attribute` of sort, map and the like: names and indices joined by dots.
Value LookUp(Workspace& space, const Value& item, const Value& attribute) {
  if (attribute.is_integral()) {
    return GetItem(space, item, attribute);
  }
  if (!attribute.is(Kind::kString)) {
    space.Fail(fmt::format("an attribute is {}, not a name", KindName(attribute.kind())));
  }
  Value value = item;
  for (const std::string_view part : Split(attribute.text(), ".", std::string::npos, false)) {
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = error == std::errc() && end == part.data() + part.size();
    value = GetItem(space, value, is_index ? Value::Int(index) : space.MakeString(part));
  }
  return value;
}

// Strings compare without case unless `sensitive`.
Value Folded(Workspace& space, Value value, bool sensitive) {
  return sensitive || !value.is(Kind::kString) ? std::move(value)
                                               : space.MakeString(ToLower(value.text()));
}

bool IsSet(const Value* flag) { return flag != nullptr && Truth(*flag); }

// Python's tuples of keys: the first that differs decides.
using SortKey = std::vector<Value>;

bool Before(Workspace& space, const SortKey& a, const SortKey& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    if (const int order = Order(space, a[i], b[i]); order != 0) {
      return order < 0;
    }
  }
  return false;
}

// Stable, also in reverse.
std::vector<Value> SortedBy(Workspace& space, const std::vector<Value>& items,
                            const std::vector<SortKey>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) {
    order[i] = i;
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return reverse ? Before(space, keys[b], keys[a]) : Before(space, keys[a], keys[b]);
  });
  std::vector<Value> sorted;
  sorted.reserve(items.size());
  for (const size_t i : order) {
    sorted.push_back(items[i]);
  }
  return sorted;
}

Value Sort(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [reverse, sensitive, attribute] =
      Bind(space, arguments, {"reverse", "case_sensitive", "attribute"});
  const auto list = Items(space, input);
  std::vector<SortKey> keys;
  for (const Value& item : list->items) {
    SortKey& key = keys.emplace_back();
    if (attribute == nullptr || attribute->is(Kind::kNone)) {
      key.push_back(Folded(space, item, IsSet(sensitive)));
    } else if (!attribute->is(Kind::kString)) {
      key.push_back(Folded(space, LookUp(space, item, *attribute), IsSet(sensitive)));
    } else {
      for (const std::string_view name : Split(attribute->text(), ",", std::string::npos, false)) {
        key.push_back(Folded(space, LookUp(space, item, space.MakeString(name)), IsSet(sensitive)));
      }
    }
    space.ChargeMaking(sizeof(SortKey) + key.size() * sizeof(Value));
  }
  return space.MakeList(SortedBy(space, list->items, keys, IsSet(reverse)));
}

Value DictSort(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [sensitive, by, reverse] = Bind(space, arguments, {"case_sensitive", "by", "reverse"});
  const std::string_view what = by == nullptr ? "key" : RequiredText(space, arguments, by, "by");
  if (what != "key" && what != "value") {
    space.Fail("'by' of dictsort is 'key' or 'value'");
  }
  if (!input.is(Kind::kDict)) {
    space.Fail(fmt::format("dictsort of {}, not of a dict", KindName(input.kind())));
  }
  const Value items = DictItems(space, input.dict(), Kind::kList);
  std::vector<SortKey> keys;
  for (const Value& item : items.items()) {
    keys.push_back({Folded(space, item.items()[what == "key" ? 0 : 1], IsSet(sensitive))});
  }
  return space.MakeList(SortedBy(space, items.items(), keys, IsSet(reverse)));
}

Value Unique(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [sensitive, attribute] = Bind(space, arguments, {"case_sensitive", "attribute"});
  std::set<std::string> seen;
  std::vector<Value> kept;
  for (const auto list = Items(space, input); const Value& item : list->items) {
    Value key =
        attribute == nullptr || attribute->is(Kind::kNone) ? item : LookUp(space, item, *attribute);
    key = Folded(space, std::move(key), IsSet(sensitive));
    if (key.is(Kind::kList) || key.is(Kind::kDict)) {
      space.Fail(fmt::format("unique of {}, which Python cannot hash", KindName(key.kind())));
    }
    // Numbers that are equal have one text; a string's has quotes.
    std::string text;
    AppendRepr(space, key.is_number() ? Value::Float(key.number()) : key, text);
    if (seen.insert(std::move(text)).second) {
      kept.push_back(item);
    }
  }
  return space.MakeSequence(Kind::kGenerator, std::move(kept));
}

Value CountItems(Workspace& space, const Value& input, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  return Value::Int(Length(space, input));
}

Value JoinItems(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [separator, attribute] = Bind(space, arguments, {"d", "attribute"});
  const std::string between = separator == nullptr ? "" : ToText(space, *separator);
  const auto list = Items(space, input);
  if (attribute == nullptr || attribute->is(Kind::kNone)) {
    return Join(space, list->items, between);
  }
  std::vector<Value> values;
  for (const Value& item : list->items) {
    values.push_back(LookUp(space, item, *attribute));
  }
  return Join(space, values, between);
}

Value First(Workspace& space, const Value& input, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  if (input.is(Kind::kString)) {
    return GetItem(space, input, Value::Int(0));
  }
  const auto list = Items(space, input);
  return list->items.empty() ? Value() : list->items.front();
}

Value Last(Workspace& space, const Value& input, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  if (input.is(Kind::kString)) {
    return GetItem(space, input, Value::Int(-1));
  }
  const auto list = Items(space, input);
  return list->items.empty() ? Value() : list->items.back();
}

Value ToList(Workspace& space, const Value& input, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  return Value::Sequence(Kind::kList, Items(space, input));
}

Value ToItems(Workspace& space, const Value& input, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  if (input.is(Kind::kUndefined)) {
    return space.MakeSequence(Kind::kGenerator, {});
  }
  if (!input.is(Kind::kDict)) {
    space.Fail(fmt::format("items of {}, not of a dict", KindName(input.kind())));
  }
  return DictItems(space, input.dict(), Kind::kGenerator);
}

Value Reverse(Workspace& space, const Value& input, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
  if (input.is(Kind::kString)) {
    return GetSlice(space, input, {.start = std::nullopt, .stop = std::nullopt, .step = -1});
  }
  const auto list = Items(space, input);
  return space.MakeSequence(Kind::kGenerator, {list->items.rbegin(), list->items.rend()});
}

Value Sum(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [attribute, start] = Bind(space, arguments, {"attribute", "start"});
  Value total = start == nullptr ? Value::Int(0) : *start;
  for (const auto list = Items(space, input); const Value& item : list->items) {
    space.ChargeSteps(1);
    total = Arithmetic(space, Operator::kAdd, total,
                       attribute == nullptr || attribute->is(Kind::kNone)
                           ? item
                           : LookUp(space, item, *attribute));
  }
  return total;
}

template <int kSign>
Value Extreme(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [sensitive, attribute] = Bind(space, arguments, {"case_sensitive", "attribute"});
  Value best;
  Value best_key;
  for (const auto list = Items(space, input); const Value& item : list->items) {
    Value key =
        attribute == nullptr || attribute->is(Kind::kNone) ? item : LookUp(space, item, *attribute);
    key = Folded(space, std::move(key), IsSet(sensitive));
    if (best_key.is(Kind::kUndefined) || kSign * Order(space, key, best_key) > 0) {
      best = item;
      best_key = std::move(key);
    }
  }
  return best;
}

Value Batch(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto [count, fill] = Bind(space, arguments, {"linecount", "fill_with"});
  const int64_t size =
      ToInteger(space, Required(space, arguments, count, "linecount"), "linecount of batch");
  if (size < 1 || size > kRangeMax) {
    space.Fail(fmt::format("linecount of batch is not from 1 to {}", kRangeMax));
  }
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const auto list = Items(space, input); const Value& item : list->items) {
    batch.push_back(item);
    if (batch.size() == static_cast<size_t>(size)) {
      batches.push_back(space.MakeList(std::exchange(batch, {})));
    }
  }
  if (!batch.empty()) {
    if (fill != nullptr && !fill->is(Kind::kNone)) {
      batch.resize(static_cast<size_t>(size), *fill);
    }
    batches.push_back(space.MakeList(std::move(batch)));
  }
  return space.MakeSequence(Kind::kGenerator, std::move(batches));
}

// map(attribute='a', default=x) or map('filter', arguments of it…).
Value Map(Workspace& space, const Value& input, const Arguments& arguments) {
  const auto list = Items(space, input);
  std::vector<Value> mapped;
  if (arguments.positional.empty()) {
    const auto [attribute, otherwise] = Bind(space, arguments, {"attribute", "default"});
    const Value& name = Required(space, arguments, attribute, "attribute");
    for (const Value& item : list->items) {
      Value value = LookUp(space, item, name);
      mapped.push_back(value.is(Kind::kUndefined) && otherwise != nullptr ? *otherwise
                                                                          : std::move(value));
    }
    return space.MakeSequence(Kind::kGenerator, std::move(mapped));
  }
  const std::string_view name =
      RequiredText(space, arguments, &arguments.positional.front(), "filter");
  const Filter filter = FindFilter(name);
  if (filter == nullptr) {
    space.Fail(fmt::format("filter '{}' is not supported", name));
  }
  const Arguments rest = {
      .callee = name,
      .positional = {arguments.positional.begin() + 1, arguments.positional.end()},
      .named = arguments.named};
  for (const Value& item : list->items) {
    space.ChargeSteps(1);
    mapped.push_back(filter(space, item, rest));
  }
  return space.MakeSequence(Kind::kGenerator, std::move(mapped));
}

// select('test', …) and selectattr('attribute', 'test', …), kept where the test says `kKeep`.
template <bool kByAttribute, bool kKeep>
Value Select(Workspace& space, const Value& input, const Arguments& arguments) {
  const std::vector<Value>& given = arguments.positional;
  constexpr size_t kNameAt = kByAttribute ? 1 : 0;
  if (kByAttribute && given.empty()) {
    space.Fail(fmt::format("'{}' lacks its argument 'attribute'", arguments.callee));
  }
  Test test = nullptr;
  Arguments rest;
  rest.named = arguments.named;
  if (given.size() > kNameAt) {
    rest.callee = RequiredText(space, arguments, &given[kNameAt], "test");
    rest.positional.assign(given.begin() + kNameAt + 1, given.end());
    test = FindTest(rest.callee);
    if (test == nullptr) {
      space.Fail(fmt::format("test '{}' is not supported", rest.callee));
    }
  }
  std::vector<Value> kept;
  for (const auto list = Items(space, input); const Value& item : list->items) {
    space.ChargeSteps(1);
    const Value value = kByAttribute ? LookUp(space, item, given[0]) : item;
    if ((test == nullptr ? Truth(value) : test(space, value, rest)) == kKeep) {
      kept.push_back(item);
    }
  }
  return space.MakeSequence(Kind::kGenerator, std::move(kept));
}

}  // namespace

Filter FindListFilter(std::string_view name) {
  struct Row {
    std::string_view name;
    Filter filter;
  };
  static constexpr Row kFilters[] = {
      {"batch", Batch},
      {"count", CountItems},
      {"dictsort", DictSort},
      {"first", First},
      {"items", ToItems},
      {"join", JoinItems},
      {"last", Last},
      {"length", CountItems},
      {"list", ToList},
      {"map", Map},
      {"max", Extreme<1>},
      {"min", Extreme<-1>},
      {"reject", Select<false, false>},
      {"rejectattr", Select<true, false>},
      {"reverse", Reverse},
      {"select", Select<false, true>},
      {"selectattr", Select<true, true>},
      {"sort", Sort},
      {"sum", Sum},
      {"unique", Unique},
  };
  for (const Row& row : kFilters) {
    if (row.name == name) {
      return row.filter;
    }
  }
  return nullptr;
}

}  // namespace tessera::jinja
