// SPDX-License-Identifier: Apache-2.0
#include "template/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "template/builtins.h"
#include "template/limits.h"

namespace tessera::jinja {

ExpressionParser::Level::Level(ExpressionParser* parser) : parser_(parser) {
  if (++parser_->level_ > kNestingMax) {
    Fail(parser_->Current().place, fmt::format("nests more than {} deep", kNestingMax));
  }
}

const Token& ExpressionParser::Next() const {
  return tokens_[std::min(at_ + 1, tokens_.size() - 1)];
}

Token ExpressionParser::Take() {
  Token token = Current();
  at_ += token.kind == TokenKind::kEnd ? 0 : 1;
  return token;
}

bool ExpressionParser::Is(const Token& token, TokenKind kind, std::string_view text) {
  return token.kind == kind && token.text == text;
}

bool ExpressionParser::SkipName(std::string_view text) {
  if (!AtName(text)) {
    return false;
  }
  ++at_;
  return true;
}

void ExpressionParser::Fail(Place place, std::string message) {
  throw TemplateError(place, std::move(message));
}

std::string ExpressionParser::Describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kEnd:
      return "the end of the template";
    case TokenKind::kText:
      return "text";
    case TokenKind::kOutputBegin:
      return "'{{'";
    case TokenKind::kOutputEnd:
      return "'}}'";
    case TokenKind::kStatementBegin:
      return "'{%'";
    case TokenKind::kStatementEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    default:
      return fmt::format("'{}'", token.text);
  }
}

void ExpressionParser::FailExpected(std::string_view expected) const {
  Fail(Current().place, fmt::format("expected {}, found {}", expected, Describe(Current())));
}

Token ExpressionParser::Expect(TokenKind kind, std::string_view what) {
  if (Current().kind != kind) {
    FailExpected(what);
  }
  return Take();
}

void ExpressionParser::ExpectSymbol(std::string_view text) {
  if (!AtSymbol(text)) {
    FailExpected(fmt::format("'{}'", text));
  }
  Take();
}

Symbol ExpressionParser::SymbolOf(const std::string& name) {
  const auto [entry, added] =
      program_.symbols.emplace(name, static_cast<Symbol>(program_.symbols.size()));
  if (added) {
    program_.read.push_back(false);
  }
  return entry->second;
}

Symbol ExpressionParser::Assigned(const std::string& name) {
  assigned_.insert(name);
  return SymbolOf(name);
}

String ExpressionParser::Shared(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

void ExpressionParser::CheckCalls() const {
  for (const Token& name : called_) {
    if (assigned_.count(name.text) == 0 && FindFunction(name.text) == nullptr) {
      Fail(name.place, fmt::format("function '{}' is not supported", name.text));
    }
  }
  for (const Token& name : called_members_) {
    if (assigned_members_.count(name.text) == 0 && !IsMethodName(name.text) &&
        name.text != "cycle") {
      Fail(name.place, fmt::format("method '{}' is not supported", name.text));
    }
  }
}

bool ExpressionParser::TakeIf(std::string_view symbol) {
  if (!AtSymbol(symbol)) {
    return false;
  }
  ++at_;
  return true;
}

ExprPtr ExpressionParser::MakeExpr(ExprKind kind, Place place) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->place = place;
  return expr;
}

void ExpressionParser::AddOperand(Expr& expr, ExprPtr operand) {
  if (operand != nullptr) {
    expr.depth = std::max(expr.depth, operand->depth + 1);
    if (expr.depth > kNestingMax) {
      Fail(expr.place, fmt::format("nests more than {} deep", kNestingMax));
    }
  }
  expr.operands.push_back(std::move(operand));
}

ExprPtr ExpressionParser::ParseConditional() {
  const Level level(this);
  ExprPtr value = ParseOr();
  while (AtName("if")) {
    ExprPtr conditional = MakeExpr(ExprKind::kConditional, Take().place);
    AddOperand(*conditional, ParseOr());
    AddOperand(*conditional, std::move(value));
    AddOperand(*conditional, SkipName("else") ? ParseConditional() : nullptr);
    value = std::move(conditional);
  }
  return value;
}

ExprPtr ExpressionParser::ParseChain(ExprKind kind, std::string_view name,
                                     ExprPtr (ExpressionParser::*parse_operand)()) {
  ExprPtr first = (this->*parse_operand)();
  const auto at_separator = [&] { return AtName(name) || AtSymbol(name); };
  if (!at_separator()) {
    return first;
  }
  ExprPtr chain = MakeExpr(kind, Current().place);
  AddOperand(*chain, std::move(first));
  while (at_separator()) {
    Take();
    AddOperand(*chain, (this->*parse_operand)());
  }
  return chain;
}

