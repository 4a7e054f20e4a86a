// SPDX-License-Identifier: Apache-2.0
//
// Sharing by a clock of its own, then over a socket: counts of readings, not times.
#include "server/shared_reading.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "server/server_fixture.h"

namespace tessera::testing {
namespace {

constexpr uint64_t kMs = 1'000'000;

struct CountedReading {
  uint64_t now = 0;
  uint64_t takes = 0;  // of the thread's time, for a reading
  uint64_t spent = 0;
  int made = 0;
  SharedReading<int> shared{49,
                            [this] {
                              now += takes;
                              spent += takes;
                              return ++made;
                            },
                            {[this] { return now; }, [this] { return spent; }}};

  int At(uint64_t ms) {
    now = ms * kMs;
    return *shared.Get();
  }
};

TEST(SharedReading, IsMadeOnceForAllWhoAskWhileItIsFresh) {
  CountedReading reading;
  reading.takes = 40 * kMs;
  EXPECT_EQ(reading.At(0), 1);
  EXPECT_EQ(reading.At(100), 1);
  EXPECT_EQ(reading.At(1999), 1);
  EXPECT_EQ(reading.At(2000), 2) << "40 ms, and 49 times that";
  reading.takes = 0;
  EXPECT_EQ(reading.At(4000), 3);
  EXPECT_EQ(reading.At(4000), 4) << "what costs nothing is made for each";
}

TEST(SharedReading, TakesAFiftiethOfTheTimeHoweverOftenItIsAskedFor) {
  CountedReading reading;
  reading.takes = 40 * kMs;
  for (uint64_t ms = 0; ms < 100'000; ++ms) (void)reading.At(ms);
  EXPECT_EQ(reading.made, 50);
}

TEST(SharedReading, IsMadeAgainWhenItIsForgotten) {
  CountedReading reading;
  reading.takes = 40 * kMs;
  EXPECT_EQ(reading.At(0), 1);
  reading.shared.Forget();
  EXPECT_EQ(reading.At(100), 2);
  EXPECT_EQ(reading.At(101), 2);
}

TEST(SharedReading, CallersAtOnceShareOne) {
  std::atomic<int> made = 0;
  SharedReading<int> shared(1, [&] { return ++made; },
                            {[] { return uint64_t{0}; }, [&] { return uint64_t(made); }});
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] { EXPECT_EQ(*shared.Get(), 1); });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(made, 1);
}

class SharedPagesTest : public ServerTest {};

// What a page shows would change between two requests, and does not before its time is over.
TEST_F(SharedPagesTest, PagesThatLookAtEveryEntryAreReadOnceForAllWhoPoll) {
  ApiOptions options;
  options.reading_rest = 1'000'000'000;  // hours
  const RunningServer server(engine_.get(), {}, options);
  const auto get = [&](const std::string& path) { return server.Client().Get(path)->body; };
  const auto sample = [&](const std::string& name) {
    const std::string page = get("/metrics");
    const size_t at = page.find("\n" + name + " ");
    EXPECT_NE(at, page.npos) << name;
    return page.substr(at + name.size() + 2, page.find('\n', at + 1) - at - name.size() - 2);
  };
  const std::string pages = get("/cache/pages");
  const std::string entries = get("/cache/entries");
  const std::string many = get("/cache/entries?limit=200");
  const std::string checkpoints = sample("tessera_checkpoints");
  EXPECT_EQ(sample("tessera_steps_total"), std::to_string(engine_->Stats().steps));
  ASSERT_EQ(server.Complete({{"prompt", kPrompt}, {"max_tokens", 2}}).status, 200);
  EXPECT_EQ(get("/cache/pages"), pages);
  EXPECT_EQ(get("/cache/entries"), entries);
  EXPECT_EQ(get("/cache/entries?limit=50"), entries) << "of one list";
  EXPECT_EQ(get("/cache/entries?limit=9999"), many);
  EXPECT_EQ(sample("tessera_checkpoints"), checkpoints);
  // Counters cost no look at the entries: they are of now.
  EXPECT_EQ(sample("tessera_steps_total"), std::to_string(engine_->Stats().steps));
  // Who clears the cache sees that it is empty.
  ASSERT_EQ(server.Client().Delete("/cache")->status, 200);
  EXPECT_EQ(get("/cache/entries"), R"({"entries":[],"more":false})");
  EXPECT_EQ(sample("tessera_checkpoints"), "0");
}

}  // namespace
}  // namespace tessera::testing
