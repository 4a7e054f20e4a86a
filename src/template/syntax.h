// SPDX-License-Identifier: Apache-2.0
//
// The syntax tree of a template. Names are numbered, so that a scope compares numbers; filters,
// tests and functions are already the code they name.
//
// Every Expr and statement nests at most kNestingMax deep, chains such as a + b + c included.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "template/builtins.h"
#include "template/operators.h"
#include "template/template_error.h"
#include "template/value.h"

namespace tessera::jinja {

using Symbol = uint32_t;

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind : uint8_t {
    kConstant,
    kName,
    kList,
    kTuple,
    kDict,  // operands: key, value, key, value …
    kAttribute,
    kItem,
    kSlice,   // operands: object, start, stop, step; null where left out
    kCall,    // operands: what is called, arguments …
    kFilter,  // operands: input, arguments …
    kTest,    // operands: input, arguments …
    kNot,
    kAnd,  // two or more operands
    kOr,
    kJoin,  // ~, two or more operands
    kNegate,
    kArithmetic,
    kCompare,      // one operand more than operators: a < b < c
    kConditional,  // operands: condition, value, otherwise (null: undefined)
    kBlockText,    // what the block around a filter wrote
  };

  Kind kind = Kind::kConstant;
  Place place;
  int depth = 1;
  Symbol symbol = 0;  // kName
  String name;        // kName, kAttribute, kFilter, kTest
  Value constant;
  std::vector<ExprPtr> operands;
  std::vector<std::pair<String, ExprPtr>> named;  // arguments
  std::vector<Operator> operators;                // kArithmetic has one
  Filter filter = nullptr;
  Test test = nullptr;
  bool is_function = false;  // kName: the name of one, unless a variable has it
};

struct Statement;
using Body = std::vector<Statement>;

// A variable, or a member of a namespace.
struct Target {
  Place place;
  Symbol symbol = 0;
  String member = nullptr;  // null: the variable itself
};

struct MacroDefinition {
  struct Parameter {
    String name;
    Symbol symbol = 0;
    ExprPtr otherwise;  // null: undefined
  };
  String name;
  std::vector<Parameter> parameters;
  Body body;
};

struct Statement {
  enum class Kind : uint8_t {
    kText,
    kOutput,
    kIf,
    kFor,
    kSet,
    kSetBlock,  // expr: kBlockText, or filters of it
    kMacro,
    kCall,        // expr: the call; macro: its body
    kFilter,      // as kSetBlock, but written
    kWith,        // targets and values
    kGeneration,  // {% generation %}: a scope
    kBreak,
    kContinue,
  };
  struct Branch {
    ExprPtr condition;  // null: else
    Body body;
  };

  Kind kind = Kind::kText;
  Place place;
  Value text;
  ExprPtr expr;  // of a for: what it runs over
  std::vector<Target> targets;
  std::vector<ExprPtr> values;
  ExprPtr filter;  // of a for: `if`
  std::vector<Branch> branches;
  Body body;
  Body otherwise;
  std::unique_ptr<MacroDefinition> macro;
};

struct Program {
  Body body;
  std::map<std::string, Symbol, std::less<>> symbols;
  std::vector<bool> read;  // by symbol: the template looks at its value
};

}  // namespace tessera::jinja
