// SPDX-License-Identifier: Apache-2.0
//
// Errors, their places, and bounds. What templates give is in chat_template_test.cc's vectors.
#include "template/template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "template/limits.h"

namespace tessera::jinja {
namespace {

std::string Repeat(std::string_view text, size_t count) {
  std::string repeated;
  for (size_t i = 0; i < count; ++i) {
    repeated += text;
  }
  return repeated;
}

Result<std::string> RenderText(std::string_view source) {
  Result<Template> compiled = Template::Compile(source);
  if (!compiled.has_value()) {
    return compiled.error();
  }
  return compiled->Render(std::tm{}, Limits{}, [](Workspace& space) {
    return Variables{{"text", space.MakeString("abc")}};
  });
}

std::string CompileError(std::string_view source) {
  const Result<Template> compiled = Template::Compile(source);
  if (compiled.has_value()) {
    return "compiles";
  }
  EXPECT_EQ(compiled.error().code(), StatusCode::kBadFile);
  return compiled.error().message();
}

std::string RenderError(std::string_view source) {
  const Result<Template> compiled = Template::Compile(source);
  if (!compiled.has_value()) {
    return "does not compile: " + compiled.error().message();
  }
  const Result<std::string> text = RenderText(source);
  if (text.has_value()) {
    return "renders";
  }
  EXPECT_EQ(text.error().code(), StatusCode::kInvalidArgument);
  return text.error().message();
}

TEST(TemplateCompile, NamesWhatItDoesNotSupportWhereverItStands) {
  const std::string dead = "line\n{% if false %}\n  ";
  EXPECT_EQ(CompileError(dead + "{% include 'x' %}{% endif %}"),
            "3:6: statement 'include' is not supported");
  EXPECT_EQ(CompileError(dead + "{{ 1 | urlize }}{% endif %}"),
            "3:10: filter 'urlize' is not supported");
  EXPECT_EQ(CompileError(dead + "{{ 1 is escaped }}{% endif %}"),
            "3:11: test 'escaped' is not supported");
  EXPECT_EQ(CompileError(dead + "{{ lipsum(2) }}{% endif %}"),
            "3:6: function 'lipsum' is not supported");
  EXPECT_EQ(CompileError(dead + "{{ text.encode() }}{% endif %}"),
            "3:11: method 'encode' is not supported");
  EXPECT_EQ(CompileError("{{ [1] | map('urlize') }}"), "1:14: filter 'urlize' is not supported");
  EXPECT_EQ(CompileError("{{ [1] | selectattr('a', 'odder') }}"),
            "1:26: test 'odder' is not supported");
  EXPECT_EQ(CompileError("{% for x in y recursive %}{% endfor %}"),
            "1:15: 'recursive' is not supported");
  EXPECT_EQ(CompileError("{% for a, (b, c) in y %}{% endfor %}"),
            "1:11: nested unpacking is not supported");
  EXPECT_EQ(CompileError("{{ dict(**x) }}"), "1:9: arguments by '**' are not supported");
  EXPECT_EQ(CompileError("{% macro m() %}{{ varargs }}{% endmacro %}"),
            "1:19: 'varargs' of a macro is not supported");
  EXPECT_EQ(CompileError("{{ '\\N{DASH}' }}"), "1:4: the escape \\N is not supported");
}

TEST(TemplateCompile, PlacesErrorsOfSyntax) {
  EXPECT_EQ(CompileError("a\nb {{ 1 + }}"), "2:10: expected an expression, found '}}'");
  EXPECT_EQ(CompileError("a\r\nb\r{{ 1 ? }}"), "3:6: unexpected byte 0x3f");
  EXPECT_EQ(CompileError("{% if x %}\n{% for y in z %}\n{% endif %}"), "3:4: 'endif' ends nothing");
  EXPECT_EQ(CompileError("a\n{% if x %}b"), "2:11: the block that begins here lacks its 'endif'");
  EXPECT_EQ(CompileError("a\n  {% if x"), "2:3: statement without '%}'");
  EXPECT_EQ(CompileError("a\n  {% if x\n\n y"), "2:3: statement without '%}'");
  EXPECT_EQ(CompileError("a {{ 'b }}"), "1:6: string without its closing quote");
  EXPECT_EQ(CompileError("{# a"), "1:1: comment without '#}'");
  EXPECT_EQ(CompileError("{% raw %}a"), "1:3: raw without endraw");
  EXPECT_EQ(CompileError("{{ (1] }}"), "1:6: ']' closes nothing");
  EXPECT_EQ(CompileError("{{ 99999999999999999999 }}"),
            "1:4: '99999999999999999999' is more than 64 bits");
  EXPECT_EQ(CompileError("{% macro m() %}{% break %}{% endmacro %}"),
            "1:19: 'break' outside of a loop");
  EXPECT_EQ(CompileError("{% for a in b %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}"),
            "1:35: 'break' outside of a loop");
}

TEST(TemplateRender, PlacesErrorsOfData) {
  EXPECT_EQ(RenderError("a\n{{ text.x.y }}"), "2:11: 'x' is undefined, so it has no 'y'");
  EXPECT_EQ(RenderError("{{ text + 1 }}"), "1:9: '+' does not take a string and an int");
  EXPECT_EQ(RenderError("{{ 1 // (2 - 2) }}"), "1:6: '//' by zero");
  EXPECT_EQ(RenderError("{{ text | tojson(indent='a', depth=1) }}"),
            "1:11: 'tojson' has no argument 'depth'");
  EXPECT_EQ(RenderError("{{ [1] | join(1, 2, 3) }}"),
            "1:10: 'join' takes at most 2 arguments, not 3");
  EXPECT_EQ(RenderError("{{ none | items }}"), "1:11: items of none, not of a dict");
  EXPECT_EQ(RenderError("{{ 9223372036854775807 + 1 }}"), "1:24: '+' gives more than 64 bits");
  EXPECT_EQ(RenderError("{{ {1: 2} }}"), "1:5: a key of a dict is an int, not a string");
  EXPECT_EQ(RenderError("{{ 5 | length }}"), "1:8: an int has no length");
  EXPECT_EQ(RenderError("{{ [1][3].a }}"), "1:11: an item is undefined, so it has no 'a'");
  EXPECT_EQ(RenderError("{% set t = 'a' %}{{ t() }}"), "1:21: a string cannot be called");
  EXPECT_EQ(RenderError("{{ (1).strip() }}"), "1:8: an int has no method 'strip'");
}

// What is looped over has no owner but the filter: the address sanitizer sees it go too early.
TEST(TemplateRender, KeepsTheItemsThatAFilterMakesWhileItLooksAtThem) {
  EXPECT_EQ(RenderText("{{ text|unique|join }}").value(), "abc");
  EXPECT_EQ(RenderText("{{ text|select('eq', 'b')|join }}").value(), "b");
  EXPECT_EQ(RenderText("{{ text|reject('eq', 'b')|join }}").value(), "ac");
  EXPECT_EQ(RenderText("{{ text|map('upper')|join }}").value(), "ABC");
  EXPECT_EQ(RenderText("{{ {'a': 1, 'b': 2}|rejectattr('x')|join }}").value(), "ab");
  EXPECT_EQ(RenderText("{{ {'a': 1, 'b': 2}|map('length')|sum }}").value(), "2");
}

TEST(TemplateRender, GivesWhatATemplateRaisesInOneLine) {
  EXPECT_EQ(RenderError("\n{{ raise_exception('no\\nsuch ' ~ text) }}"), "2:4: no such abc");
  const std::string message = RenderError("{{ raise_exception('é' * 1000) }}");
  EXPECT_LE(message.size(), 510u);
  EXPECT_EQ(message.substr(message.size() - 2), "é");
}

TEST(TemplateBounds, RefuseALargeTemplate) {
  EXPECT_TRUE(Template::Compile(std::string(kTemplateBytesMax, 'a')).has_value());
  EXPECT_EQ(CompileError(std::string(kTemplateBytesMax + 1, 'a')),
            "1:1: the template has 262145 bytes, more than 262144");
}

TEST(TemplateBounds, RefuseDeepSyntaxOfEverySort) {
  const size_t n = 50'000;
  for (const std::string& source : std::vector<std::string>{
           "{{ " + Repeat("(", n) + Repeat(")", n) + " }}",
           "{{ " + Repeat("[", n) + Repeat("]", n) + " }}",
           "{{ " + Repeat("{'a': ", n / 4) + Repeat("}", n / 4) + " }}",
           "{{ " + Repeat("not ", n) + "x }}",
           "{{ " + Repeat("-", n) + "1 }}",
           "{{ " + Repeat("+", n) + "1 }}",
           "{{ 1" + Repeat(" + 1", n) + " }}",
           "{{ 1" + Repeat(" ** 1", n / 2) + " }}",
           "{{ x" + Repeat(".a", n) + " }}",
           "{{ x" + Repeat("[0]", n) + " }}",
           "{{ x" + Repeat("()", n) + " }}",
           "{{ x" + Repeat(" | e", n) + " }}",
           "{{ 1" + Repeat(" if 1 else 1", n / 4) + " }}",
           "{{ 1" + Repeat(" if 1", n / 4) + " }}",
           Repeat("{% if x %}", n / 4),
           Repeat("{% for x in y %}", n / 4),
           Repeat("{% set x %}", n / 4),
           Repeat("{% macro m() %}", n / 8),
       }) {
    const std::string message = CompileError(source);
    EXPECT_NE(message.find("nests more than 128 deep"), std::string::npos)
        << source.substr(0, 20) << ": " << message;
  }
}

TEST(TemplateBounds, AllowLongChainsThatDoNotNest) {
  const size_t n = 5'000;
  EXPECT_TRUE(RenderText("{{ 1" + Repeat(" ~ 1", n) + " }}").has_value());
  EXPECT_TRUE(RenderText("{{ 1" + Repeat(" and 1", n) + " }}").has_value());
  EXPECT_TRUE(RenderText("{% if 0 %}" + Repeat("{% elif 0 %}", n) + "{% endif %}").has_value());
  EXPECT_TRUE(RenderText("{{ [" + Repeat("1, ", n) + "] | length }}").has_value());
}

TEST(TemplateBounds, RefuseManyArguments) {
  EXPECT_NE(CompileError("{{ x | map(" + Repeat("'map', ", 80'000 / 8) + ") }}")
                .find("more than 64 arguments"),
            std::string::npos);
  EXPECT_TRUE(RenderText("{{ text | map(" + Repeat("'map', ", 60) + "'upper') | list | length }}")
                  .has_value());
}

TEST(TemplateBounds, EndRecursionOfMacros) {
  EXPECT_NE(RenderError("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}")
                .find("nests more than 1000 evaluations"),
            std::string::npos);
  EXPECT_NE(RenderError("{% macro m(x) %}{% for y in [1] %}{% if y %}{% set z %}{{ m(m(x)) }}"
                        "{% endset %}{% endif %}{% endfor %}{% endmacro %}{{ m(1) }}")
                .find("nests more than 1000 evaluations"),
            std::string::npos);
  EXPECT_NE(RenderError("{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}"
                        "{{ m() }}")
                .find("nests more than 1000 evaluations"),
            std::string::npos);
}

// Each would take minutes or gigabytes if it were not charged for.
TEST(TemplateBounds, EndRunawayWork) {
  const std::string big = "{% set a = 'x' * 1000000 %}";
  const std::string hundred_thousand = "{% for i in range(100000) %}";
  for (const std::string& source : std::vector<std::string>{
           Repeat("{% for a in range(1000) %}", 4) + Repeat("{% endfor %}", 4),
           "{{ 'x' * 1000000000000 }}",
           "{{ [1, 2] * 1000000000000 }}",
           "{{ 'a' | indent(100000000000) }}",
           "{{ [1] | tojson(indent=100000000000) }}",
           "{% set ns = namespace(s='x') %}" + hundred_thousand +
               "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
           "{% set ns = namespace(s=[1]) %}" + hundred_thousand +
               "{% set ns.s = ns.s + ns.s %}{% endfor %}",
           big + hundred_thousand + "{{ a in 'y' ~ a }}{% endfor %}",
           big + hundred_thousand + "{% if a == a %}{% endif %}{% endfor %}",
           big + hundred_thousand + "{% if a | length %}{% endif %}{% endfor %}",
           big + hundred_thousand + "{{ a[5] }}{% endfor %}",
           big + hundred_thousand + "{{ a.strip('xyz') }}{% endfor %}",
           big + "{{ a.strip('yz' ~ a) }}",
           big + hundred_thousand + "{{ a.startswith(a) }}{% endfor %}",
           big + hundred_thousand + "{{ a.removeprefix(a) }}{% endfor %}",
           big + "{% set d = dict({a: 1}) %}" + hundred_thousand + "{{ d[a] }}{% endfor %}",
           "{% set a = ',' * 60000000 %}{{ a.split(',') | length }}",
           big + "{{ a | replace('x', a) }}",
           big + "{{ a | list | join(a) }}",
           big + hundred_thousand + "{{ a }}{% endfor %}",
           hundred_thousand + "{% set x = range(100000) %}{% endfor %}",
           hundred_thousand + "{% macro m" + "() %}{% endmacro %}" +
               "{% for j in range(100) %}{% macro n() %}{% endmacro %}{% endfor %}{% endfor %}",
           "{% set ns = namespace(d={'a': 1}) %}" + hundred_thousand +
               "{% set ns.d = [ns.d, ns.d] %}{% endfor %}",
           "{% set ns = namespace(d=[1]) %}" + Repeat("{% set ns.d = [ns.d, ns.d] %}", 50) +
               "{{ ns.d }}",
           "{% set ns = namespace(d=[1]) %}" + Repeat("{% set ns.d = [ns.d, ns.d] %}", 50) +
               "{{ ns.d == ns.d }}",
           "{% set ns = namespace(d=[1]) %}" + Repeat("{% set ns.d = [ns.d, ns.d] %}", 50) +
               "{{ ns.d | tojson }}",
       }) {
    const auto start = std::chrono::steady_clock::now();
    const std::string message = RenderError(source);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_TRUE(message.find("takes more than") != std::string::npos ||
                message.find("makes more than") != std::string::npos ||
                message.find("writes more than") != std::string::npos ||
                message.find("nests lists more than") != std::string::npos)
        << source.substr(0, 100) << ": " << message;
    EXPECT_LT(took.count(), 20) << source.substr(0, 100);  // sanitizers are slow
  }
}

TEST(TemplateBounds, RefuseRangesOfMoreThanJinjasSandboxAllows) {
  EXPECT_TRUE(RenderText("{{ range(100000) | length }}").has_value());
  EXPECT_EQ(RenderError("{{ range(100001) | length }}"), "1:4: range has more than 100000 numbers");
  EXPECT_EQ(RenderError("{{ range(-9223372036854775807, 9223372036854775807, 9) }}"),
            "1:4: range has more than 100000 numbers");
}

// A cycle through namespaces, and a chain of a million, would leak or overflow the stack when they
// go: the sanitizers' builds look.
TEST(TemplateBounds, FreeNamespacesThatReferToOneAnother) {
  EXPECT_TRUE(
      RenderText("{% set a = namespace() %}{% set b = namespace(a=[a]) %}{% set a.b = {'b': b} %}")
          .has_value());
  EXPECT_TRUE(RenderText("{% set ns = namespace(head=1) %}{% for i in range(100000) %}"
                         "{% set ns.head = namespace(next=[ns.head]) %}{% endfor %}ok")
                  .has_value());
  EXPECT_NE(RenderError("{% set ns = namespace(l=1) %}{% for i in range(100000) %}"
                        "{% for j in [ns.l] %}{% set ns.l = loop %}{% endfor %}{% endfor %}")
                .find("nests lists more than 64 deep"),
            std::string::npos);
}

TEST(TemplateRender, LeavesTheTemplateAsItWas) {
  const Result<Template> compiled =
      Template::Compile("{{ x }}{% set x = 1 %}{% set n = namespace(a=1) %}{{ n.a }}");
  ASSERT_TRUE(compiled.has_value());
  for (int i = 0; i < 2; ++i) {
    const auto text = compiled->Render(std::tm{}, Limits{}, [](Workspace&) { return Variables(); });
    ASSERT_TRUE(text.has_value());
    EXPECT_EQ(*text, "1");
  }
}

TEST(TemplateText, PassesBytesThatAreNotUtf8) {
  EXPECT_EQ(*RenderText("a\xFF{{ '\xC3' ~ '\xA9' }}{{ '\xE2\x82x' | length }}"),
            "a\xFF\xC3\xA9"
            "3");
}

TEST(TemplateText, NamesNoVariableItWasNotGiven) {
  EXPECT_EQ(*RenderText("{{ text }}{{ messages }}"), "abc");
}

}  // namespace
}  // namespace tessera::jinja
