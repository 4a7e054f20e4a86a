// SPDX-License-Identifier: Apache-2.0
#include "server/connection_workers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>

namespace tessera {
namespace {

TEST(ConnectionWorkers, EveryConnectionIsServedBeforeTheyFinish) {
  std::atomic<int> sum{0};
  Result<std::unique_ptr<ConnectionWorkers>> workers =
      ConnectionWorkers::Create(3, [&](int socket) { sum += socket; });
  ASSERT_TRUE(workers.has_value());
  for (int i = 1; i <= 100; ++i) (*workers)->Add(i);
  (*workers)->Finish();
  EXPECT_EQ(sum, 5050);
}

TEST(ConnectionWorkers, ThreadsTheSystemDoesNotGiveAreAnIoError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers map more than the limit themselves";
#endif
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  rlimit none = before;
  none.rlim_cur = 1 << 20;  // no room for one more stack
  ASSERT_EQ(setrlimit(RLIMIT_AS, &none), 0);
  // More than the stacks the C library keeps of threads that ended.
  const Result<std::unique_ptr<ConnectionWorkers>> workers =
      ConnectionWorkers::Create(256, [](int) {});
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  ASSERT_FALSE(workers.has_value());
  EXPECT_EQ(workers.error().code(), StatusCode::kIo);
  EXPECT_NE(workers.error().message().find("256 threads"), std::string::npos);
}

}  // namespace
}  // namespace tessera
