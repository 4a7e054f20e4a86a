// SPDX-License-Identifier: Apache-2.0
#include "template/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "template/builtins.h"
#include "template/text.h"

namespace tessera::jinja {
namespace {

std::string_view Symbol(Operator op) {
  static constexpr std::string_view kSymbols[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

std::string DescribeUndefined(const Value& value) {
  return value.missing_name().empty() ? "an item is undefined"
                                      : fmt::format("'{}' is undefined", value.missing_name());
}

[[noreturn]] void FailOperands(Workspace& space, Operator op, const Value& left,
                               const Value& right) {
  for (const Value* operand : {&left, &right}) {
    if (operand->is(Kind::kUndefined)) {
      space.Fail(DescribeUndefined(*operand));
    }
  }
  space.Fail(fmt::format("'{}' does not take {} and {}", Symbol(op), KindName(left.kind()),
                         KindName(right.kind())));
}

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

// Python's: the remainder has the sign of the divisor.
double FloorModulo(double a, double b) {
  const double remainder = std::fmod(a, b);
  return remainder != 0 && (remainder < 0) != (b < 0) ? remainder + b : remainder;
}

Value IntegerPower(Workspace& space, int64_t base, int64_t exponent) {
  int64_t result = 1;
  for (bool overflow = false; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) {
      overflow = __builtin_mul_overflow(result, base, &result);
    }
    if (overflow || (exponent > 1 && __builtin_mul_overflow(base, base, &base))) {
      space.Fail("'**' gives more than 64 bits");
    }
  }
  return Value::Int(result);
}

Value IntegerArithmetic(Workspace& space, Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case Operator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kPower:
      return b < 0 ? Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)))
                   : IntegerPower(space, a, b);
    default:
      if (b == 0) {
        space.Fail(fmt::format("'{}' by zero", Symbol(op)));
      }
      if (op == Operator::kDivide) {
        return Value::Float(static_cast<double>(a) / static_cast<double>(b));
      }
      overflow = a == std::numeric_limits<int64_t>::min() && b == -1;
      if (!overflow) {
        result = op == Operator::kFloorDivide ? FloorDivide(a, b) : a - FloorDivide(a, b) * b;
      }
  }
  if (overflow) {
    space.Fail(fmt::format("'{}' gives more than 64 bits", Symbol(op)));
  }
  return Value::Int(result);
}

Value FloatArithmetic(Workspace& space, Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return Value::Float(a + b);
    case Operator::kSubtract:
      return Value::Float(a - b);
    case Operator::kMultiply:
      return Value::Float(a * b);
    case Operator::kPower:
      return Value::Float(std::pow(a, b));
    default:
      break;
  }
  if (b == 0) {
    space.Fail(fmt::format("'{}' by zero", Symbol(op)));
  }
  if (op == Operator::kDivide) {
    return Value::Float(a / b);
  }
  const double remainder = FloorModulo(a, b);
  return Value::Float(op == Operator::kModulo ? remainder : std::floor((a - remainder) / b + 0.5));
}

Value Repeat(Workspace& space, const Value& value, int64_t count) {
  const uint64_t times = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  const uint64_t unit =
      value.is(Kind::kString) ? value.text().size() : value.items().size() * sizeof(Value);
  const bool too_much = unit != 0 && times > kBytesMadeMax / unit;
  space.ChargeMaking(too_much ? kBytesMadeMax + 1 : unit * times);
  if (value.is(Kind::kString)) {
    std::string text;
    for (uint64_t i = 0; i < times && unit != 0; ++i) {
      text += value.text();
    }
    return space.MakeString(std::move(text));
  }
  std::vector<Value> items;
  for (uint64_t i = 0; i < times && unit != 0; ++i) {
    items.insert(items.end(), value.items().begin(), value.items().end());
  }
  return space.MakeSequence(value.kind(), std::move(items));
}

bool IsRepeatable(const Value& value) {
  return value.is(Kind::kString) || value.is(Kind::kList) || value.is(Kind::kTuple);
}

Value Concatenate(Workspace& space, const Value& left, const Value& right) {
  if (left.is(Kind::kString)) {
    space.ChargeMaking(left.text().size() + right.text().size());
    std::string text(left.text());
    text += right.text();
    return Value::Text(std::make_shared<const std::string>(std::move(text)));
  }
  space.ChargeMaking((left.items().size() + right.items().size()) * sizeof(Value));
  std::vector<Value> items = left.items();
  items.insert(items.end(), right.items().begin(), right.items().end());
  return space.MakeSequence(left.kind(), std::move(items));
}

