// SPDX-License-Identifier: Apache-2.0
#include "template/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>
#include <optional>
#include <set>

#include "template/lexer.h"
#include "template/limits.h"

namespace tessera::jinja {
namespace {

using TokenKind = Token::Kind;
using ExprKind = Expr::Kind;
using StatementKind = Statement::Kind;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(Tokenize(source)) {}

  Program Run() {
    program_.body = ParseBody({});
    CheckCalls();
    return std::move(program_);
  }

 private:
  // --- tokens ---

  const Token& Current() const { return tokens_[at_]; }
  const Token& Next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Take() {
    Token token = Current();
    at_ += token.kind == TokenKind::kEnd ? 0 : 1;
    return token;
  }
  static bool Is(const Token& token, TokenKind kind, std::string_view text) {
    return token.kind == kind && token.text == text;
  }
  bool AtSymbol(std::string_view text) const { return Is(Current(), TokenKind::kSymbol, text); }
  bool AtName(std::string_view text) const { return Is(Current(), TokenKind::kName, text); }
  bool SkipName(std::string_view text) {
    if (!AtName(text)) {
      return false;
    }
    ++at_;
    return true;
  }

  [[noreturn]] static void Fail(Place place, std::string message) {
    throw TemplateError(place, std::move(message));
  }

