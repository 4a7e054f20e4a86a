// SPDX-License-Identifier: Apache-2.0
//
// ExpressionParser reads a template's expressions, by precedence, from a cursor over its tokens that
// parser.cc shares, and notes which names are read, called and set. A call of what is neither known
// nor set anywhere is an error of CheckCalls, once all of it is read.
//
// Failure: TemplateError. Threads: none of its own.
#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "template/lexer.h"
#include "template/syntax.h"

namespace tessera::jinja {

class ExpressionParser {
 protected:
  using TokenKind = Token::Kind;
  using ExprKind = Expr::Kind;

  explicit ExpressionParser(std::string_view source) : tokens_(Tokenize(source)) {}

  // The cursor. The last token is the end of the template, and taking it moves nowhere.
  const Token& Current() const { return tokens_[at_]; }
  Token Take();
  bool AtSymbol(std::string_view text) const { return Is(Current(), TokenKind::kSymbol, text); }
  bool AtName(std::string_view text) const { return Is(Current(), TokenKind::kName, text); }
  bool SkipName(std::string_view text);
  bool TakeIf(std::string_view symbol);
  Token Expect(TokenKind kind, std::string_view what);
  void ExpectSymbol(std::string_view text);
  [[noreturn]] static void Fail(Place place, std::string message);
  [[noreturn]] void FailExpected(std::string_view expected) const;

  // One level of recursion, of statements too.
  class Level {
   public:
    explicit Level(ExpressionParser* parser);
    ~Level() { --parser_->level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser* parser_;
  };

  Symbol SymbolOf(const std::string& name);
  Symbol Assigned(const std::string& name);  // a name that the template gives a value
  static String Shared(std::string text);
  // A call of a name that is neither a function nor given a value anywhere can only fail.
  void CheckCalls() const;

  static ExprPtr MakeExpr(ExprKind kind, Place place);
  ExprPtr ParseExpression() { return ParseConditional(); }
  // a, b, c: a tuple; one expression alone is itself. Empty only in brackets.
  ExprPtr ParseTuple(bool conditional, bool in_brackets = false);
  // | filter, is test, and calls of what they give.
  ExprPtr ParseFilters(ExprPtr expr);
  ExprPtr ParseFilter(ExprPtr input);

  int macros_ = 0;  // macros and call blocks around the current place
  Program program_;
  std::set<std::string, std::less<>> assigned_members_;

 private:
  struct BinaryRow {
    std::string_view symbol;
    Operator op;
  };

  const Token& Next() const;
  static bool Is(const Token& token, TokenKind kind, std::string_view text);
  static std::string Describe(const Token& token);

  // Left-deep chains nest in the tree though not in the text, so depth is counted there.
  static void AddOperand(Expr& expr, ExprPtr operand);
  static ExprPtr Constant(Place place, Value value);
  ExprPtr ParseConditional();
  // One or more of what `parse_operand` reads with `name` between them.
  ExprPtr ParseChain(ExprKind kind, std::string_view name,
                     ExprPtr (ExpressionParser::*parse_operand)());
  ExprPtr ParseOr() { return ParseChain(ExprKind::kOr, "or", &ExpressionParser::ParseAnd); }
  ExprPtr ParseAnd() { return ParseChain(ExprKind::kAnd, "and", &ExpressionParser::ParseNot); }
  ExprPtr ParseNot();
  std::optional<Operator> TakeComparison();
  ExprPtr ParseCompare();
  ExprPtr ParseBinary(std::initializer_list<BinaryRow> rows,
                      ExprPtr (ExpressionParser::*parse_operand)());
  ExprPtr ParseSum();
  ExprPtr ParseJoin() { return ParseChain(ExprKind::kJoin, "~", &ExpressionParser::ParseProduct); }
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseFilteredUnary() { return ParseUnary(/*with_filters=*/true); }
  // As in Jinja, -x|abs is (-x)|abs.
  ExprPtr ParseUnary(bool with_filters);
  ExprPtr ParsePrimary();
  ExprPtr ParseName();
  ExprPtr ParseNumber();
  ExprPtr ParseList();
  ExprPtr ParseDict();
  bool AtTupleEnd() const;
  ExprPtr ParsePostfix(ExprPtr expr);
  ExprPtr ParseMember(ExprPtr object);
  ExprPtr ParseSubscript(ExprPtr object);
  void ParseArguments(Expr& call);
  ExprPtr ParseCall(ExprPtr called);
  std::string ParseDottedName(std::string_view what);
  // map('filter'), select('test') and selectattr('attribute', 'test') name another one.
  static void CheckNamedBuiltin(const Expr& filter);
  bool AtTestArgument() const;
  ExprPtr ParseTest(ExprPtr input);

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int level_ = 0;
  std::set<std::string, std::less<>> assigned_;
  std::vector<Token> called_;
  std::vector<Token> called_members_;
};

}  // namespace tessera::jinja