bool EqualItems(Workspace& space, const std::vector<Value>& left, const std::vector<Value>& right) {
  if (left.size() != right.size()) {
    return false;
  }
  for (size_t i = 0; i < left.size(); ++i) {
    if (!Equal(space, left[i], right[i])) {
      return false;
    }
  }
  return true;
}

// The first items that differ decide, or else the lengths.
int OrderItems(Workspace& space, const std::vector<Value>& left, const std::vector<Value>& right) {
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!Equal(space, left[i], right[i])) {
      return Order(space, left[i], right[i]);
    }
  }
  return left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0;
}

bool EqualDicts(Workspace& space, const DictBody& left, const DictBody& right) {
  if (left.entries().size() != right.entries().size()) {
    return false;
  }
  for (const auto& [key, value] : left.entries()) {
    const Value* other = FindEntry(space, right, *key);
    if (other == nullptr || !Equal(space, value, *other)) {
      return false;
    }
  }
  return true;
}

bool Contains(Workspace& space, Operator op, const Value& container, const Value& item) {
  switch (container.kind()) {
    case Kind::kString:
      if (!item.is(Kind::kString)) {
        FailOperands(space, op, item, container);
      }
      space.ChargeReading(container.text().size() + item.text().size());
      return Find(container.text(), item.text()) != std::string_view::npos;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kGenerator:
      return std::any_of(container.items().begin(), container.items().end(),
                         [&](const Value& other) { return Equal(space, item, other); });
    case Kind::kDict:
      return item.is(Kind::kString) && FindEntry(space, container.dict(), item.text()) != nullptr;
    case Kind::kUndefined:
      return false;  // it is empty
    default:
      FailOperands(space, op, item, container);
  }
}

Value LoopAttribute(Workspace& space, const LoopState& loop, const String& name) {
  const std::vector<Value>& items = loop.items->items;
  const auto size = static_cast<int64_t>(items.size());
  const auto index = static_cast<int64_t>(loop.index);
  const std::string_view key = *name;
  if (key == "index") return Value::Int(index + 1);
  if (key == "index0") return Value::Int(index);
  if (key == "revindex") return Value::Int(size - index);
  if (key == "revindex0") return Value::Int(size - index - 1);
  if (key == "first") return Value::Bool(index == 0);
  if (key == "last") return Value::Bool(index + 1 == size);
  if (key == "length") return Value::Int(size);
  if (key == "depth") return Value::Int(1);  // of recursive loops, which are not supported
  if (key == "depth0") return Value::Int(0);
  if (key == "previtem" && index > 0) return items[loop.index - 1];
  if (key == "nextitem" && index + 1 < size) return items[loop.index + 1];
  if (key == "previtem" || key == "nextitem") return Value::Undefined(name);
  space.Fail(fmt::format("'loop.{}' is not supported", key));
}

[[noreturn]] void FailLookup(Workspace& space, const Value& object, std::string_view name) {
  space.Fail(fmt::format("{}, so it has no '{}'", DescribeUndefined(object), name));
}

// Methods and members; what `object.name` finds before it looks at entries.
std::optional<Value> FindMember(Workspace& space, const Value& object, const String& name) {
  switch (object.kind()) {
    case Kind::kNamespace: {
      const Value* member = object.space().members.Find(*name);
      return member != nullptr ? *member : Value::Undefined(name);
    }
    case Kind::kLoop:
      return LoopAttribute(space, object.loop(), name);
    default:
      if (FindMethod(object.kind(), *name) != nullptr) {
        space.ChargeMaking(sizeof(BoundMethod));
        return Value::Method(object, *name);
      }
      return std::nullopt;
  }
}

Value CharacterOf(Workspace& space, std::string_view text, int64_t index) {
  space.ChargeReading(text.size());
  const auto from_end = index < 0 ? static_cast<int64_t>(CountCharacters(text)) : 0;
  int64_t left = index + from_end;
  for (size_t at = 0; left >= 0 && at < text.size(); --left) {
    const size_t size = CharacterAt(text, at).size;
    if (left == 0) {
      return space.MakeString(text.substr(at, size));
    }
    at += size;
  }
  return Value();
}

