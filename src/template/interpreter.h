// SPDX-License-Identifier: Apache-2.0
//
// The interpreter runs a program over given variables and writes its text.
//
// Scopes are Jinja's: the body of a for, a macro, a block of call, filter, set, with or generation
// has its own; an if has none. A name is looked for outwards, `set` changes the innermost scope
// alone, and each turn of a for starts with a scope that is empty.
//
// A scope in which a macro was made lives as long as the interpreter (the macro may be called after
// the scope ended); all others are used again.
//
// Failure: TemplateError. Threads: one per interpreter; the program is only read.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "template/syntax.h"
#include "template/workspace.h"

namespace tessera::jinja {

// Told when the body of a for has run for an item that is a list or a dict, with how much of the
// program's own text was written before and after. Not told within a block or macro, whose text is
// only placed later.
class LoopObserver {
 public:
  virtual ~LoopObserver() = default;
  virtual void IterationEnded(const void* item_identity, size_t begin, size_t end) = 0;
};

struct Scope {
  Scope* parent = nullptr;  // null: the variables of the template itself
  std::vector<std::pair<Symbol, Value>> variables;
  bool kept = false;  // a macro refers to it
};

// A macro as it is called: its text and where its names are looked for.
struct Macro {
  const MacroDefinition* definition = nullptr;
  Scope* scope = nullptr;
};

class Interpreter {
 public:
  // All outlive the interpreter. `observer` may be null.
  Interpreter(const Program* program, Workspace* space, LoopObserver* observer);

  void SetVariable(std::string_view name, Value value);
  std::string Run();

 private:
  enum class Flow { kNext, kBreak, kContinue };

  class Deeper;   // one evaluation more, within kEvaluationDepthMax
  class InScope;  // a scope of its own
  class Capture;  // text goes into a string of its own

  Flow RunBody(const Body& body);
  Flow RunStatement(const Statement& statement);
  Flow RunIf(const Statement& statement);
  Flow RunFor(const Statement& statement);
  std::vector<Value> FilteredItems(const Statement& statement, const std::vector<Value>& items);
  Flow RunIteration(const Statement& statement, const std::shared_ptr<LoopState>& loop);
  Flow RunSetBlock(const Statement& statement);
  Flow RunWith(const Statement& statement);
  void RunCallBlock(const Statement& statement);
  void DefineMacro(const Statement& statement);
  Value MakeMacro(const MacroDefinition& definition);

  void Write(const Value& value);
  void Assign(const std::vector<Target>& targets, const Value& value, Place place);
  void AssignOne(const Target& target, const Value& value);
  void SetInScope(Symbol symbol, Value value);
  const Value* Find(Symbol symbol);
  Value Name(const Expr& expr);

  Value Evaluate(const Expr& expr);
  Value EvaluateBlock(const Expr& expr, std::string text);  // text: what kBlockText is
  Value EvaluateSequence(const Expr& expr);
  Value EvaluateDict(const Expr& expr);
  Value EvaluateSlice(const Expr& expr);
  Value EvaluateJoin(const Expr& expr);
  Value EvaluateCompare(const Expr& expr);
  Value EvaluateLogic(const Expr& expr);
  Value EvaluateConditional(const Expr& expr);
  Value EvaluateFilter(const Expr& expr);
  Value EvaluateTest(const Expr& expr);
  Value EvaluateCall(const Expr& expr, const Value* caller);
  Value CallMember(const Expr& attribute, const Value& object, const Arguments& arguments);
  Value CallValue(const Value& called, const Arguments& arguments, const Value* caller);
  Value CallMacro(const Macro& macro, const Arguments& arguments, const Value* caller);
  Value Cycle(const LoopState& loop, const Arguments& arguments);
  Arguments EvaluateArguments(const Expr& call, std::string_view callee);

  const Program& program_;
  Workspace& space_;
  LoopObserver* observer_;
  std::string text_;
  std::string* out_ = &text_;
  std::vector<std::optional<Value>> variables_;  // by symbol
  Scope* scope_ = nullptr;
  std::deque<Scope> scopes_;
  std::vector<Scope*> free_scopes_;
  std::deque<Macro> macros_;
  Value block_text_;
  std::optional<Symbol> loop_symbol_;
  std::optional<Symbol> caller_symbol_;
  int depth_ = 0;
};

}  // namespace tessera::jinja
