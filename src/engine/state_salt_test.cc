// SPDX-License-Identifier: Apache-2.0
#include "engine/state_salt.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace tessera {
namespace {

std::string SaltOf(IsolateKind isolate, std::string_view salt, uint64_t id,
                   std::string_view key = "") {
  return StateSalt(isolate, {.isolation_key = key, .cache_salt = salt, .id = RequestId(id)});
}

TEST(StateSalt, NoSaltIsTheOneThatAllShare) {
  EXPECT_EQ(SaltOf(IsolateKind::kOff, "", 1), "");
  EXPECT_EQ(SaltOf(IsolateKind::kOff, "", 2, "somebody's key"), "");
}

TEST(StateSalt, AClientsSaltIsTheSameForAllItsRequestsAndNobodyElses) {
  const std::string a = SaltOf(IsolateKind::kOff, "a", 1);
  EXPECT_EQ(a, SaltOf(IsolateKind::kOff, "a", 2));
  EXPECT_NE(a, SaltOf(IsolateKind::kOff, "b", 1));
  EXPECT_NE(a, "");
}

TEST(StateSalt, NoClientCanSendTheSaltOfAnIsolatedRequest) {
  const std::string isolated = SaltOf(IsolateKind::kRequest, "a", 7);
  EXPECT_NE(isolated, SaltOf(IsolateKind::kRequest, "a", 8));
  for (const std::string& guess : {isolated, isolated.substr(1), std::string("7")}) {
    EXPECT_NE(isolated, SaltOf(IsolateKind::kOff, guess, 7));
    EXPECT_NE(isolated, SaltOf(IsolateKind::kKey, guess, 7));
  }
}

TEST(StateSalt, RequestsOfAKeyShareAndMayIsolateFurther) {
  const std::string a = SaltOf(IsolateKind::kKey, "", 1, "a");
  EXPECT_EQ(a, SaltOf(IsolateKind::kKey, "", 2, "a"));
  EXPECT_NE(a, SaltOf(IsolateKind::kKey, "", 1, "b"));
  EXPECT_NE(a, SaltOf(IsolateKind::kKey, "team", 1, "a"));
  EXPECT_NE(SaltOf(IsolateKind::kKey, "", 1, ""), "") << "no key is not shared with everybody";
}

// Whatever salt it sends, a client stays within its key: also where key and salt are cut elsewhere.
TEST(StateSalt, NoSaltLeadsToAnotherKey) {
  std::set<std::string> salts;
  size_t pairs = 0;
  const std::string words[] = {"", "a", "1:a", "aa", "a1:a", "1", ":", "k1:a", "11:aaaaaaaaaaa"};
  for (const std::string& key : words) {
    for (const std::string& salt : words) {
      salts.insert(SaltOf(IsolateKind::kKey, salt, 1, key));
      ++pairs;
    }
  }
  EXPECT_EQ(salts.size(), pairs);
}

}  // namespace
}  // namespace tessera
