// SPDX-License-Identifier: Apache-2.0
#include "server/activity_pages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "server/server_fixture.h"

namespace tessera::testing {
namespace {

class ActivityPagesTest : public ServerTest {};

RequestProgress Progress(uint64_t id, uint64_t submitted_ns) {
  RequestProgress request;
  request.summary.id = RequestId(id);
  request.summary.prompt_tokens = 50;
  request.summary.max_tokens = 9;
  request.submitted_ns = submitted_ns;
  return request;
}

TEST(ActivityPages, ARequestThatRunsHasWhatItsPhaseTookSoFar) {
  RequestList list;
  list.now_ns = 100'000'000;
  RequestProgress queued = Progress(3, 40'000'000);
  RequestProgress prefill = Progress(2, 30'000'000);
  prefill.summary.admitted = true;
  prefill.summary.timings.queue_ms = 20;
  prefill.computed = 32;
  prefill.summary.match = ComputedReport(50, ComputeReason::kCold);
  RequestProgress decode = prefill;
  decode.summary.id = RequestId(1);
  decode.summary.completion_tokens = 4;
  decode.summary.timings.prompt_ms = 25;
  decode.computed = 53;
  list.live = {decode, prefill, queued};
  RequestProgress ended = decode;
  ended.summary.finish = FinishReason::kStop;
  ended.summary.timings.predicted_ms = 12;
  list.ended = {ended};
  const Json json = Json::parse(RequestsBody(list));
  EXPECT_EQ(json["live"][2]["phase"], "queued");
  EXPECT_EQ(json["live"][2]["queue_ms"], 60);
  EXPECT_EQ(json["live"][1]["phase"], "prefill");
  EXPECT_EQ(json["live"][1]["queue_ms"], 20);
  EXPECT_EQ(json["live"][1]["prefill_ms"], 50);
  EXPECT_EQ(json["live"][1]["prompt_done"], 32);
  EXPECT_EQ(json["live"][1]["computed"][0]["reason"], "cold");
  EXPECT_EQ(json["live"][0]["phase"], "decode");
  EXPECT_EQ(json["live"][0]["decode_ms"], 25);
  EXPECT_EQ(json["live"][0]["prompt_done"], 50);
  EXPECT_TRUE(json["live"][0]["finish"].is_null());
  EXPECT_EQ(json["ended"][0]["phase"], "ended");
  EXPECT_EQ(json["ended"][0]["decode_ms"], 12);
  EXPECT_EQ(json["ended"][0]["finish"], "stop");
}

TEST(ActivityPages, TheRunsOfAPoolAreRowsOfTheNamedColumns) {
  PoolPageMap pool{.name = "a \"pool\"", .page_bytes = 64, .pages = 12, .runs = {}};
  pool.runs.push_back({.pages = 3, .use = PageUse::kDraining});
  pool.runs.push_back({.pages = 4,
                       .use = PageUse::kHeld,
                       .content = PageContent::kBlock,
                       .findable = true,
                       .owner = 8,
                       .begin = 16,
                       .end = 80,
                       .sharers = 2});
  pool.runs.push_back({.pages = 2,
                       .use = PageUse::kHeld,
                       .content = PageContent::kImage,
                       .owner = 5,
                       .end = 70,
                       .sharers = 1});
  pool.runs.push_back(
      {.pages = 1, .use = PageUse::kCached, .content = PageContent::kSlab, .begin = 3, .end = 16});
  pool.runs.push_back({.pages = 2});
  StoreCensus census;
  census.images = {.live = 1, .held = 2, .pinned = 3, .retained = 4, .cached = 5};
  census.conv_bytes = 96;
  const Json json = Json::parse(PagesBody({&pool, 1}, census));
  EXPECT_EQ(json["kinds"]["conv"],
            Json::parse(R"({"object_bytes":96,"live":1,"held":2,"pinned":3,"retained":4,
                            "cached":5})"));
  EXPECT_EQ(json["columns"].size(), 8u);
  EXPECT_EQ(json["pools"][0]["name"], "a \"pool\"");
  EXPECT_EQ(json["pools"][0]["runs"],
            Json::parse(R"([[3,"draining"],[4,"held","block","entry",8,16,80,2],
                            [2,"held","image","request",5,0,70,1],
                            [1,"cached","slab",null,null,3,16,0],[2,"free"]])"));
}

TEST_F(ActivityPagesTest, TheMapOfAServerAddsUpToItsCountsAndNamesItsEntries) {
  const RunningServer server(engine_.get());
  ASSERT_EQ(server.Complete({{"prompt", kPrompt}, {"max_tokens", 4}}).status, 200);
  httplib::Client client = server.Client();
  const Json cache = Json::parse(client.Get("/cache")->body);
  const Json map = Json::parse(client.Get("/cache/pages")->body);
  const Json entries = Json::parse(client.Get("/cache/entries?limit=10000")->body);
  for (size_t i = 0; i < cache["pools"].size(); ++i) {
    const Json& pages = cache["pools"][i]["pages"];
    uint64_t cached = 0, all = 0;
    for (const Json& run : map["pools"][i]["runs"]) {
      all += run[0].get<uint64_t>();
      if (run[1] == "cached") cached += run[0].get<uint64_t>();
    }
    EXPECT_EQ(all, pages["total"]);
    EXPECT_EQ(cached,
              pages["cached_attention"].get<uint64_t>() + pages["cached_state"].get<uint64_t>());
  }
  std::vector<uint64_t> listed, mapped;
  for (const Json& entry : entries["entries"]) {
    if (entry["checkpoint"] == true) listed.push_back(entry["id"].get<uint64_t>());
  }
  for (const Json& pool : map["pools"]) {
    for (const Json& run : pool["runs"]) {
      if (run.size() > 4 && run[2] == "image") mapped.push_back(run[4].get<uint64_t>());
    }
  }
  ASSERT_FALSE(listed.empty());
  for (const uint64_t id : mapped) {
    EXPECT_NE(std::find(listed.begin(), listed.end(), id), listed.end()) << id;
  }
}

TEST_F(ActivityPagesTest, ARequestIsListedWithoutAWordOfItsPrompt) {
  const RunningServer server(engine_.get());
  const Json body = {{"prompt", kPrompt}, {"max_tokens", 4}, {"cache_salt", "of one tenant"}};
  ASSERT_EQ(server.Complete(body).status, 200);
  const std::string text = server.Client().Get("/requests")->body;
  EXPECT_EQ(text.find("kite"), std::string::npos);
  EXPECT_EQ(text.find("tenant"), std::string::npos);
  const Json last = Json::parse(text)["ended"][0];
  EXPECT_EQ(last["salted"], true);
  EXPECT_GT(last["prompt_tokens"], 0);
  EXPECT_GT(last["prefill_ms"], 0);
}

}  // namespace
}  // namespace tessera::testing
