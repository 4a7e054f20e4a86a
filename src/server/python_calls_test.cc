// SPDX-License-Identifier: Apache-2.0
#include "server/python_calls.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace tessera {
namespace {

TEST(PythonCalls, NamesAndValuesBecomeJsonInTheirOrder) {
  const auto calls = ParsePythonCalls(
      R"( [find(place="the 'barn'", z=1, a=-2.5e3, on=True, off = False, none=None,)"
      R"( list=[1, 'x', [] ,], dict={'k': {"n": 1}}), home.stop( ) , ] )");
  ASSERT_TRUE(calls.has_value());
  ASSERT_EQ(calls->size(), 2u);
  EXPECT_EQ((*calls)[0].name, "find");
  EXPECT_EQ((*calls)[0].arguments.dump(),
            R"({"place":"the 'barn'","z":1,"a":-2500.0,"on":true,"off":false,"none":null,)"
            R"("list":[1,"x",[]],"dict":{"k":{"n":1}}})");
  EXPECT_EQ((*calls)[1].name, "home.stop");
  EXPECT_EQ((*calls)[1].arguments.dump(), "{}");
}

TEST(PythonCalls, EscapesAreThoseOfStrings) {
  const auto calls = ParsePythonCalls(R"([f(a='it\'s\n\\ \d', b="\"")])");
  ASSERT_TRUE(calls.has_value());
  EXPECT_EQ((*calls)[0].arguments["a"], "it's\n\\ \\d");
  EXPECT_EQ((*calls)[0].arguments["b"], "\"");
}

TEST(PythonCalls, AnythingElseIsNone) {
  const std::string deep = "[f(a=" + std::string(100'000, '[');
  for (const std::string& text :
       {std::string(), std::string("f()"), std::string("[f(]"), std::string("[f(1)]"),
        std::string("[f(a=1, a=2)]"), std::string("[f(a=g())]"), std::string("[f(a=1+1)]"),
        std::string("[f()] x"), std::string("[f(a='x)]"), std::string("[f(a=nan)]"),
        std::string("[f(a={1: 2})]"), std::string("[f(a=\"x\\"), deep}) {
    EXPECT_FALSE(ParsePythonCalls(text).has_value()) << text.substr(0, 40);
  }
}

TEST(PythonCalls, EveryPrefixAndEveryFlippedByteIsReadOrNot) {
  const std::string text = R"([find(a='x\n', b=[1, {'k': None}]), stop()])";
  Random random(3);
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_FALSE(ParsePythonCalls(text.substr(0, size)).has_value());
    for (int i = 0; i < 20; ++i) {
      std::string flipped = text;
      flipped[size] = static_cast<char>(random.Below(256));
      (void)ParsePythonCalls(flipped);
    }
  }
}

}  // namespace
}  // namespace tessera
