// SPDX-License-Identifier: Apache-2.0
#include "template/interpreter.h"

#include <fmt/format.h>

#include <algorithm>

#include "template/builtins.h"
#include "template/operators.h"
#include "template/python_text.h"

namespace tessera::jinja {
namespace {

std::optional<Symbol> SymbolOf(const Program& program, std::string_view name) {
  const auto found = program.symbols.find(name);
  return found == program.symbols.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace

class Interpreter::Deeper {
 public:
  Deeper(Interpreter* interpreter, Place place) : interpreter_(interpreter) {
    Workspace& space = interpreter->space_;
    space.set_place(place);
    space.ChargeSteps(1);
    if (interpreter->depth_ == kEvaluationDepthMax) {
      space.Fail(fmt::format("nests more than {} evaluations", kEvaluationDepthMax));
    }
    ++interpreter->depth_;
  }
  ~Deeper() { --interpreter_->depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

 private:
  Interpreter* interpreter_;
};

class Interpreter::InScope {
 public:
  InScope(Interpreter* interpreter, Scope* parent)
      : interpreter_(interpreter), before_(interpreter->scope_) {
    if (interpreter->free_scopes_.empty()) {
      interpreter->space_.ChargeMaking(sizeof(Scope));
      interpreter->free_scopes_.push_back(&interpreter->scopes_.emplace_back());
    }
    Scope* scope = interpreter->free_scopes_.back();
    interpreter->free_scopes_.pop_back();
    scope->parent = parent;
    interpreter->scope_ = scope;
  }
  explicit InScope(Interpreter* interpreter) : InScope(interpreter, interpreter->scope_) {}
  ~InScope() {
    Scope* scope = std::exchange(interpreter_->scope_, before_);
    if (!scope->kept) {
      scope->variables.clear();
      interpreter_->free_scopes_.push_back(scope);
    }
  }
  InScope(const InScope&) = delete;
  InScope& operator=(const InScope&) = delete;

 private:
  Interpreter* interpreter_;
  Scope* before_;
};

class Interpreter::Capture {
 public:
  explicit Capture(Interpreter* interpreter)
      : interpreter_(interpreter), before_(std::exchange(interpreter->out_, &text_)) {}
  ~Capture() { interpreter_->out_ = before_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::string Take() { return std::move(text_); }

 private:
  Interpreter* interpreter_;
  std::string text_;
  std::string* before_;
};

Interpreter::Interpreter(const Program* program, Workspace* space, LoopObserver* observer)
    : program_(*program),
      space_(*space),
      observer_(observer),
      variables_(program->symbols.size()),
      loop_symbol_(SymbolOf(*program, "loop")),
      caller_symbol_(SymbolOf(*program, "caller")) {}

void Interpreter::SetVariable(std::string_view name, Value value) {
  // A name the template does not have cannot be asked for.
  if (const std::optional<Symbol> symbol = SymbolOf(program_, name); symbol.has_value()) {
    variables_[*symbol] = std::move(value);
  }
}

std::string Interpreter::Run() {
  RunBody(program_.body);
  return std::move(text_);
}

// --- statements ----------------------------------------------------------------------------------

Interpreter::Flow Interpreter::RunBody(const Body& body) {
  for (const Statement& statement : body) {
    if (const Flow flow = RunStatement(statement); flow != Flow::kNext) {
      return flow;
    }
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunStatement(const Statement& statement) {
  const Deeper deeper(this, statement.place);
  switch (statement.kind) {
    case Statement::Kind::kText:
      Write(statement.text);
      break;
    case Statement::Kind::kOutput:
      Write(Evaluate(*statement.expr));
      break;
    case Statement::Kind::kIf:
      return RunIf(statement);
    case Statement::Kind::kFor:
      return RunFor(statement);
    case Statement::Kind::kSet:
      Assign(statement.targets, Evaluate(*statement.expr), statement.place);
      break;
    case Statement::Kind::kSetBlock:
    case Statement::Kind::kFilter:
      return RunSetBlock(statement);
    case Statement::Kind::kMacro:
      DefineMacro(statement);
      break;
    case Statement::Kind::kCall:
      RunCallBlock(statement);
      break;
    case Statement::Kind::kWith:
      return RunWith(statement);
    case Statement::Kind::kGeneration: {
      const InScope scope(this);
      return RunBody(statement.body);
    }
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunIf(const Statement& statement) {
  for (const Statement::Branch& branch : statement.branches) {
    if (branch.condition == nullptr || Truth(Evaluate(*branch.condition))) {
      return RunBody(branch.body);
    }
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunFor(const Statement& statement) {
  const Value iterable = Evaluate(*statement.expr);
  space_.set_place(statement.place);
  auto loop = std::make_shared<LoopState>();
  loop->items = Items(space_, iterable);
  if (statement.filter != nullptr) {
    loop->items = space_.MakeList(FilteredItems(statement, loop->items->items)).list();
  }
  if (loop->items->items.empty()) {
    const InScope scope(this);
    return RunBody(statement.otherwise);
  }
  Flow flow = Flow::kNext;
  for (size_t i = 0; i < loop->items->items.size() && flow != Flow::kBreak; ++i) {
    loop->index = i;
    flow = RunIteration(statement, loop);
  }
  return Flow::kNext;
}

std::vector<Value> Interpreter::FilteredItems(const Statement& statement,
                                              const std::vector<Value>& items) {
  std::vector<Value> kept;
  for (const Value& item : items) {
    const InScope scope(this);
    Assign(statement.targets, item, statement.place);
    if (Truth(Evaluate(*statement.filter))) {
      kept.push_back(item);
    }
  }
  return kept;
}

Interpreter::Flow Interpreter::RunIteration(const Statement& statement,
                                            const std::shared_ptr<LoopState>& loop) {
  const InScope scope(this);
  const Value& item = loop->items->items[loop->index];
  Assign(statement.targets, item, statement.place);
  if (loop_symbol_.has_value()) {
    SetInScope(*loop_symbol_, Value::Loop(loop));
  }
  const size_t begin = text_.size();
  const Flow flow = RunBody(statement.body);
  if (observer_ != nullptr && out_ == &text_ && item.identity() != nullptr) {
    observer_->IterationEnded(item.identity(), begin, text_.size());
  }
  return flow;
}

// {% set x %}…{% endset %} and {% filter f %}…{% endfilter %}.
Interpreter::Flow Interpreter::RunSetBlock(const Statement& statement) {
  Flow flow = Flow::kNext;
  std::string text;
  {
    Capture capture(this);
    const InScope scope(this);
    flow = RunBody(statement.body);
    text = capture.Take();
  }
  if (flow != Flow::kNext) {
    return flow;  // a jump out of the block: what it wrote is lost, as in Jinja
  }
  const Value value = EvaluateBlock(*statement.expr, std::move(text));
  if (statement.kind == Statement::Kind::kFilter) {
    Write(value);
  } else {
    Assign(statement.targets, value, statement.place);
  }
  return flow;
}

Interpreter::Flow Interpreter::RunWith(const Statement& statement) {
  std::vector<Value> values;  // all before any name is set
  for (const ExprPtr& value : statement.values) {
    values.push_back(Evaluate(*value));
  }
  const InScope scope(this);
  for (size_t i = 0; i < values.size(); ++i) {
    SetInScope(statement.targets[i].symbol, std::move(values[i]));
  }
  return RunBody(statement.body);
}

void Interpreter::RunCallBlock(const Statement& statement) {
  const Value caller = MakeMacro(*statement.macro);
  Write(EvaluateCall(*statement.expr, &caller));
}

void Interpreter::DefineMacro(const Statement& statement) {
  SetInScope(statement.targets.front().symbol, MakeMacro(*statement.macro));
}

Value Interpreter::MakeMacro(const MacroDefinition& definition) {
  for (Scope* scope = scope_; scope != nullptr && !scope->kept; scope = scope->parent) {
    scope->kept = true;
  }
  space_.ChargeMaking(sizeof(Macro));
  return Value::Call(&macros_.emplace_back(Macro{.definition = &definition, .scope = scope_}));
}

void Interpreter::Write(const Value& value) {
  AppendText(space_, value, *out_);
  if (out_->size() > kPromptBytesMax) {
    space_.Fail(fmt::format("writes more than {} bytes", kPromptBytesMax));
  }
}

void Interpreter::Assign(const std::vector<Target>& targets, const Value& value, Place place) {
  if (targets.size() == 1) {
    return AssignOne(targets.front(), value);
  }
  space_.set_place(place);
  const auto list = Items(space_, value);
  if (list->items.size() != targets.size()) {
    space_.Fail(fmt::format("{} names for {} values", targets.size(), list->items.size()));
  }
  for (size_t i = 0; i < targets.size(); ++i) {
    AssignOne(targets[i], list->items[i]);
  }
}

void Interpreter::AssignOne(const Target& target, const Value& value) {
  if (target.member == nullptr) {
    return SetInScope(target.symbol, value);
  }
  space_.set_place(target.place);
  const Value* object = Find(target.symbol);
  if (object == nullptr || !object->is(Kind::kNamespace)) {
    space_.Fail(fmt::format("'.{}' can be set of a namespace, not of {}", *target.member,
                            KindName(object == nullptr ? Kind::kUndefined : object->kind())));
  }
  space_.SetMember(object->space(), target.member, value);
}

void Interpreter::SetInScope(Symbol symbol, Value value) {
  if (scope_ == nullptr) {
    variables_[symbol] = std::move(value);
    return;
  }
  auto& variables = scope_->variables;
  space_.ChargeSteps(variables.size() / 8);
  const auto there = std::find_if(variables.begin(), variables.end(),
                                  [&](const auto& variable) { return variable.first == symbol; });
  if (there != variables.end()) {
    there->second = std::move(value);
  } else {
    space_.ChargeMaking(sizeof(*there));
    variables.emplace_back(symbol, std::move(value));
  }
}

const Value* Interpreter::Find(Symbol symbol) {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    space_.ChargeSteps(1 + scope->variables.size() / 8);
    for (const auto& [name, value] : scope->variables) {
      if (name == symbol) {
        return &value;
      }
    }
  }
  return variables_[symbol].has_value() ? &*variables_[symbol] : nullptr;
}

// --- expressions ---------------------------------------------------------------------------------

Value Interpreter::Name(const Expr& expr) {
  if (const Value* value = Find(expr.symbol); value != nullptr) {
    return *value;
  }
  return expr.is_function ? Value::Function(expr.name) : Value::Undefined(expr.name);
}

Value Interpreter::Evaluate(const Expr& expr) {
  const Deeper deeper(this, expr.place);
  switch (expr.kind) {
    case Expr::Kind::kConstant:
      return expr.constant;
    case Expr::Kind::kName:
      return Name(expr);
    case Expr::Kind::kList:
    case Expr::Kind::kTuple:
      return EvaluateSequence(expr);
    case Expr::Kind::kDict:
      return EvaluateDict(expr);
    case Expr::Kind::kAttribute: {
      const Value object = Evaluate(*expr.operands[0]);
      space_.set_place(expr.place);
      return GetAttribute(space_, object, expr.name);
    }
    case Expr::Kind::kItem: {
      const Value object = Evaluate(*expr.operands[0]);
      const Value key = Evaluate(*expr.operands[1]);
      space_.set_place(expr.place);
      return GetItem(space_, object, key);
    }
    case Expr::Kind::kSlice:
      return EvaluateSlice(expr);
    case Expr::Kind::kCall:
      return EvaluateCall(expr, nullptr);
    case Expr::Kind::kFilter:
      return EvaluateFilter(expr);
    case Expr::Kind::kTest:
      return EvaluateTest(expr);
    case Expr::Kind::kNot:
      return Value::Bool(!Truth(Evaluate(*expr.operands[0])));
    case Expr::Kind::kAnd:
    case Expr::Kind::kOr:
      return EvaluateLogic(expr);
    case Expr::Kind::kJoin:
      return EvaluateJoin(expr);
    case Expr::Kind::kNegate: {
      const Value value = Evaluate(*expr.operands[0]);
      space_.set_place(expr.place);
      return Negate(space_, value);
    }
    case Expr::Kind::kArithmetic: {
      const Value left = Evaluate(*expr.operands[0]);
      const Value right = Evaluate(*expr.operands[1]);
      space_.set_place(expr.place);
      return Arithmetic(space_, expr.operators[0], left, right);
    }
    case Expr::Kind::kCompare:
      return EvaluateCompare(expr);
    case Expr::Kind::kConditional:
      return EvaluateConditional(expr);
    case Expr::Kind::kBlockText:
      return block_text_;
  }
  return Value();
}

Value Interpreter::EvaluateBlock(const Expr& expr, std::string text) {
  // The arguments of a filter may call macros with blocks of their own.
  Value before = std::exchange(block_text_, space_.MakeString(std::move(text)));
  Value value = Evaluate(expr);
  block_text_ = std::move(before);
  return value;
}

Value Interpreter::EvaluateSequence(const Expr& expr) {
  std::vector<Value> items;
  items.reserve(expr.operands.size());
  for (const ExprPtr& operand : expr.operands) {
    items.push_back(Evaluate(*operand));
  }
  return space_.MakeSequence(expr.kind == Expr::Kind::kList ? Kind::kList : Kind::kTuple,
                             std::move(items));
}

Value Interpreter::EvaluateDict(const Expr& expr) {
  DictBody dict;
  for (size_t i = 0; i < expr.operands.size(); i += 2) {
    const Value key = Evaluate(*expr.operands[i]);
    if (!key.is(Kind::kString)) {
      space_.set_place(expr.operands[i]->place);
      space_.Fail(fmt::format("a key of a dict is {}, not a string", KindName(key.kind())));
    }
    dict.Set(key.string(), Evaluate(*expr.operands[i + 1]));
  }
  space_.set_place(expr.place);
  return space_.MakeDict(std::move(dict));
}

Value Interpreter::EvaluateSlice(const Expr& expr) {
  const Value object = Evaluate(*expr.operands[0]);
  const auto bound = [&](size_t i) -> std::optional<int64_t> {
    if (expr.operands[i] == nullptr) {
      return std::nullopt;
    }
    const Value value = Evaluate(*expr.operands[i]);
    space_.set_place(expr.operands[i]->place);
    return value.is(Kind::kNone) ? std::nullopt
                                 : std::optional(ToInteger(space_, value, "a bound of a slice"));
  };
  SliceBounds bounds;
  bounds.start = bound(1);
  bounds.stop = bound(2);
  bounds.step = bound(3).value_or(1);
  space_.set_place(expr.place);
  return GetSlice(space_, object, bounds);
}

Value Interpreter::EvaluateJoin(const Expr& expr) {
  std::string text;
  for (const ExprPtr& operand : expr.operands) {
    const Value value = Evaluate(*operand);
    space_.set_place(operand->place);
    AppendText(space_, value, text);
  }
  return space_.MakeString(std::move(text));
}

Value Interpreter::EvaluateCompare(const Expr& expr) {
  Value left = Evaluate(*expr.operands[0]);
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = Evaluate(*expr.operands[i + 1]);
    space_.set_place(expr.place);
    if (!Compare(space_, expr.operators[i], left, right)) {
      return Value::Bool(false);
    }
    left = std::move(right);
  }
  return Value::Bool(true);
}

// `and` and `or` give the operand that decided, not a bool.
Value Interpreter::EvaluateLogic(const Expr& expr) {
  const bool decides = expr.kind == Expr::Kind::kOr;
  Value value;
  for (const ExprPtr& operand : expr.operands) {
    value = Evaluate(*operand);
    if (Truth(value) == decides) {
      break;
    }
  }
  return value;
}

Value Interpreter::EvaluateConditional(const Expr& expr) {
  if (Truth(Evaluate(*expr.operands[0]))) {
    return Evaluate(*expr.operands[1]);
  }
  return expr.operands[2] == nullptr ? Value() : Evaluate(*expr.operands[2]);
}

Arguments Interpreter::EvaluateArguments(const Expr& call, std::string_view callee) {
  Arguments arguments;
  arguments.callee = callee;
  for (size_t i = 1; i < call.operands.size(); ++i) {
    arguments.positional.push_back(Evaluate(*call.operands[i]));
  }
  for (const auto& [name, value] : call.named) {
    arguments.named.emplace_back(*name, Evaluate(*value));
  }
  space_.set_place(call.place);
  return arguments;
}

Value Interpreter::EvaluateFilter(const Expr& expr) {
  const Value input = Evaluate(*expr.operands[0]);
  return expr.filter(space_, input, EvaluateArguments(expr, *expr.name));
}

Value Interpreter::EvaluateTest(const Expr& expr) {
  const Value input = Evaluate(*expr.operands[0]);
  return Value::Bool(expr.test(space_, input, EvaluateArguments(expr, *expr.name)));
}

Value Interpreter::EvaluateCall(const Expr& expr, const Value* caller) {
  const Expr& called = *expr.operands[0];
  if (called.kind == Expr::Kind::kAttribute) {
    const Value object = Evaluate(*called.operands[0]);
    return CallMember(called, object, EvaluateArguments(expr, *called.name));
  }
  if (called.kind == Expr::Kind::kName) {
    const Value value = Name(called);  // a copy: the arguments may set the variable
    return CallValue(value, EvaluateArguments(expr, *called.name), caller);
  }
  const Value value = Evaluate(called);
  return CallValue(value, EvaluateArguments(expr, "the value called"), caller);
}

Value Interpreter::CallMember(const Expr& attribute, const Value& object,
                              const Arguments& arguments) {
  if (const Filter method = FindMethod(object.kind(), *attribute.name); method != nullptr) {
    return method(space_, object, arguments);
  }
  if (object.is(Kind::kLoop) && *attribute.name == "cycle") {
    return Cycle(object.loop(), arguments);
  }
  const Value member = GetAttribute(space_, object, attribute.name);
  if (member.is(Kind::kUndefined)) {
    space_.Fail(fmt::format("{} has no method '{}'", KindName(object.kind()), *attribute.name));
  }
  return CallValue(member, arguments, nullptr);
}

Value Interpreter::Cycle(const LoopState& loop, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    space_.Fail("'cycle' lacks values");
  }
  return arguments.positional[loop.index % arguments.positional.size()];
}

Value Interpreter::CallValue(const Value& called, const Arguments& arguments, const Value* caller) {
  switch (called.kind()) {
    case Kind::kMacro:
      return CallMacro(called.macro(), arguments, caller);
    case Kind::kMethod:
      return FindMethod(called.method().self.kind(), called.method().name)(
          space_, called.method().self, arguments);
    case Kind::kFunction:
      return FindFunction(called.function())(space_, arguments);
    case Kind::kUndefined:
      space_.Fail(fmt::format("'{}' is undefined, so it cannot be called", called.missing_name()));
    default:
      space_.Fail(fmt::format("{} cannot be called", KindName(called.kind())));
  }
}

Value Interpreter::CallMacro(const Macro& macro, const Arguments& arguments, const Value* caller) {
  const MacroDefinition& definition = *macro.definition;
  const size_t count = definition.parameters.size();
  std::vector<std::string_view> names;
  for (const MacroDefinition::Parameter& parameter : definition.parameters) {
    names.push_back(*parameter.name);
  }
  std::vector<const Value*> bound(count, nullptr);
  BindArguments(space_, arguments, names.data(), bound.data(), count);
  std::string text;
  {
    Capture capture(this);
    const InScope scope(this, macro.scope);
    if (caller_symbol_.has_value()) {
      SetInScope(*caller_symbol_, caller != nullptr ? *caller : Value());
    }
    for (size_t i = 0; i < count; ++i) {
      const MacroDefinition::Parameter& parameter = definition.parameters[i];
      SetInScope(parameter.symbol, bound[i] != nullptr ? *bound[i]
                                   : parameter.otherwise != nullptr
                                       ? Evaluate(*parameter.otherwise)
                                       : Value::Undefined(parameter.name));
    }
    RunBody(definition.body);
    text = capture.Take();
  }
  return space_.MakeString(std::move(text));
}

}  // namespace tessera::jinja