ExprPtr ExpressionParser::ParseNot() {
  if (!AtName("not")) {
    return ParseCompare();
  }
  const Level level(this);
  ExprPtr negation = MakeExpr(ExprKind::kNot, Take().place);
  AddOperand(*negation, ParseNot());
  return negation;
}

std::optional<Operator> ExpressionParser::TakeComparison() {
  struct Row {
    std::string_view symbol;
    Operator op;
  };
  static constexpr Row kRows[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual},
  };
  for (const Row& row : kRows) {
    if (TakeIf(row.symbol)) {
      return row.op;
    }
  }
  if (SkipName("in")) {
    return Operator::kIn;
  }
  if (AtName("not") && Is(Next(), TokenKind::kName, "in")) {
    at_ += 2;
    return Operator::kNotIn;
  }
  return std::nullopt;
}

ExprPtr ExpressionParser::ParseCompare() {
  ExprPtr first = ParseSum();
  Place place = Current().place;
  std::optional<Operator> op = TakeComparison();
  if (!op.has_value()) {
    return first;
  }
  ExprPtr compare = MakeExpr(ExprKind::kCompare, place);
  AddOperand(*compare, std::move(first));
  for (; op.has_value(); op = TakeComparison()) {
    compare->operators.push_back(*op);
    AddOperand(*compare, ParseSum());
  }
  return compare;
}

ExprPtr ExpressionParser::ParseBinary(std::initializer_list<BinaryRow> rows,
                                      ExprPtr (ExpressionParser::*parse_operand)()) {
  ExprPtr left = (this->*parse_operand)();
  for (;;) {
    const auto row = std::find_if(rows.begin(), rows.end(),
                                  [&](const BinaryRow& r) { return AtSymbol(r.symbol); });
    if (row == rows.end()) {
      return left;
    }
    ExprPtr binary = MakeExpr(ExprKind::kArithmetic, Take().place);
    binary->operators.push_back(row->op);
    AddOperand(*binary, std::move(left));
    AddOperand(*binary, (this->*parse_operand)());
    left = std::move(binary);
  }
}

ExprPtr ExpressionParser::ParseSum() {
  return ParseBinary({{"+", Operator::kAdd}, {"-", Operator::kSubtract}},
                     &ExpressionParser::ParseJoin);
}

ExprPtr ExpressionParser::ParseProduct() {
  return ParseBinary({{"*", Operator::kMultiply},
                      {"/", Operator::kDivide},
                      {"//", Operator::kFloorDivide},
                      {"%", Operator::kModulo}},
                     &ExpressionParser::ParsePower);
}

ExprPtr ExpressionParser::ParsePower() {
  return ParseBinary({{"**", Operator::kPower}}, &ExpressionParser::ParseFilteredUnary);
}

ExprPtr ExpressionParser::ParseUnary(bool with_filters) {
  const Level level(this);
  ExprPtr expr;
  if (AtSymbol("-")) {
    expr = MakeExpr(ExprKind::kNegate, Take().place);
    AddOperand(*expr, ParseUnary(/*with_filters=*/false));
  } else if (TakeIf("+")) {
    expr = ParseUnary(/*with_filters=*/false);
  } else {
    expr = ParsePrimary();
  }
  expr = ParsePostfix(std::move(expr));
  return with_filters ? ParseFilters(std::move(expr)) : std::move(expr);
}

ExprPtr ExpressionParser::Constant(Place place, Value value) {
  ExprPtr expr = MakeExpr(ExprKind::kConstant, place);
  expr->constant = std::move(value);
  return expr;
}

ExprPtr ExpressionParser::ParsePrimary() {
  const Token token = Current();
  switch (token.kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kString: {
      std::string text;
      while (Current().kind == TokenKind::kString) {
        text += Take().text;
      }
      return Constant(token.place, Value::Text(text));
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return ParseNumber();
    default:
      break;
  }
  if (TakeIf("(")) {
    ExprPtr tuple = ParseTuple(/*conditional=*/true, /*in_brackets=*/true);
    ExpectSymbol(")");
    return tuple;
  }
  if (AtSymbol("[")) {
    return ParseList();
  }
  if (AtSymbol("{")) {
    return ParseDict();
  }
  FailExpected("an expression");
}

ExprPtr ExpressionParser::ParseName() {
  const Token name = Take();
  if (name.text == "true" || name.text == "True") {
    return Constant(name.place, Value::Bool(true));
  }
  if (name.text == "false" || name.text == "False") {
    return Constant(name.place, Value::Bool(false));
  }
  if (name.text == "none" || name.text == "None") {
    return Constant(name.place, Value::None());
  }
  if (macros_ > 0 && (name.text == "varargs" || name.text == "kwargs")) {
    Fail(name.place, fmt::format("'{}' of a macro is not supported", name.text));
  }
  ExprPtr expr = MakeExpr(ExprKind::kName, name.place);
  expr->name = Shared(name.text);
  expr->symbol = SymbolOf(name.text);
  expr->is_function = FindFunction(name.text) != nullptr;
  program_.read[expr->symbol] = true;
  return expr;
}

ExprPtr ExpressionParser::ParseNumber() {
  const Token token = Take();
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.kind == TokenKind::kFloat) {
    double number = 0;
    if (std::from_chars(begin, end, number).ec != std::errc()) {
      Fail(token.place, fmt::format("'{}' is beyond a double", token.text));
    }
    return Constant(token.place, Value::Float(number));
  }
  int64_t number = 0;
  if (std::from_chars(begin, end, number).ec != std::errc()) {
    Fail(token.place, fmt::format("'{}' is more than 64 bits", token.text));
  }
  return Constant(token.place, Value::Int(number));
}

