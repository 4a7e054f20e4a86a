// SPDX-License-Identifier: Apache-2.0
//
// What Python's operators do with values, as Jinja's sandbox lets templates use them. Integers are
// 64 bits; a result beyond that is an error.
//
// `a.b` and `a[b]` of Jinja: a dot looks for a method first and an entry second, brackets the other
// way round; what is not there is undefined, and looking into undefined is an error.
//
// Work grows with the operands, and is charged. Failure: TemplateError through the workspace.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "template/value.h"
#include "template/workspace.h"

namespace tessera::jinja {

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

Value Arithmetic(Workspace& space, Operator op, const Value& left, const Value& right);
Value Negate(Workspace& space, const Value& value);
bool Compare(Workspace& space, Operator op, const Value& left, const Value& right);
bool Equal(Workspace& space, const Value& left, const Value& right);
// <0, 0, >0; numbers with numbers, strings with strings, lists with lists.
int Order(Workspace& space, const Value& left, const Value& right);

Value GetAttribute(Workspace& space, const Value& object, const String& name);
Value GetItem(Workspace& space, const Value& object, const Value& key);
struct SliceBounds {
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  int64_t step = 1;
};
Value GetSlice(Workspace& space, const Value& object, const SliceBounds& bounds);

// The entry, or null. A long key takes as long to compare as it takes to read.
const Value* FindEntry(Workspace& space, const DictBody& dict, std::string_view key);

// What a `for` runs over: items, characters, keys; nothing for undefined.
std::shared_ptr<const ListBody> Items(Workspace& space, const Value& value);
int64_t Length(Workspace& space, const Value& value);
// An int or a bool, or an error that says what `role` should have been.
int64_t ToInteger(Workspace& space, const Value& value, std::string_view role);

}  // namespace tessera::jinja