// The indices a slice of `size` items picks, as Python's slice.indices.
std::vector<size_t> Indices(Workspace& space, int64_t size, const SliceBounds& bounds) {
  const int64_t step = bounds.step;
  if (step == 0) {
    space.Fail("the step of a slice is 0");
  }
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? size : size - 1;
  const auto place = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound.has_value()) {
      return otherwise;
    }
    return std::clamp(*bound < 0 ? *bound + size : *bound, low, high);
  };
  const int64_t start = place(bounds.start, step > 0 ? low : high);
  const int64_t stop = place(bounds.stop, step > 0 ? high : low);
  std::vector<size_t> indices;
  if (step > 0) {
    for (int64_t i = start; i < stop; i += std::min(step, size + 1)) {
      indices.push_back(static_cast<size_t>(i));
    }
  } else {
    for (int64_t i = start; i > stop; i += std::max(step, -size - 1)) {
      indices.push_back(static_cast<size_t>(i));
    }
  }
  return indices;
}

}  // namespace

Value Arithmetic(Workspace& space, Operator op, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return IntegerArithmetic(space, op, left.integer(), right.integer());
  }
  if (left.is_number() && right.is_number()) {
    return FloatArithmetic(space, op, left.number(), right.number());
  }
  if (op == Operator::kAdd && left.kind() == right.kind() && IsRepeatable(left)) {
    return Concatenate(space, left, right);
  }
  if (op == Operator::kMultiply && IsRepeatable(left) && right.is_integral()) {
    return Repeat(space, left, right.integer());
  }
  if (op == Operator::kMultiply && left.is_integral() && IsRepeatable(right)) {
    return Repeat(space, right, left.integer());
  }
  FailOperands(space, op, left, right);
}

Value Negate(Workspace& space, const Value& value) {
  if (value.is_integral()) {
    return IntegerArithmetic(space, Operator::kSubtract, 0, value.integer());
  }
  if (!value.is_number()) {
    FailOperands(space, Operator::kSubtract, Value::Int(0), value);
  }
  return Value::Float(-value.number());
}

bool Equal(Workspace& space, const Value& left, const Value& right) {
  space.ChargeSteps(1);
  if (left.is_number() && right.is_number()) {
    return left.is_integral() && right.is_integral() ? left.integer() == right.integer()
                                                     : left.number() == right.number();
  }
  if (left.kind() != right.kind()) {
    return false;
  }
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      space.ChargeReading(std::min(left.text().size(), right.text().size()));
      return left.text() == right.text();
    case Kind::kList:
    case Kind::kTuple:
      return EqualItems(space, left.items(), right.items());
    case Kind::kDict:
      return EqualDicts(space, left.dict(), right.dict());
    case Kind::kNamespace:
      return &left.space() == &right.space();
    case Kind::kLoop:
      return &left.loop() == &right.loop();
    case Kind::kFunction:
      return left.function() == right.function();
    case Kind::kMacro:
      return &left.macro() == &right.macro();
    default:
      return false;
  }
}

int Order(Workspace& space, const Value& left, const Value& right) {
  space.ChargeSteps(1);
  if (left.is_integral() && right.is_integral()) {
    return left.integer() < right.integer() ? -1 : left.integer() > right.integer() ? 1 : 0;
  }
  if (left.is_number() && right.is_number()) {
    return left.number() < right.number() ? -1 : left.number() > right.number() ? 1 : 0;
  }
  if (left.is(Kind::kString) && right.is(Kind::kString)) {
    // The order of UTF-8 bytes is that of code points.
    space.ChargeReading(std::min(left.text().size(), right.text().size()));
    return left.text().compare(right.text());
  }
  if (left.kind() == right.kind() && (left.is(Kind::kList) || left.is(Kind::kTuple))) {
    return OrderItems(space, left.items(), right.items());
  }
  FailOperands(space, Operator::kLess, left, right);
}

