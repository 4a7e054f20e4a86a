// SPDX-License-Identifier: Apache-2.0
//
// The tests of `is`.
#include <fmt/format.h>

#include "template/builtins.h"
#include "template/operators.h"
#include "template/text.h"

namespace tessera::jinja {
namespace {

void NoArguments(Workspace& space, const Arguments& arguments) {
  BindArguments(space, arguments, nullptr, nullptr, 0);
}

template <Kind... kKinds>
bool IsKind(Workspace& space, const Value& value, const Arguments& arguments) {
  NoArguments(space, arguments);
  return (value.is(kKinds) || ...);
}

bool IsDefined(Workspace& space, const Value& value, const Arguments& arguments) {
  NoArguments(space, arguments);
  return !value.is(Kind::kUndefined);
}

bool IsTrue(Workspace& space, const Value& value, const Arguments& arguments) {
  NoArguments(space, arguments);
  return value.is(Kind::kBool) && value.boolean();
}

bool IsFalse(Workspace& space, const Value& value, const Arguments& arguments) {
  NoArguments(space, arguments);
  return value.is(Kind::kBool) && !value.boolean();
}

template <Operator kOperator>
bool Compares(Workspace& space, const Value& value, const Arguments& arguments) {
  const auto [other] = Bind(space, arguments, {"other"});
  return Compare(space, kOperator, value, Required(space, arguments, other, "other"));
}

bool IsDivisible(Workspace& space, const Value& value, const Arguments& arguments) {
  const auto [number] = Bind(space, arguments, {"num"});
  const Value remainder =
      Arithmetic(space, Operator::kModulo, value, Required(space, arguments, number, "num"));
  return !Truth(remainder);
}

template <int kRemainder>
bool IsParity(Workspace& space, const Value& value, const Arguments& arguments) {
  NoArguments(space, arguments);
  return Equal(space, Arithmetic(space, Operator::kModulo, value, Value::Int(2)),
               Value::Int(kRemainder));
}

template <std::string (*kChange)(std::string_view)>
bool IsCase(Workspace& space, const Value& value, const Arguments& arguments) {
  NoArguments(space, arguments);
  if (!value.is(Kind::kString)) {
    return false;
  }
  space.ChargeMaking(2 * value.text().size());
  return kChange(value.text()) == value.text() && ToLower(value.text()) != ToUpper(value.text());
}

bool IsSame(Workspace& space, const Value& value, const Arguments& arguments) {
  const auto [other] = Bind(space, arguments, {"other"});
  const Value& there = Required(space, arguments, other, "other");
  if (value.identity() != nullptr || there.identity() != nullptr) {
    return value.identity() == there.identity();
  }
  return value.kind() == there.kind() && Equal(space, value, there);
}

bool IsFilterName(Workspace& space, const Value& value, const Arguments& arguments) {
  NoArguments(space, arguments);
  return value.is(Kind::kString) && FindFilter(value.text()) != nullptr;
}

bool IsTestName(Workspace& space, const Value& value, const Arguments& arguments) {
  NoArguments(space, arguments);
  return value.is(Kind::kString) && FindTest(value.text()) != nullptr;
}

}  // namespace

Test FindTest(std::string_view name) {
  struct Row {
    std::string_view name;
    Test test;
  };
  static constexpr Row kTests[] = {
      {"!=", Compares<Operator::kNotEqual>},
      {"<", Compares<Operator::kLess>},
      {"<=", Compares<Operator::kLessEqual>},
      {"==", Compares<Operator::kEqual>},
      {">", Compares<Operator::kGreater>},
      {">=", Compares<Operator::kGreaterEqual>},
      {"boolean", IsKind<Kind::kBool>},
      {"callable", IsKind<Kind::kMacro, Kind::kMethod, Kind::kFunction>},
      {"defined", IsDefined},
      {"divisibleby", IsDivisible},
      {"eq", Compares<Operator::kEqual>},
      {"equalto", Compares<Operator::kEqual>},
      {"even", IsParity<0>},
      {"false", IsFalse},
      {"filter", IsFilterName},
      {"float", IsKind<Kind::kFloat>},
      {"ge", Compares<Operator::kGreaterEqual>},
      {"greaterthan", Compares<Operator::kGreater>},
      {"gt", Compares<Operator::kGreater>},
      {"in", Compares<Operator::kIn>},
      {"integer", IsKind<Kind::kInt>},
      // Python's Undefined, an empty sequence, is iterable; so is a string.
      {"iterable", IsKind<Kind::kString, Kind::kList, Kind::kTuple, Kind::kGenerator, Kind::kDict,
                          Kind::kLoop, Kind::kUndefined>},
      {"le", Compares<Operator::kLessEqual>},
      {"lessthan", Compares<Operator::kLess>},
      {"lower", IsCase<ToLower>},
      {"lt", Compares<Operator::kLess>},
      {"mapping", IsKind<Kind::kDict>},
      {"ne", Compares<Operator::kNotEqual>},
      {"none", IsKind<Kind::kNone>},
      {"number", IsKind<Kind::kBool, Kind::kInt, Kind::kFloat>},
      {"odd", IsParity<1>},
      {"sameas", IsSame},
      {"sequence", IsKind<Kind::kString, Kind::kList, Kind::kTuple, Kind::kDict, Kind::kUndefined>},
      {"string", IsKind<Kind::kString>},
      {"test", IsTestName},
      {"true", IsTrue},
      {"undefined", IsKind<Kind::kUndefined>},
      {"upper", IsCase<ToUpper>},
  };
  for (const Row& row : kTests) {
    if (row.name == name) {
      return row.test;
    }
  }
  return nullptr;
}

}  // namespace tessera::jinja
