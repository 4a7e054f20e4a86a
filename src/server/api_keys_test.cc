// SPDX-License-Identifier: Apache-2.0
#include "server/api_keys.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace tessera {
namespace {

ApiKeys Make(const std::vector<std::string>& keys) {
  Result<ApiKeys> made = ApiKeys::Create(keys);
  EXPECT_TRUE(made.has_value()) << made.error().message();
  return made ? std::move(*made) : ApiKeys();
}

TEST(ApiKeys, EachKeyIsKnownByItsNumberAndNoOtherTextIs) {
  const ApiKeys keys = Make({"alpha", "beta", "alpha", "gamma"});
  EXPECT_EQ(keys.Find("Bearer alpha"), 0u);
  EXPECT_EQ(keys.Find("Bearer beta"), 1u);
  EXPECT_EQ(keys.Find("Bearer gamma"), 2u);  // the same key twice is one
  for (const char* other : {"", "alpha", "Bearer", "Bearer ", "Bearer alph", "Bearer alphaa",
                            "bearer alpha", "Basic alpha", "Bearer  alpha"}) {
    EXPECT_EQ(keys.Find(other), std::nullopt) << other;
  }
}

TEST(ApiKeys, WithoutKeysTheServerIsOpen) {
  EXPECT_TRUE(ApiKeys().open());
  EXPECT_FALSE(Make({"a"}).open());
}

TEST(ApiKeys, IsolationKeysDifferDoNotContainTheKeyAndLastOverRestarts) {
  const ApiKeys keys = Make({"alpha", "alphb", "a"});
  std::set<std::string> seen;
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(keys.isolation_key(i).size(), 32u);
    EXPECT_EQ(keys.isolation_key(i).find("alph"), std::string::npos);
    seen.insert(keys.isolation_key(i));
  }
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(Make({"x", "alpha"}).isolation_key(1), keys.isolation_key(0));
}

TEST(ApiKeys, WhatAHeaderCannotCarryIsRefusedWithoutBeingShown) {
  for (const std::string& bad : {std::string(), std::string("secret key"), std::string("secret\n"),
                                 std::string("s\xc3\xa9"), std::string(kApiKeyBytesMax + 1, 's')}) {
    const Result<ApiKeys> made = ApiKeys::Create({"fine", bad});
    ASSERT_FALSE(made.has_value());
    EXPECT_EQ(made.error().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(made.error().message().find("API key 2"), std::string::npos);
    EXPECT_EQ(made.error().message().find("secret"), std::string::npos);
  }
  EXPECT_FALSE(ApiKeys::Create(std::vector<std::string>(kApiKeysMax + 1, "a")).has_value());
}

TEST(ApiKeys, AFileHasAKeyALine) {
  const std::string path =
      (std::filesystem::temp_directory_path() / "tessera_api_keys_test").string();
  const auto read = [&](const std::string& text) {
    std::ofstream(path) << text;
    return ReadApiKeyFile(path);
  };
  EXPECT_EQ(*read("# ours\nalpha\r\n\nbeta"), (std::vector<std::string>{"alpha", "beta"}));
  EXPECT_NE(read("alpha\nbe ta\n").error().message().find(path + ":2: API key 2"),
            std::string::npos);
  EXPECT_EQ(read("# none\n").error().code(), StatusCode::kInvalidArgument);
  std::filesystem::remove(path);
  EXPECT_EQ(ReadApiKeyFile(path).error().code(), StatusCode::kIo);
}

}  // namespace
}  // namespace tessera