  static std::string Describe(const Token& token) {
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

  [[noreturn]] void FailExpected(std::string_view expected) const {
    Fail(Current().place, fmt::format("expected {}, found {}", expected, Describe(Current())));
  }

  Token Expect(TokenKind kind, std::string_view what) {
    if (Current().kind != kind) {
      FailExpected(what);
    }
    return Take();
  }
  void ExpectSymbol(std::string_view text) {
    if (!AtSymbol(text)) {
      FailExpected(fmt::format("'{}'", text));
    }
    Take();
  }
  void EndStatement() { Expect(TokenKind::kStatementEnd, "'%}'"); }

  // One level of recursion.
  class Level {
   public:
    explicit Level(Parser* parser) : parser_(parser) {
      if (++parser_->level_ > kNestingMax) {
        Fail(parser_->Current().place, fmt::format("nests more than {} deep", kNestingMax));
      }
    }
    ~Level() { --parser_->level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser* parser_;
  };

  // --- names ---

  Symbol SymbolOf(const std::string& name) {
    const auto [entry, added] =
        program_.symbols.emplace(name, static_cast<Symbol>(program_.symbols.size()));
    if (added) {
      program_.read.push_back(false);
    }
    return entry->second;
  }
  Symbol Assigned(const std::string& name) {
    assigned_.insert(name);
    return SymbolOf(name);
  }
  static String Shared(std::string text) {
    return std::make_shared<const std::string>(std::move(text));
  }

  // A call of a name that is neither a function nor given a value anywhere can only fail.
  void CheckCalls() const {
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

  // --- statements ---

  // Up to a statement that begins with one of `ends`, at whose name it stops; to the end of the
  // template when there are none.
  Body ParseBody(std::initializer_list<std::string_view> ends) {
    const Level level(this);
    const Place begin = Current().place;
    Body body;
    for (;;) {
      const Token token = Take();
      switch (token.kind) {
        case TokenKind::kText:
          body.push_back(MakeStatement(StatementKind::kText, token.place));
          body.back().text = Value::Text(token.text);
          break;
        case TokenKind::kOutputBegin:
          body.push_back(MakeStatement(StatementKind::kOutput, token.place));
          body.back().expr = ParseTuple(/*conditional=*/true);
          Expect(TokenKind::kOutputEnd, "'}}'");
          break;
        case TokenKind::kStatementBegin:
          if (Current().kind == TokenKind::kName &&
              std::find(ends.begin(), ends.end(), Current().text) != ends.end()) {
            return body;
          }
          body.push_back(ParseStatement());
          break;
        default:
          if (ends.size() > 0) {
            Fail(begin,
                 fmt::format("the block that begins here lacks its '{}'", *(ends.end() - 1)));
          }
          return body;
      }
    }
  }

  // Which must be a body that ends in `end`, and the end of that statement.
  Body ParseBodyTo(std::string_view end) {
    EndStatement();
    Body body = ParseBody({end});
    Take();
    EndStatement();
    return body;
  }

  static Statement MakeStatement(StatementKind kind, Place place) {
    Statement statement;
    statement.kind = kind;
    statement.place = place;
    return statement;
  }

  Statement ParseStatement() {
    const Token name = Expect(TokenKind::kName, "a statement");
    if (name.text == "if") return ParseIf(name.place);
    if (name.text == "for") return ParseFor(name.place);
    if (name.text == "set") return ParseSet(name.place);
    if (name.text == "macro") return ParseMacro(name.place);
    if (name.text == "call") return ParseCallBlock(name.place);
    if (name.text == "filter") return ParseFilterBlock(name.place);
    if (name.text == "with") return ParseWith(name.place);
    if (name.text == "generation") return ParseGeneration(name.place);
    if (name.text == "break") return ParseJump(StatementKind::kBreak, name);
    if (name.text == "continue") return ParseJump(StatementKind::kContinue, name);
    if (name.text.starts_with("end") || name.text == "else" || name.text == "elif") {
      Fail(name.place, fmt::format("'{}' ends nothing", name.text));
    }
    Fail(name.place, fmt::format("statement '{}' is not supported", name.text));
  }

  Statement ParseIf(Place place) {
    Statement statement = MakeStatement(StatementKind::kIf, place);
    for (bool more = true; more;) {
      Statement::Branch& branch = statement.branches.emplace_back();
      branch.condition = ParseTuple(/*conditional=*/false);
      EndStatement();
      branch.body = ParseBody({"elif", "else", "endif"});
      more = Take().text == "elif";
    }
    if (tokens_[at_ - 1].text == "else") {
      EndStatement();
      statement.branches.emplace_back().body = ParseBody({"endif"});
      Take();
    }
    EndStatement();
    return statement;
  }

  Statement ParseFor(Place place) {
    Statement statement = MakeStatement(StatementKind::kFor, place);
    statement.targets = ParseTargets(/*members=*/false);
    if (!SkipName("in")) {
      FailExpected("'in'");
    }
    statement.expr = ParseTuple(/*conditional=*/false);
    Assigned("loop");
    if (SkipName("if")) {
      statement.filter = ParseExpression();
    }
    if (AtName("recursive")) {
      Fail(Current().place, "'recursive' is not supported");
    }
    EndStatement();
    ++loops_;
    statement.body = ParseBody({"else", "endfor"});
    --loops_;
    if (Take().text == "else") {
      EndStatement();
      statement.otherwise = ParseBody({"endfor"});
      Take();
    }
    EndStatement();
    return statement;
  }

  Statement ParseSet(Place place) {
    Statement statement = MakeStatement(StatementKind::kSet, place);
    statement.targets = ParseTargets(/*members=*/true);
    if (AtSymbol("=")) {
      Take();
      statement.expr = ParseTuple(/*conditional=*/true);
      EndStatement();
      return statement;
    }
    statement.kind = StatementKind::kSetBlock;
    if (statement.targets.size() != 1) {
      FailExpected("'='");
    }
    statement.expr = ParseFilters(MakeExpr(ExprKind::kBlockText, place));
    statement.body = ParseBodyTo("endset");
    return statement;
  }

  Statement ParseFilterBlock(Place place) {
    Statement statement = MakeStatement(StatementKind::kFilter, place);
    statement.expr = ParseFilter(MakeExpr(ExprKind::kBlockText, place));
    statement.expr = ParseFilters(std::move(statement.expr));
    statement.body = ParseBodyTo("endfilter");
    return statement;
  }

  Statement ParseMacro(Place place) {
    Statement statement = MakeStatement(StatementKind::kMacro, place);
    const Token name = Expect(TokenKind::kName, "the name of the macro");
    statement.macro = std::make_unique<MacroDefinition>();
    statement.macro->name = Shared(name.text);
    statement.targets.push_back({.place = name.place, .symbol = Assigned(name.text)});
    Assigned("caller");
    ParseParameters(*statement.macro);
    ParseMacroBody(*statement.macro, "endmacro");
    return statement;
  }

  void ParseMacroBody(MacroDefinition& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    ++macros_;
    macro.body = ParseBodyTo(end);
    --macros_;
    loops_ = loops;
  }

  void ParseParameters(MacroDefinition& macro) {
    ExpectSymbol("(");
    while (!AtSymbol(")")) {
      if (!macro.parameters.empty()) {
        ExpectSymbol(",");
      }
      const Token name = Expect(TokenKind::kName, "a parameter");
      MacroDefinition::Parameter& parameter = macro.parameters.emplace_back();
      parameter.name = Shared(name.text);
      parameter.symbol = Assigned(name.text);
      if (AtSymbol("=")) {
        Take();
        parameter.otherwise = ParseExpression();
      }
      if (macro.parameters.size() > kArgumentsMax) {
        Fail(name.place, fmt::format("more than {} parameters", kArgumentsMax));
      }
    }
    Take();
  }

  Statement ParseCallBlock(Place place) {
    Statement statement = MakeStatement(StatementKind::kCall, place);
    statement.macro = std::make_unique<MacroDefinition>();
    statement.macro->name = Shared("caller");
    if (AtSymbol("(")) {
      ParseParameters(*statement.macro);
    }
    const Place called = Current().place;
    statement.expr = ParseExpression();
    if (statement.expr->kind != ExprKind::kCall) {
      Fail(called, "expected the call of a macro");
    }
    ParseMacroBody(*statement.macro, "endcall");
    return statement;
  }

  Statement ParseWith(Place place) {
    Statement statement = MakeStatement(StatementKind::kWith, place);
    while (Current().kind != TokenKind::kStatementEnd) {
      if (!statement.targets.empty()) {
        ExpectSymbol(",");
      }
      const Token name = Expect(TokenKind::kName, "a name");
      statement.targets.push_back({.place = name.place, .symbol = Assigned(name.text)});
      ExpectSymbol("=");
      statement.values.push_back(ParseExpression());
    }
    statement.body = ParseBodyTo("endwith");
    return statement;
  }

  Statement ParseGeneration(Place place) {
    Statement statement = MakeStatement(StatementKind::kGeneration, place);
    const int loops = std::exchange(loops_, 0);  // Hugging Face makes a function of it
    statement.body = ParseBodyTo("endgeneration");
    loops_ = loops;
    return statement;
  }

  Statement ParseJump(StatementKind kind, const Token& name) {
    if (loops_ == 0) {
      Fail(name.place, fmt::format("'{}' outside of a loop", name.text));
    }
    EndStatement();
    return MakeStatement(kind, name.place);
  }

  std::vector<Target> ParseTargets(bool members) {
    const bool bracket = AtSymbol("(");
    if (bracket) {
      Take();
    }
    std::vector<Target> targets;
    do {
      if (AtSymbol("(")) {
        Fail(Current().place, "nested unpacking is not supported");
      }
      if (!targets.empty() && Current().kind != TokenKind::kName) {
        break;  // a comma may come last
      }
      targets.push_back(ParseTarget(members));
    } while (TakeIf(","));
    if (bracket) {
      ExpectSymbol(")");
    }
    return targets;
  }

  Target ParseTarget(bool members) {
    const Token name = Expect(TokenKind::kName, "a name to set");
    static constexpr std::string_view kConstants[] = {"true", "false", "none",
                                                      "True", "False", "None"};
    if (std::find(std::begin(kConstants), std::end(kConstants), name.text) !=
        std::end(kConstants)) {
      Fail(name.place, fmt::format("'{}' cannot be set", name.text));
    }
    Target target = {.place = name.place};
    if (members && AtSymbol(".")) {
      Take();
      const Token member = Expect(TokenKind::kName, "the name of a member");
      target.symbol = SymbolOf(name.text);
      target.member = Shared(member.text);
      assigned_members_.insert(member.text);
    } else {
      target.symbol = Assigned(name.text);
    }
    return target;
  }

  // --- expressions ---

  bool TakeIf(std::string_view symbol) {
    if (!AtSymbol(symbol)) {
      return false;
    }
    ++at_;
    return true;
  }

  static ExprPtr MakeExpr(ExprKind kind, Place place) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->place = place;
    return expr;
  }

  // Left-deep chains nest in the tree though not in the text, so depth is counted there.
  static void AddOperand(Expr& expr, ExprPtr operand) {
    if (operand != nullptr) {
      expr.depth = std::max(expr.depth, operand->depth + 1);
      if (expr.depth > kNestingMax) {
        Fail(expr.place, fmt::format("nests more than {} deep", kNestingMax));
      }
    }
    expr.operands.push_back(std::move(operand));
  }

  ExprPtr ParseExpression() { return ParseConditional(); }

  ExprPtr ParseConditional() {
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

  // One or more of what `parse_operand` reads with `name` between them.
  ExprPtr ParseChain(ExprKind kind, std::string_view name, ExprPtr (Parser::*parse_operand)()) {
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

  ExprPtr ParseOr() { return ParseChain(ExprKind::kOr, "or", &Parser::ParseAnd); }
  ExprPtr ParseAnd() { return ParseChain(ExprKind::kAnd, "and", &Parser::ParseNot); }

  ExprPtr ParseNot() {
    if (!AtName("not")) {
      return ParseCompare();
    }
    const Level level(this);
    ExprPtr negation = MakeExpr(ExprKind::kNot, Take().place);
    AddOperand(*negation, ParseNot());
    return negation;
  }

  std::optional<Operator> TakeComparison() {
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

  ExprPtr ParseCompare() {
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

  struct BinaryRow {
    std::string_view symbol;
    Operator op;
  };

  ExprPtr ParseBinary(std::initializer_list<BinaryRow> rows, ExprPtr (Parser::*parse_operand)()) {
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

  ExprPtr ParseSum() {
    return ParseBinary({{"+", Operator::kAdd}, {"-", Operator::kSubtract}}, &Parser::ParseJoin);
  }
  ExprPtr ParseJoin() { return ParseChain(ExprKind::kJoin, "~", &Parser::ParseProduct); }
  ExprPtr ParseProduct() {
    return ParseBinary({{"*", Operator::kMultiply},
                        {"/", Operator::kDivide},
                        {"//", Operator::kFloorDivide},
                        {"%", Operator::kModulo}},
                       &Parser::ParsePower);
  }
  ExprPtr ParsePower() {
    return ParseBinary({{"**", Operator::kPower}}, &Parser::ParseFilteredUnary);
  }
  ExprPtr ParseFilteredUnary() { return ParseUnary(/*with_filters=*/true); }

  // As in Jinja, -x|abs is (-x)|abs.
  ExprPtr ParseUnary(bool with_filters) {
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

  ExprPtr Constant(Place place, Value value) {
    ExprPtr expr = MakeExpr(ExprKind::kConstant, place);
    expr->constant = std::move(value);
    return expr;
  }

  ExprPtr ParsePrimary() {
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

  ExprPtr ParseName() {
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

  ExprPtr ParseNumber() {
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

  ExprPtr ParseList() {
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

  ExprPtr ParseDict() {
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

  bool AtTupleEnd() const {
    return Current().kind == TokenKind::kOutputEnd || Current().kind == TokenKind::kStatementEnd ||
           AtSymbol(")");
  }

  // a, b, c: a tuple; one expression alone is itself. Empty only in brackets.
  ExprPtr ParseTuple(bool conditional, bool in_brackets = false) {
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

  ExprPtr ParsePostfix(ExprPtr expr) {
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

  ExprPtr ParseMember(ExprPtr object) {
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

  ExprPtr ParseSubscript(ExprPtr object) {
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

  void ParseArguments(Expr& call) {
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

  ExprPtr ParseCall(ExprPtr called) {
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

  // | filter, is test, and calls of what they give.
  ExprPtr ParseFilters(ExprPtr expr) {
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

  std::string ParseDottedName(std::string_view what) {
    std::string name = Expect(TokenKind::kName, what).text;
    while (TakeIf(".")) {
      name += '.' + Expect(TokenKind::kName, what).text;
    }
    return name;
  }

  ExprPtr ParseFilter(ExprPtr input) {
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

  // map('filter'), select('test') and selectattr('attribute', 'test') name another one.
  static void CheckNamedBuiltin(const Expr& filter) {
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

  bool AtTestArgument() const {
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

  ExprPtr ParseTest(ExprPtr input) {
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

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0;
  int loops_ = 0;   // for statements around the current place, within its macro
  int macros_ = 0;  // macros and call blocks around it
  Program program_;
  std::set<std::string, std::less<>> assigned_;
  std::set<std::string, std::less<>> assigned_members_;
  std::vector<Token> called_;
  std::vector<Token> called_members_;
};

}  // namespace

Program Parse(std::string_view source) { return Parser(source).Run(); }

}  // namespace tessera::jinja
