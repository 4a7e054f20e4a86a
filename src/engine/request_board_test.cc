// SPDX-License-Identifier: Apache-2.0
#include "engine/request_board.h"

#include <gtest/gtest.h>

#include "engine/engine_client.h"
#include "engine/engine_test_models.h"

namespace tessera {
namespace {

using testing::Ask;
using testing::MakeEngine;

RequestProgress Progress(uint64_t id, FinishReason finish = FinishReason::kNone) {
  RequestProgress request;
  request.summary.id = RequestId(id);
  request.summary.finish = finish;
  return request;
}

TEST(RequestBoard, ARequestIsThereOnceWaitingRunningOrEnded) {
  RequestBoard board;
  board.Show(Progress(2));
  board.Show(Progress(1));
  RequestProgress later = Progress(2);
  later.computed = 7;
  board.Show(later);
  RequestList list = board.Read();
  ASSERT_EQ(list.live.size(), 2u);
  EXPECT_EQ(list.live[0].summary.id, RequestId(1)) << "in the order they came";
  EXPECT_EQ(list.live[1].computed, 7u);
  board.End(Progress(2, FinishReason::kStop));
  list = board.Read();
  ASSERT_EQ(list.live.size(), 1u);
  ASSERT_EQ(list.ended.size(), 1u);
  EXPECT_EQ(list.ended[0].summary.id, RequestId(2));
}

TEST(RequestBoard, OfThoseThatEndedTheLastAreKeptNewestFirst) {
  RequestBoard board;
  for (uint64_t id = 1; id <= 2 * RequestBoard::kEndedMax + 5; ++id) {
    board.Show(Progress(id));
    board.End(Progress(id, FinishReason::kLength));
    const RequestList list = board.Read();
    ASSERT_EQ(list.ended.size(), std::min<uint64_t>(id, RequestBoard::kEndedMax));
    for (size_t i = 0; i < list.ended.size(); ++i) {
      ASSERT_EQ(list.ended[i].summary.id, RequestId(id - i));
    }
    EXPECT_TRUE(list.live.empty());
  }
}

TEST(RequestBoard, WhoFindsNoPlaceGetsOneWhenThereIs) {
  RequestBoard board;
  for (uint64_t id = 1; id <= RequestBoard::kLiveMax + 1; ++id) board.Show(Progress(id));
  const uint64_t late = RequestBoard::kLiveMax + 1;
  EXPECT_EQ(board.Read().live.size(), RequestBoard::kLiveMax);
  EXPECT_NE(board.Read().live.back().summary.id, RequestId(late));
  board.End(Progress(3, FinishReason::kStop));
  board.Show(Progress(late));
  EXPECT_EQ(board.Read().live.back().summary.id, RequestId(late));
  EXPECT_EQ(board.Read().live.size(), RequestBoard::kLiveMax);
}

TEST(RequestBoard, AnEngineShowsWhatItsRequestsTook) {
  EngineOptions options;
  options.model_path = testing::ToyModelPath();
  options.threads = 1;
  std::unique_ptr<Engine> engine = MakeEngine(options);
  Request request;
  request.prompt.assign(40, 5);
  request.max_tokens = 6;
  request.ignore_eos = true;
  request.cache_salt = "a tenant";
  const auto before = engine->RecentRequests();
  EXPECT_TRUE(before.live.empty() && before.ended.empty());
  Ask(*engine, request);
  const RequestList list = engine->RecentRequests();
  ASSERT_EQ(list.ended.size(), 1u);
  EXPECT_TRUE(list.live.empty());
  const RequestProgress& ended = list.ended[0];
  EXPECT_EQ(ended.summary.finish, FinishReason::kLength);
  EXPECT_EQ(ended.summary.prompt_tokens, 40u);
  EXPECT_EQ(ended.summary.completion_tokens, 6u);
  EXPECT_TRUE(ended.summary.salted);
  EXPECT_GT(ended.summary.timings.prompt_ms, 0);
  EXPECT_GT(list.now_ns, ended.submitted_ns);
}

}  // namespace
}  // namespace tessera
