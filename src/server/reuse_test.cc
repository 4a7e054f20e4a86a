// SPDX-License-Identifier: Apache-2.0
//
// What clients see of the reuse of prompts, over a real socket, on the bundled model: counts,
// reasons, isolation, the list of what is kept, and clearing it.
#include <gtest/gtest.h>

#include "base/bytes.h"
#include "server/server_fixture.h"

namespace tessera::testing {
namespace {

const std::string kLog =
    "Log of day 12. Ada left the red kite in the barn. The code of the mill is 4821. Rosa counted "
    "31 drums.\n";

Json Ask(const std::string& question, const Json& fields = Json::object()) {
  Json body = {{"prompt", kLog + "Q: " + question + "\nA:"}, {"max_tokens", 6}, {"temperature", 0}};
  body.update(fields);
  return body;
}

uint64_t Cached(const Json& answer) {
  return answer["usage"]["prompt_tokens_details"]["cached_tokens"].get<uint64_t>();
}

// Of the first range of tokens that were computed; "" when none was.
std::string Reason(const Json& answer) {
  const Json& computed = answer["choices"][0]["reuse"]["computed"];
  return computed.empty() ? "" : computed[0]["reason"].get<std::string>();
}

// An engine that keeps API keys apart.
TEST(ReuseOptions, IsolateKeyLetsAKeyReuseItsOwnAndNobodyElses) {
  EngineOptions options;
  options.model_path = std::string(TESSERA_SOURCE_DIR) + "/models/harbour-2.8m-q8_0.gguf";
  options.budget_bytes = 64 * kMiB;
  options.threads = 2;
  options.isolate = IsolateKind::kKey;
  const auto engine = std::move(*Engine::Create(options));
  ApiOptions api;
  api.keys = *ApiKeys::Create({"alice", "bob"});
  const RunningServer server(engine.get(), {}, api);
  const auto cached = [&](const char* key, const char* salt) {
    const auto reply = server.Post(Ask("Where is the red kite?", {{"cache_salt", salt}}).dump(),
                                   {{"Authorization", std::string("Bearer ") + key}});
    EXPECT_EQ(reply.status, 200) << reply.json;
    return Cached(reply.json);
  };
  EXPECT_EQ(cached("alice", ""), 0u);
  EXPECT_GT(cached("alice", ""), 0u);
  EXPECT_EQ(cached("bob", ""), 0u);
  EXPECT_GT(cached("bob", ""), 0u);
  // A salt divides a key's state, and is no other key's.
  EXPECT_EQ(cached("alice", "x"), 0u);
  EXPECT_EQ(cached("bob", "x"), 0u);
  EXPECT_GT(cached("alice", "x"), 0u);
}

class ReuseTest : public ServerTest {
 protected:
  static Json Get(const RunningServer& server, const std::string& path) {
    return Json::parse(server.Client().Get(path)->body);
  }
  // Of an answer: from 0 to the prompt's end every token is reused or has its reason, once.
  static void ExpectEveryTokenAccountedFor(const Json& answer) {
    const Json& reuse = answer["choices"][0]["reuse"];
    EXPECT_EQ(reuse["reused"], Cached(answer)) << reuse;
    uint64_t end = reuse["reused"].get<uint64_t>();
    for (const Json& range : reuse["computed"]) {
      EXPECT_EQ(range["from"], end) << reuse;
      EXPECT_LT(end, range["to"].get<uint64_t>()) << reuse;
      end = range["to"].get<uint64_t>();
    }
    EXPECT_EQ(end, answer["usage"]["prompt_tokens"].get<uint64_t>()) << reuse;
  }
  static Json Answer(const RunningServer& server, const Json& body) {
    const auto reply = server.Complete(body);
    EXPECT_EQ(reply.status, 200) << reply.json;
    if (reply.status != 200) return {};
    ExpectEveryTokenAccountedFor(reply.json);
    return reply.json;
  }
};

TEST_F(ReuseTest, ThePromptOfAnAnswerSentAgainComputesNothing) {
  const RunningServer server(engine_.get());
  const Json body = Ask("Where is the red kite?", {{"max_tokens", 1}});
  const Json cold = Answer(server, body);
  EXPECT_EQ(Cached(cold), 0u);
  EXPECT_EQ(Reason(cold), "cold");
  const Json before = Get(server, "/cache")["totals"];
  const Json again = Answer(server, body);
  EXPECT_EQ(Cached(again), again["usage"]["prompt_tokens"]);
  EXPECT_EQ(again["timings"]["cache_n"], again["usage"]["prompt_tokens"]);
  EXPECT_EQ(again["timings"]["prompt_n"], 0);
  EXPECT_EQ(again["choices"][0]["reuse"]["from_row"], true);
  EXPECT_EQ(again["choices"][0]["text"], cold["choices"][0]["text"]);
  EXPECT_EQ(again["choices"][0]["receipt"], cold["choices"][0]["receipt"]);
  const Json after = Get(server, "/cache")["totals"];
  EXPECT_EQ(after["prompt_tokens"], before["prompt_tokens"]);
  EXPECT_EQ(after["steps"], before["steps"]);
  EXPECT_EQ(after["completion_tokens"], before["completion_tokens"].get<int>() + 1);
}

TEST_F(ReuseTest, AStreamSaysTheSameOfReuseAsABody) {
  const RunningServer server(engine_.get());
  Json body = Ask("Where is the red kite?");
  Answer(server, body);
  const Json whole = Answer(server, body);
  ASSERT_GT(Cached(whole), 0u);
  body["stream_options"] = {{"include_usage", true}};
  const StreamedAnswer stream = Stream(server, body);
  EXPECT_EQ(stream.chunks.back()["usage"], whole["usage"]);
  const Json& last = stream.chunks[stream.chunks.size() - 2];
  EXPECT_EQ(last["choices"][0]["reuse"], whole["choices"][0]["reuse"]);
  EXPECT_EQ(last["timings"]["cache_n"], Cached(whole));
  // Cold, the zero is there too.
  body["cache_prompt"] = false;
  const Json usage = Stream(server, body).chunks.back()["usage"];
  EXPECT_EQ(usage["prompt_tokens_details"]["cached_tokens"], 0);
}

TEST_F(ReuseTest, ANamedPositionIsReusedByTheSecondRequest) {
  const RunningServer server(engine_.get());
  const int boundary =
      Answer(server, {{"prompt", kLog}, {"max_tokens", 0}})["usage"]["prompt_tokens"];
  server.Client().Delete("/cache");
  const Json named = {{"checkpoint_at", boundary}};
  EXPECT_EQ(Cached(Answer(server, Ask("Where is the red kite?", named))), 0u);
  const Json second = Answer(server, Ask("How many drums did Rosa count?", named));
  EXPECT_GE(Cached(second), static_cast<uint64_t>(boundary));
  const Json& reuse = second["choices"][0]["reuse"];
  EXPECT_GE(reuse["diverged_at"], reuse["reused"]);
  EXPECT_LT(reuse["diverged_at"], second["usage"]["prompt_tokens"]);
  // The bits are those of a run that reuses nothing.
  const Json cold =
      Answer(server, Ask("How many drums did Rosa count?", {{"cache_prompt", false}}));
  EXPECT_EQ(second["choices"][0]["receipt"], cold["choices"][0]["receipt"]);
  EXPECT_EQ(second["choices"][0]["text"], cold["choices"][0]["text"]);
}

TEST_F(ReuseTest, WithoutANamedPositionTheThirdRequestReusesWhatIsCommon) {
  const RunningServer server(engine_.get());
  Answer(server, Ask("Where is the red kite?"));
  const Json second = Answer(server, Ask("How many drums did Rosa count?"));
  EXPECT_EQ(Reason(second), "no_checkpoint");
  const Json third = Answer(server, Ask("What is the code of the mill?"));
  EXPECT_GT(Cached(third), 40u);
  EXPECT_EQ(Reason(third), "diverged");
}

TEST_F(ReuseTest, CachePromptFalseComputesEverythingAndSaysSo) {
  const RunningServer server(engine_.get());
  const Json first = Answer(server, Ask("Where is the red kite?"));
  const Json again = Answer(server, Ask("Where is the red kite?", {{"cache_prompt", false}}));
  EXPECT_EQ(Cached(again), 0u);
  EXPECT_EQ(Reason(again), "disabled");
  EXPECT_EQ(again["choices"][0]["receipt"], first["choices"][0]["receipt"]);
}

// Paired: the same salt hits, any other does not, whatever was there first.
TEST_F(ReuseTest, SaltsShareAmongThemselvesAlone) {
  const RunningServer server(engine_.get());
  const Json none = Json::object();
  const std::pair<Json, std::string> salts[] = {{none, "shared"},
                                                {{{"cache_salt", ""}}, "shared"},
                                                {{{"cache_salt", nullptr}}, "shared"},
                                                {{{"cache_salt", "a"}}, "a"},
                                                {{{"cache_salt", "b"}}, "b"},
                                                {{{"cache_salt", "ab"}}, "ab"}};
  std::set<std::string> seen;  // by the server, cleared since
  for (const auto& [first, first_owner] : salts) {
    for (const auto& [second, second_owner] : salts) {
      server.Client().Delete("/cache");
      Answer(server, Ask("Where is the red kite?", first));
      const Json answer = Answer(server, Ask("Where is the red kite?", second));
      SCOPED_TRACE(first.dump() + " then " + second.dump());
      EXPECT_EQ(Cached(answer) > 0, first_owner == second_owner);
      if (first_owner != second_owner && second_owner != "shared") {
        // What its own salt had there is told to nobody else.
        EXPECT_EQ(Reason(answer), seen.contains(second_owner) ? "evicted" : "salt");
      }
      seen.insert({first_owner, second_owner});
      if (first_owner != second_owner) {  // nor a word of how much was there
        EXPECT_EQ(answer["choices"][0]["reuse"]["attention"], 0);
        EXPECT_EQ(answer["choices"][0]["reuse"]["recurrent"], 0);
        EXPECT_EQ(answer["choices"][0]["reuse"]["diverged_at"], 0);
      }
    }
  }
}

TEST_F(ReuseTest, TheListShowsWhatIsKeptAndNothingOfWhatASaltKeepsApart) {
  const RunningServer server(engine_.get());
  Answer(server, Ask("Where is the red kite?"));
  const Json open = Get(server, "/cache/entries");
  ASSERT_GE(open["entries"].size(), 1u);
  EXPECT_EQ(open["more"], false);
  const uint64_t prompt = engine_->tokenizer()
                              .Encode(Ask("Where is the red kite?")["prompt"].get<std::string>())
                              .size();
  bool ends_at_the_prompt = false;
  for (const Json& entry : open["entries"]) {
    EXPECT_EQ(entry["salted"], false);
    EXPECT_GT(entry["bytes"].get<uint64_t>(), 0u);
    EXPECT_TRUE(kLog.starts_with(entry["text"].get<std::string>().substr(0, 20))) << entry;
    ends_at_the_prompt |= entry["tokens"] == prompt && entry["row"] == true;
  }
  EXPECT_TRUE(ends_at_the_prompt) << open;
  EXPECT_EQ(Get(server, "/cache/entries?limit=1")["entries"].size(), 1u);

  server.Client().Delete("/cache");
  Answer(server, Ask("Where is the red kite?", {{"cache_salt", "tenant 7"}}));
  const std::string body = server.Client().Get("/cache/entries")->body;
  EXPECT_EQ(body.find("tenant 7"), std::string::npos) << body;
  EXPECT_EQ(body.find("kite"), std::string::npos) << body;
  const Json salted = Json::parse(body);
  ASSERT_GE(salted["entries"].size(), 1u);
  for (const Json& entry : salted["entries"]) {
    EXPECT_EQ(entry["salted"], true);
    EXPECT_TRUE(entry["first_tokens"].is_null());
    EXPECT_TRUE(entry["text"].is_null());
  }
}

TEST_F(ReuseTest, ClearingGivesEveryPageBackAndWhatComesAfterIsCold) {
  const RunningServer server(engine_.get());
  Answer(server, Ask("Where is the red kite?"));
  const auto pages = [&](const char* owner) {
    uint64_t sum = 0;
    const Json cache = Get(server, "/cache");
    for (const Json& pool : cache["pools"]) {
      sum += pool["pages"][owner].get<uint64_t>();
    }
    return sum;
  };
  ASSERT_TRUE(Eventually([] { return Idle(*engine_); }));
  EXPECT_GT(pages("cached_attention"), 0u);
  EXPECT_GT(pages("cached_state"), 0u);
  EXPECT_EQ(pages("free") + pages("cached_attention") + pages("cached_state"), pages("total"));
  EXPECT_GT(Get(server, "/cache")["kept"]["checkpoints"].get<int>(), 0);
  const auto cleared = server.Client().Delete("/cache");
  ASSERT_EQ(cleared->status, 200);
  EXPECT_GT(Json::parse(cleared->body)["entries_invalidated"].get<int>(), 0);
  EXPECT_EQ(pages("free"), pages("total"));
  EXPECT_TRUE(Get(server, "/cache/entries")["entries"].empty());
  EXPECT_EQ(Json::parse(server.Client().Delete("/cache")->body)["entries_invalidated"], 0);
  EXPECT_EQ(Cached(Answer(server, Ask("Where is the red kite?"))), 0u);
}

TEST_F(ReuseTest, TheLedgerCountsEveryPromptTokenOnce) {
  const RunningServer server(engine_.get());
  const Json before = Get(server, "/cache")["reuse"];
  uint64_t prompt = 0;
  uint64_t cached = 0;
  for (const char* question :
       {"Where is the red kite?", "Where is Ada?", "Where is the red kite?"}) {
    const Json answer = Answer(server, Ask(question));
    prompt += answer["usage"]["prompt_tokens"].get<uint64_t>();
    cached += Cached(answer);
  }
  const Json after = Get(server, "/cache")["reuse"];
  const auto grown = [&](const char* name) {
    return after[name].get<uint64_t>() - before[name].get<uint64_t>();
  };
  EXPECT_EQ(grown("lookups"), 3u);
  EXPECT_EQ(grown("prompt_tokens"), prompt);
  EXPECT_EQ(grown("reused_tokens"), cached);
  uint64_t computed = 0;
  for (const auto& [reason, count] : after["computed_tokens"].items()) {
    computed += count.get<uint64_t>() - before["computed_tokens"][reason].get<uint64_t>();
  }
  EXPECT_EQ(computed, prompt - cached);
}

TEST_F(ReuseTest, EachOfSeveralChoicesHasItsReuseAndUsageIsTheirSum) {
  const RunningServer server(engine_.get());
  Answer(server, Ask("Where is the red kite?"));
  Json body = Ask("");
  body["prompt"] = {Ask("Where is the red kite?")["prompt"], "Another text altogether."};
  const Json both = server.Complete(body).json;
  ASSERT_EQ(both["choices"].size(), 2u) << both;
  const uint64_t first = both["choices"][0]["reuse"]["reused"].get<uint64_t>();
  EXPECT_GT(first, 0u);
  EXPECT_EQ(both["choices"][1]["reuse"]["reused"], 0);
  EXPECT_EQ(Cached(both), first);
}

TEST(ReuseOptions, IsolatedRequestsAndServersWithoutReuseKeepNothing) {
  EngineOptions options;
  options.model_path = std::string(TESSERA_SOURCE_DIR) + "/models/harbour-2.8m-q8_0.gguf";
  options.budget_bytes = 16 * kMiB;
  options.threads = 1;
  for (const bool reuse : {true, false}) {
    options.reuse = reuse;
    options.isolate = reuse ? IsolateKind::kRequest : IsolateKind::kOff;
    Result<std::unique_ptr<Engine>> engine = Engine::Create(options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message();
    const RunningServer server(engine->get());
    for (int i = 0; i < 2; ++i) {
      const Json answer = server.Complete(Ask("Where is the red kite?")).json;
      ASSERT_TRUE(answer.contains("choices")) << answer;
      EXPECT_EQ(Cached(answer), 0u);
      EXPECT_EQ(Reason(answer), reuse ? "salt" : "disabled");
    }
    const Json cache = Json::parse(server.Client().Get("/cache")->body);
    EXPECT_EQ(cache["policy"]["reuse"], reuse);
    EXPECT_EQ(cache["policy"]["isolate"], reuse ? "request" : "off");
    EXPECT_EQ(cache["reuse"]["reused_tokens"], 0);
    EXPECT_EQ(cache["kept"]["blocks"], 0);  // nobody could find it
  }
}

}  // namespace
}  // namespace tessera::testing