bool Compare(Workspace& space, Operator op, const Value& left, const Value& right) {
  switch (op) {
    case Operator::kEqual:
      return Equal(space, left, right);
    case Operator::kNotEqual:
      return !Equal(space, left, right);
    case Operator::kIn:
      return Contains(space, op, right, left);
    case Operator::kNotIn:
      return !Contains(space, op, right, left);
    default:
      break;
  }
  if (left.is_number() && right.is_number() &&
      (std::isnan(left.number()) || std::isnan(right.number()))) {
    return false;
  }
  const int order = Order(space, left, right);
  switch (op) {
    case Operator::kLess:
      return order < 0;
    case Operator::kLessEqual:
      return order <= 0;
    case Operator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

Value GetAttribute(Workspace& space, const Value& object, const String& name) {
  if (object.is(Kind::kUndefined)) {
    FailLookup(space, object, *name);
  }
  if (std::optional<Value> member = FindMember(space, object, name); member.has_value()) {
    return *std::move(member);
  }
  if (object.is(Kind::kDict)) {
    if (const Value* entry = object.dict().Find(*name); entry != nullptr) {
      return *entry;
    }
  }
  return Value::Undefined(name);
}

Value GetItem(Workspace& space, const Value& object, const Value& key) {
  if (object.is(Kind::kUndefined)) {
    FailLookup(space, object, key.is(Kind::kString) ? key.text() : KindName(key.kind()));
  }
  if (key.is(Kind::kString)) {
    if (object.is(Kind::kDict)) {
      if (const Value* entry = FindEntry(space, object.dict(), key.text()); entry != nullptr) {
        return *entry;
      }
    }
    std::optional<Value> member = FindMember(space, object, key.string());
    return member.has_value() ? *std::move(member) : Value::Undefined(key.string());
  }
  if (!key.is_integral()) {
    return Value();
  }
  const int64_t index = key.integer();
  if (object.is(Kind::kString)) {
    return CharacterOf(space, object.text(), index);
  }
  if (object.is(Kind::kList) || object.is(Kind::kTuple)) {
    const auto size = static_cast<int64_t>(object.items().size());
    if (index >= -size && index < size) {
      return object.items()[static_cast<size_t>(index < 0 ? index + size : index)];
    }
  }
  return Value();
}

Value GetSlice(Workspace& space, const Value& object, const SliceBounds& bounds) {
  if (object.is(Kind::kString)) {
    space.ChargeMaking(object.text().size() * sizeof(size_t));  // the offsets
    const std::vector<size_t> offsets = CharacterOffsets(object.text());
    std::string text;
    for (const size_t i : Indices(space, static_cast<int64_t>(offsets.size()) - 1, bounds)) {
      text += object.text().substr(offsets[i], offsets[i + 1] - offsets[i]);
    }
    return space.MakeString(std::move(text));
  }
  if (object.is(Kind::kList) || object.is(Kind::kTuple)) {
    space.ChargeSteps(object.items().size() / 8);
    std::vector<Value> items;
    for (const size_t i : Indices(space, static_cast<int64_t>(object.items().size()), bounds)) {
      items.push_back(object.items()[i]);
    }
    return space.MakeSequence(object.kind(), std::move(items));
  }
  if (object.is(Kind::kUndefined)) {
    FailLookup(space, object, "slice");
  }
  return Value();
}

const Value* FindEntry(Workspace& space, const DictBody& dict, std::string_view key) {
  space.ChargeReading(4 * key.size());  // a few comparisons
  return dict.Find(key);
}

std::shared_ptr<const ListBody> Items(Workspace& space, const Value& value) {
  if (value.is_sequence()) {
    return value.list();
  }
  std::vector<Value> items;
  switch (value.kind()) {
    case Kind::kString:
      for (size_t at = 0; at < value.text().size();) {
        const size_t size = CharacterAt(value.text(), at).size;
        items.push_back(space.MakeString(value.text().substr(at, size)));
        at += size;
      }
      break;
    case Kind::kDict:
      space.ChargeSteps(value.dict().entries().size());
      for (const DictBody::Entry& entry : value.dict().entries()) {
        items.push_back(Value::Text(entry.first));
      }
      break;
    case Kind::kUndefined:
      break;
    default:
      space.Fail(fmt::format("{} cannot be looped over", KindName(value.kind())));
  }
  return space.MakeList(std::move(items)).list();
}

int64_t Length(Workspace& space, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      space.ChargeReading(value.text().size());
      return static_cast<int64_t>(CountCharacters(value.text()));
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().entries().size());
    default:
      space.Fail(fmt::format("{} has no length", KindName(value.kind())));
  }
}

int64_t ToInteger(Workspace& space, const Value& value, std::string_view role) {
  if (!value.is_integral()) {
    space.Fail(fmt::format("{} is {}, not an int", role, KindName(value.kind())));
  }
  return value.integer();
}

}  // namespace tessera::jinja
