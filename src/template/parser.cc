// SPDX-License-Identifier: Apache-2.0
#include "template/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "template/expression_parser.h"
#include "template/limits.h"

namespace tessera::jinja {
namespace {

using StatementKind = Statement::Kind;

class Parser : ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}

  Program Run() {
    program_.body = ParseBody({});
    CheckCalls();
    return std::move(program_);
  }

 private:
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
    std::string next = "if";
    while (next == "if" || next == "elif") {
      Statement::Branch& branch = statement.branches.emplace_back();
      branch.condition = ParseTuple(/*conditional=*/false);
      EndStatement();
      branch.body = ParseBody({"elif", "else", "endif"});
      next = Take().text;
    }
    if (next == "else") {
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

  void EndStatement() { Expect(TokenKind::kStatementEnd, "'%}'"); }

  int loops_ = 0;  // for statements around the current place, within its macro
};

}  // namespace

Program Parse(std::string_view source) { return Parser(source).Run(); }

}  // namespace tessera::jinja
