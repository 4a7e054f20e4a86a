// SPDX-License-Identifier: Apache-2.0
#include "engine/state_salt.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(StateSalt, NoSaltIsTheOneThatAllShare) {
  EXPECT_EQ(StateSalt(IsolateKind::kOff, "", RequestId(1)), "");
  EXPECT_EQ(StateSalt(IsolateKind::kOff, "", RequestId(2)), "");
}

TEST(StateSalt, AClientsSaltIsTheSameForAllItsRequestsAndNobodyElses) {
  const std::string a = StateSalt(IsolateKind::kOff, "a", RequestId(1));
  EXPECT_EQ(a, StateSalt(IsolateKind::kOff, "a", RequestId(2)));
  EXPECT_NE(a, StateSalt(IsolateKind::kOff, "b", RequestId(1)));
  EXPECT_NE(a, "");
}

TEST(StateSalt, NoClientCanSendTheSaltOfAnIsolatedRequest) {
  const std::string isolated = StateSalt(IsolateKind::kRequest, "a", RequestId(7));
  EXPECT_NE(isolated, StateSalt(IsolateKind::kRequest, "a", RequestId(8)));
  for (const std::string& guess : {isolated, isolated.substr(1), std::string("7")}) {
    EXPECT_NE(isolated, StateSalt(IsolateKind::kOff, guess, RequestId(7)));
  }
}

}  // namespace
}  // namespace tessera