ExprPtr ExpressionParser::ParseList() {
  ExprPtr list = MakeExpr(ExprKind::kList, Take().place);
  while (!AtSymbol("]")) {
    if (!list->operands.empty()) {
      ExpectSymbol(",");
      if (AtSymbol("]")) {
        break;
      }
    }
    AddOperand(*list, ParseExpression());
  }
  Take();
  return list;
}

ExprPtr ExpressionParser::ParseDict() {
  ExprPtr dict = MakeExpr(ExprKind::kDict, Take().place);
  while (!AtSymbol("}")) {
    if (!dict->operands.empty()) {
      ExpectSymbol(",");
      if (AtSymbol("}")) {
        break;
      }
    }
    AddOperand(*dict, ParseExpression());
    ExpectSymbol(":");
    AddOperand(*dict, ParseExpression());
  }
  Take();
  return dict;
}

bool ExpressionParser::AtTupleEnd() const {
  return Current().kind == TokenKind::kOutputEnd || Current().kind == TokenKind::kStatementEnd ||
         AtSymbol(")");
}

ExprPtr ExpressionParser::ParseTuple(bool conditional, bool in_brackets) {
  ExprPtr tuple = MakeExpr(ExprKind::kTuple, Current().place);
  bool is_tuple = false;
  while (!AtTupleEnd()) {
    AddOperand(*tuple, conditional ? ParseExpression() : ParseOr());
    if (!TakeIf(",")) {
      break;
    }
    is_tuple = true;
  }
  if (is_tuple || (tuple->operands.empty() && in_brackets)) {
    return tuple;
  }
  if (tuple->operands.empty()) {
    FailExpected("an expression");
  }
  return std::move(tuple->operands.front());
}

ExprPtr ExpressionParser::ParsePostfix(ExprPtr expr) {
  for (;;) {
    if (AtSymbol(".")) {
      expr = ParseMember(std::move(expr));
    } else if (AtSymbol("[")) {
      expr = ParseSubscript(std::move(expr));
    } else if (AtSymbol("(")) {
      expr = ParseCall(std::move(expr));
    } else {
      return expr;
    }
  }
}

ExprPtr ExpressionParser::ParseMember(ExprPtr object) {
  const Place place = Take().place;
  if (Current().kind == TokenKind::kInteger) {
    ExprPtr item = MakeExpr(ExprKind::kItem, place);
    AddOperand(*item, std::move(object));
    AddOperand(*item, ParseNumber());
    return item;
  }
  const Token name = Expect(TokenKind::kName, "a name or a number");
  ExprPtr attribute = MakeExpr(ExprKind::kAttribute, name.place);
  attribute->name = Shared(name.text);
  AddOperand(*attribute, std::move(object));
  return attribute;
}

ExprPtr ExpressionParser::ParseSubscript(ExprPtr object) {
  const Place place = Take().place;
  ExprPtr expr = MakeExpr(ExprKind::kItem, place);
  AddOperand(*expr, std::move(object));
  ExprPtr first = AtSymbol(":") ? nullptr : ParseExpression();
  if (AtSymbol(":")) {
    expr->kind = ExprKind::kSlice;
    AddOperand(*expr, std::move(first));
    while (TakeIf(":") && expr->operands.size() < 4) {
      AddOperand(*expr, AtSymbol(":") || AtSymbol("]") ? nullptr : ParseExpression());
    }
    expr->operands.resize(4);
  } else {
    AddOperand(*expr, std::move(first));
  }
  ExpectSymbol("]");
  return expr;
}

void ExpressionParser::ParseArguments(Expr& call) {
  ExpectSymbol("(");
  while (!AtSymbol(")")) {
    if (AtSymbol("*") || AtSymbol("**")) {
      Fail(Current().place, fmt::format("arguments by '{}' are not supported", Current().text));
    }
    if (Current().kind == TokenKind::kName && Is(Next(), TokenKind::kSymbol, "=")) {
      const Token name = Take();
      Take();
      AddOperand(call, ParseExpression());
      call.named.emplace_back(Shared(name.text), std::move(call.operands.back()));
      call.operands.pop_back();
      assigned_members_.insert(name.text);  // perhaps of a namespace
    } else if (call.named.empty()) {
      AddOperand(call, ParseExpression());
    } else {
      FailExpected("an argument with a name");
    }
    if (call.operands.size() + call.named.size() > kArgumentsMax) {
      Fail(call.place, fmt::format("more than {} arguments", kArgumentsMax));
    }
    if (!AtSymbol(")")) {
      ExpectSymbol(",");
    }
  }
  Take();
}

ExprPtr ExpressionParser::ParseCall(ExprPtr called) {
  ExprPtr call = MakeExpr(ExprKind::kCall, called->place);
  if (called->kind == ExprKind::kName) {
    called_.push_back({.kind = TokenKind::kName, .place = called->place, .text = *called->name});
  } else if (called->kind == ExprKind::kAttribute) {
    called_members_.push_back(
        {.kind = TokenKind::kName, .place = called->place, .text = *called->name});
  }
  AddOperand(*call, std::move(called));
  ParseArguments(*call);
  return call;
}

ExprPtr ExpressionParser::ParseFilters(ExprPtr expr) {
  for (;;) {
    if (TakeIf("|")) {
      expr = ParseFilter(std::move(expr));
    } else if (AtName("is")) {
      expr = ParseTest(std::move(expr));
    } else if (AtSymbol("(")) {
      expr = ParseCall(std::move(expr));
    } else {
      return expr;
    }
  }
}

std::string ExpressionParser::ParseDottedName(std::string_view what) {
  std::string name = Expect(TokenKind::kName, what).text;
  while (TakeIf(".")) {
    name += '.' + Expect(TokenKind::kName, what).text;
  }
  return name;
}

ExprPtr ExpressionParser::ParseFilter(ExprPtr input) {
  const Place place = Current().place;
  ExprPtr expr = MakeExpr(ExprKind::kFilter, place);
  expr->name = Shared(ParseDottedName("the name of a filter"));
  expr->filter = FindFilter(*expr->name);
  if (expr->filter == nullptr) {
    Fail(place, fmt::format("filter '{}' is not supported", *expr->name));
  }
  AddOperand(*expr, std::move(input));
  if (AtSymbol("(")) {
    ParseArguments(*expr);
  }
  CheckNamedBuiltin(*expr);
  return expr;
}

void ExpressionParser::CheckNamedBuiltin(const Expr& filter) {
  const std::string_view name = *filter.name;
  const bool by_attribute = name == "selectattr" || name == "rejectattr";
  const bool selects = by_attribute || name == "select" || name == "reject";
  const size_t i = by_attribute ? 2 : 1;
  if ((!selects && name != "map") || filter.operands.size() <= i ||
      filter.operands[i]->kind != ExprKind::kConstant ||
      !filter.operands[i]->constant.is(Kind::kString)) {
    return;
  }
  const std::string_view inner = filter.operands[i]->constant.text();
  if (selects ? FindTest(inner) == nullptr : FindFilter(inner) == nullptr) {
    Fail(filter.operands[i]->place,
         fmt::format("{} '{}' is not supported", selects ? "test" : "filter", inner));
  }
}

bool ExpressionParser::AtTestArgument() const {
  switch (Current().kind) {
    case TokenKind::kString:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return true;
    case TokenKind::kName:
      // Jinja takes `if` and `in` for an argument and fails on what follows.
      return !AtName("else") && !AtName("or") && !AtName("and") && !AtName("if") && !AtName("in");
    default:
      return AtSymbol("[") || AtSymbol("{");
  }
}

ExprPtr ExpressionParser::ParseTest(ExprPtr input) {
  Take();
  const bool negated = SkipName("not");
  const Place place = Current().place;
  ExprPtr expr = MakeExpr(ExprKind::kTest, place);
  expr->name = Shared(ParseDottedName("the name of a test"));
  expr->test = FindTest(*expr->name);
  if (expr->test == nullptr) {
    Fail(place, fmt::format("test '{}' is not supported", *expr->name));
  }
  AddOperand(*expr, std::move(input));
  if (AtSymbol("(")) {
    ParseArguments(*expr);
  } else if (AtTestArgument()) {
    if (AtName("is")) {
      Fail(Current().place, "tests cannot be chained");
    }
    AddOperand(*expr, ParsePostfix(ParsePrimary()));
  }
  if (!negated) {
    return expr;
  }
  ExprPtr negation = MakeExpr(ExprKind::kNot, place);
  AddOperand(*negation, std::move(expr));
  return negation;
}

}  // namespace tessera::jinja
