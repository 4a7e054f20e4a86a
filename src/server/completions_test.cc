// SPDX-License-Identifier: Apache-2.0
//
// POST /v1/completions over a real socket, on the bundled model.

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

#include "server/server_fixture.h"

namespace tessera::testing {
namespace {

class CompletionsTest : public ServerTest {};

Json Greedy(const std::string& prompt = kPrompt, int max_tokens = 12) {
  return {{"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", 0}};
}

// What was computed; how much of it was there already may differ.
Json Choices(const RunningServer::Reply& reply) {
  Json choices = reply.json["choices"];
  for (Json& choice : choices) choice.erase("reuse");
  return choices;
}

TEST_F(CompletionsTest, AnswersFromThePrompt) {
  const RunningServer server(engine_.get());
  Json body = Greedy();
  body["stop"] = "\n";
  body["model"] = server.api.model().id;
  const auto reply = server.Complete(body);
  ASSERT_EQ(reply.status, 200) << reply.json;
  const Json& choice = reply.json["choices"][0];
  EXPECT_EQ(choice["text"], " in the barn.");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["receipt"].get<std::string>().size(), 16u);
  EXPECT_EQ(reply.json["usage"]["prompt_tokens"], 58);
  EXPECT_EQ(reply.json["timings"]["prompt_n"], 58);
  EXPECT_GT(reply.json["timings"]["prompt_ms"].get<double>(), 0);
  EXPECT_TRUE(reply.json["id"].get<std::string>().starts_with("cmpl-"));
}

TEST_F(CompletionsTest, IgnoreEosGoesOnPastTheEndOfTheText) {
  const RunningServer server(engine_.get());
  Json body = Greedy(kPrompt, 40);
  const auto ended = server.Complete(body);
  ASSERT_EQ(ended.status, 200) << ended.json;
  ASSERT_EQ(ended.json["choices"][0]["finish_reason"], "stop");
  body["ignore_eos"] = true;
  const auto reply = server.Complete(body);
  ASSERT_EQ(reply.status, 200) << reply.json;
  EXPECT_EQ(reply.json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(reply.json["usage"]["completion_tokens"], 40);
}

TEST_F(CompletionsTest, StreamSaysTheSameAsTheBody) {
  const RunningServer server(engine_.get());
  Json body = Greedy(kPrompt, 40);
  body["cache_prompt"] = false;  // both compute all of it
  const auto whole = server.Complete(body);
  ASSERT_EQ(whole.status, 200) << whole.json;
  engine_->ClearCache();  // so that both compute all of it
  body["stream_options"] = {{"include_usage", true}};
  const StreamedAnswer stream = Stream(server, body);
  EXPECT_EQ(stream.status, 200);
  EXPECT_TRUE(stream.content_type.starts_with("text/event-stream")) << stream.content_type;
  EXPECT_TRUE(stream.done);
  EXPECT_EQ(stream.text, whole.json["choices"][0]["text"]);
  EXPECT_EQ(stream.receipt, whole.json["choices"][0]["receipt"]);
  EXPECT_EQ(stream.finish_reason, whole.json["choices"][0]["finish_reason"]);
  ASSERT_GE(stream.chunks.size(), 3u);
  // The last chunk has the usage and no choices; the one before has what the end brings.
  const Json& usage = stream.chunks.back();
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"], whole.json["usage"]);
  const Json& last = stream.chunks[stream.chunks.size() - 2];
  EXPECT_TRUE(last.contains("seed"));
  EXPECT_TRUE(last.contains("timings"));
  for (size_t i = 0; i + 1 < stream.chunks.size(); ++i) {
    EXPECT_TRUE(stream.chunks[i]["usage"].is_null());
    EXPECT_EQ(stream.chunks[i]["id"], usage["id"]);
    EXPECT_EQ(stream.chunks[i]["choices"][0].contains("receipt"), i + 2 == stream.chunks.size());
  }
}

TEST_F(CompletionsTest, WithoutIncludeUsageNoChunkHasUsage) {
  const RunningServer server(engine_.get());
  const StreamedAnswer stream = Stream(server, Greedy());
  EXPECT_TRUE(stream.done);
  for (const Json& chunk : stream.chunks) {
    EXPECT_FALSE(chunk.contains("usage"));
    EXPECT_EQ(chunk["choices"].size(), 1u);
  }
}

TEST_F(CompletionsTest, OneAnswerWhateverRunsBeside) {
  const RunningServer server(engine_.get());
  const auto alone = server.Complete(Greedy(kPrompt, 48));
  ASSERT_EQ(alone.status, 200) << alone.json;
  std::vector<std::thread> clients;
  std::vector<RunningServer::Reply> replies(12);
  for (size_t i = 0; i < replies.size(); ++i) {
    clients.emplace_back([&, i] {
      // Every third is something else, at random.
      replies[i] = i % 3 == 2 ? server.Complete({{"prompt", std::string(i * 20, 'x')}})
                              : server.Complete(Greedy(kPrompt, 48));
    });
  }
  for (std::thread& client : clients) client.join();
  for (size_t i = 0; i < replies.size(); ++i) {
    ASSERT_EQ(replies[i].status, 200) << replies[i].json;
    if (i % 3 == 2) continue;
    EXPECT_EQ(Choices(replies[i]), Choices(alone));
  }
}

TEST_F(CompletionsTest, TheReturnedSeedRepeatsTheAnswer) {
  const RunningServer server(engine_.get());
  const Json body = {{"prompt", "Q:"}, {"max_tokens", 40}, {"temperature", 2}};
  const auto first = server.Complete(body);
  const auto second = server.Complete(body);
  ASSERT_EQ(first.status, 200) << first.json;
  EXPECT_NE(first.json["seed"], second.json["seed"]);
  EXPECT_LT(first.json["seed"].get<uint64_t>(), uint64_t{1} << 53);
  EXPECT_NE(Choices(first), Choices(second));
  Json again = body;
  again["seed"] = first.json["seed"];
  EXPECT_EQ(Choices(server.Complete(again)), Choices(first));
}

TEST_F(CompletionsTest, PromptAsIdsIsThePromptAsText) {
  const RunningServer server(engine_.get());
  Json body = Greedy();
  const auto text = server.Complete(body);
  body["prompt"] = engine_->tokenizer().Encode(kPrompt);
  EXPECT_EQ(Choices(server.Complete(body)), Choices(text));
}

TEST_F(CompletionsTest, SeveralPromptsAreSeveralChoices) {
  const RunningServer server(engine_.get());
  const auto one = server.Complete(Greedy("Q:", 8));
  const auto other = server.Complete(Greedy(kPrompt, 8));
  Json body = Greedy("", 8);
  body["prompt"] = {"Q:", kPrompt, "Q:"};
  const auto both = server.Complete(body);
  ASSERT_EQ(both.status, 200) << both.json;
  ASSERT_EQ(both.json["choices"].size(), 3u);
  for (int i = 0; i < 3; ++i) {
    const Json& expected = (i == 1 ? other : one).json["choices"][0];
    EXPECT_EQ(both.json["choices"][i]["index"], i);
    EXPECT_EQ(both.json["choices"][i]["text"], expected["text"]);
    EXPECT_EQ(both.json["choices"][i]["receipt"], expected["receipt"]);
  }
  EXPECT_EQ(both.json["usage"]["prompt_tokens"],
            2 * one.json["usage"]["prompt_tokens"].get<int>() +
                other.json["usage"]["prompt_tokens"].get<int>());
  // In a stream the choices interleave; seed and timings come with the last finish_reason.
  std::set<int> finished;
  const StreamedAnswer stream = Stream(server, body, [&](const Json& chunk) {
    const Json& choice = chunk["choices"][0];
    if (choice["finish_reason"].is_string()) finished.insert(choice["index"].get<int>());
    EXPECT_EQ(chunk.contains("timings"), finished.size() == 3);
    return true;
  });
  EXPECT_EQ(finished.size(), 3u);
  EXPECT_EQ(stream.text, both.json["choices"][0]["text"]);
}

TEST_F(CompletionsTest, RatesCountTheIntervalsBetweenTheTokensOfEachChoice) {
  const RunningServer server(engine_.get());
  const auto intervals = [&](const Json& prompt, int max_tokens) {
    Json body = Greedy("", max_tokens);
    body["prompt"] = prompt;
    const Json timings = server.Complete(body).json["timings"];
    return std::lround(timings["predicted_per_second"].get<double>() *
                       timings["predicted_ms"].get<double>() / 1000);
  };
  EXPECT_EQ(intervals(kPrompt, 8), 7);
  EXPECT_EQ(intervals(kPrompt, 1), 0);
  EXPECT_EQ(intervals({kPrompt, kPrompt, kPrompt}, 8), 21);
}

TEST_F(CompletionsTest, StopStringsAreCutOutInBodyAndStream) {
  const RunningServer server(engine_.get());
  const std::string full = server.Complete(Greedy(kPrompt, 40)).json["choices"][0]["text"];
  for (const char* stop : {" barn", "the", "\nQ", "n.", "no such text"}) {
    SCOPED_TRACE(stop);
    Json body = Greedy(kPrompt, 40);
    body["stop"] = {"also never", stop};
    const size_t cut = full.find(stop);
    const auto reply = server.Complete(body);
    EXPECT_EQ(reply.json["choices"][0]["text"], full.substr(0, cut));
    EXPECT_EQ(reply.json["choices"][0]["finish_reason"], "stop");  // or the end of the text
    const StreamedAnswer stream = Stream(server, body);
    EXPECT_EQ(stream.text, full.substr(0, cut));
    EXPECT_EQ(stream.receipt, reply.json["choices"][0]["receipt"]);
  }
}

TEST_F(CompletionsTest, LogprobsAreOpenAisColumns) {
  const RunningServer server(engine_.get());
  Json body = Greedy(kPrompt, 10);
  body["logprobs"] = 3;
  const auto reply = server.Complete(body);
  ASSERT_EQ(reply.status, 200) << reply.json;
  const Json& choice = reply.json["choices"][0];
  const Json& logprobs = choice["logprobs"];
  const auto tokens = logprobs["tokens"].get<std::vector<std::string>>();
  ASSERT_EQ(tokens.size(), 10u);
  ASSERT_EQ(logprobs["token_logprobs"].size(), 10u);
  ASSERT_EQ(logprobs["top_logprobs"].size(), 10u);
  ASSERT_EQ(logprobs["text_offset"].size(), 10u);
  const std::string text = choice["text"];
  for (size_t i = 0; i < tokens.size(); ++i) {
    const double logprob = logprobs["token_logprobs"][i];
    EXPECT_LE(logprob, 0);
    // Greedy: the chosen one is the best of those listed.
    EXPECT_EQ(logprobs["top_logprobs"][i].size(), 3u);
    for (const auto& [token, other] : logprobs["top_logprobs"][i].items()) {
      EXPECT_LE(other.get<double>(), logprob) << token;
    }
    EXPECT_EQ(text.substr(logprobs["text_offset"][i].get<size_t>(), tokens[i].size()), tokens[i]);
  }
  // The stream has the same, in pieces.
  std::vector<std::string> streamed;
  Stream(server, body, [&](const Json& chunk) {
    for (const Json& token : chunk["choices"][0]["logprobs"]["tokens"]) streamed.push_back(token);
    return true;
  });
  EXPECT_EQ(streamed, tokens);
}

TEST_F(CompletionsTest, LogprobsZeroListsTheChosenTokenAlone) {
  const RunningServer server(engine_.get());
  Json body = Greedy(kPrompt, 4);
  body["logprobs"] = 0;
  const auto reply = server.Complete(body);
  const Json& logprobs = reply.json["choices"][0]["logprobs"];
  ASSERT_EQ(logprobs["top_logprobs"].size(), 4u) << reply.json;
  for (int i = 0; i < 4; ++i) {
    const Json& top = logprobs["top_logprobs"][i];
    ASSERT_EQ(top.size(), 1u);
    EXPECT_EQ(top[logprobs["tokens"][i].get<std::string>()], logprobs["token_logprobs"][i]);
  }
}

TEST_F(CompletionsTest, TextIsUtf8InEveryChunk) {
  const RunningServer server(engine_.get());
  // At temperature 2 a byte-level model breaks off characters all the time; EventReader checks
  // that every chunk parses, which JSON does of UTF-8 only.
  for (int seed = 0; seed < 6; ++seed) {
    const Json body = {{"prompt", "Log \xF0\x9F\x9A\xA2 \xE6\x97\xA5:"},
                       {"max_tokens", 60},
                       {"temperature", 2},
                       {"seed", seed}};
    const StreamedAnswer stream = Stream(server, body);
    EXPECT_TRUE(stream.done);
    EXPECT_EQ(stream.text, server.Complete(body).json["choices"][0]["text"]);
  }
}

TEST_F(CompletionsTest, ASilentStreamIsKeptAlive) {
  ApiOptions options;
  options.keep_alive = std::chrono::milliseconds(1);
  const RunningServer server(engine_.get(), {}, options);
  // As many as may run, for seconds; whoever comes then waits in silence.
  std::vector<std::unique_ptr<RawConnection>> clients;
  Json body = {{"prompt", "Log of day 12. Ada left the red kite in the barn."},
               {"max_tokens", 8000},
               {"temperature", 0},
               {"ignore_eos", true},
               {"stream", true}};
  const uint32_t most = engine_->options().max_running;
  for (uint32_t i = 0; i < most; ++i) {
    clients.push_back(std::make_unique<RawConnection>(server.http->port()));
    clients.back()->Send(PostText(body.dump()));
  }
  ASSERT_TRUE(Eventually([most] { return engine_->Stats().running == most; }));
  RawConnection waiting(server.http->port());
  waiting.Send(PostText(body.dump()));
  const std::string seen = waiting.ReadAll(std::chrono::milliseconds(500));
  EXPECT_NE(seen.find(": keep-alive\n\n"), std::string::npos) << seen;
  EXPECT_EQ(seen.find("data:"), std::string::npos) << seen;
}

TEST_F(CompletionsTest, ChoicesShareThePromptAndEachDrawsForItself) {
  const RunningServer server(engine_.get());
  Json body = {{"prompt", kPrompt}, {"max_tokens", 24}, {"temperature", 1.5}, {"seed", 7}};
  const auto one = server.Complete(body);
  engine_->ClearCache();
  body["n"] = 4;
  const auto four = server.Complete(body);
  ASSERT_EQ(four.status, 200) << four.json;
  ASSERT_EQ(four.json["choices"].size(), 4u);
  // Choice 0 is what n = 1 answers; the prompt is computed once and counted once.
  EXPECT_EQ(four.json["choices"][0]["text"], one.json["choices"][0]["text"]);
  EXPECT_EQ(four.json["usage"]["prompt_tokens"], one.json["usage"]["prompt_tokens"]);
  std::set<std::string> texts;
  int computed = 0;
  for (const Json& choice : four.json["choices"]) {
    texts.insert(choice["text"].get<std::string>());
    computed += choice["reuse"]["reused"] == 0 ? 1 : 0;
  }
  EXPECT_EQ(texts.size(), 4u);
  EXPECT_EQ(computed, 1) << four.json;
  // Again, and in a stream: the same four.
  Json again = server.Complete(body).json["choices"];
  std::vector<std::string> streamed(4);
  Stream(server, body, [&](const Json& chunk) {
    const Json& choice = chunk["choices"][0];
    streamed[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
    return true;
  });
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(again[i]["text"], four.json["choices"][i]["text"]);
    EXPECT_EQ(streamed[i], four.json["choices"][i]["text"]);
  }
}

TEST_F(CompletionsTest, GreedyChoicesAreOneAnswer) {
  const RunningServer server(engine_.get());
  Json body = Greedy(kPrompt, 16);
  body["n"] = 8;
  const auto reply = server.Complete(body);
  std::set<std::string> receipts;
  for (const Json& choice : reply.json["choices"]) receipts.insert(choice["receipt"]);
  EXPECT_EQ(receipts.size(), 1u) << reply.json;
}

TEST_F(CompletionsTest, EchoPutsThePromptBeforeTheText) {
  const RunningServer server(engine_.get());
  const std::string answer = server.Complete(Greedy()).json["choices"][0]["text"];
  Json body = Greedy();
  body["echo"] = true;
  body["n"] = 2;
  const auto reply = server.Complete(body);
  ASSERT_EQ(reply.status, 200) << reply.json;
  for (const Json& choice : reply.json["choices"]) EXPECT_EQ(choice["text"], kPrompt + answer);
  EXPECT_EQ(Stream(server, body).text, kPrompt + answer);
  // What is no text by itself comes back as U+FFFD.
  const TokenId half = engine_->tokenizer().Encode("\xE6\x97\xA5", {.add_special = false}).at(0);
  body["prompt"] = {half, engine_->tokenizer().Encode("A", {.add_special = false}).at(0)};
  body["max_tokens"] = 0;
  EXPECT_EQ(server.Complete(body).json["choices"][0]["text"],
            "\xEF\xBF\xBD"
            "A");
}

TEST_F(CompletionsTest, EchoedLogprobsAreThoseOfEveryTokenGivenWhatIsBeforeIt) {
  const RunningServer server(engine_.get());
  // What the model generates greedily it also finds when it is told the text.
  Json body = Greedy(kPrompt, 8);
  body["logprobs"] = 2;
  const auto generated = server.Complete(body);
  const Json& columns = generated.json["choices"][0]["logprobs"];
  std::vector<TokenId> prompt = engine_->tokenizer().Encode(kPrompt);
  const size_t prompt_size = prompt.size();
  const auto answer = engine_->tokenizer().Encode(
      generated.json["choices"][0]["text"].get<std::string>(), {.add_special = false});
  prompt.insert(prompt.end(), answer.begin(), answer.end());
  body["prompt"] = prompt;
  body["max_tokens"] = 0;
  body["echo"] = true;
  const auto scored = server.Complete(body);
  ASSERT_EQ(scored.status, 200) << scored.json;
  const Json& echoed = scored.json["choices"][0]["logprobs"];
  ASSERT_EQ(echoed["tokens"].size(), prompt.size());
  EXPECT_TRUE(echoed["token_logprobs"][0].is_null());
  EXPECT_TRUE(echoed["top_logprobs"][0].is_null());
  for (size_t i = 0; i < answer.size() && i < columns["tokens"].size(); ++i) {
    if (columns["tokens"][i] != echoed["tokens"][prompt_size + i]) break;  // another spelling
    EXPECT_EQ(echoed["token_logprobs"][prompt_size + i], columns["token_logprobs"][i]) << i;
    EXPECT_EQ(echoed["top_logprobs"][prompt_size + i], columns["top_logprobs"][i]) << i;
  }
  const std::string text = scored.json["choices"][0]["text"];
  for (size_t i = 0; i < prompt.size(); ++i) {
    const std::string token = echoed["tokens"][i];
    EXPECT_EQ(text.substr(echoed["text_offset"][i].get<size_t>(), token.size()), token);
  }
  // They need the row of every position: nothing is reused for them.
  EXPECT_EQ(scored.json["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(scored.json["choices"][0]["reuse"]["computed"][0]["reason"], "disabled");
  // The stream has the same columns.
  Json streamed = Json::array();
  Stream(server, body, [&](const Json& chunk) {
    for (const Json& value : chunk["choices"][0]["logprobs"]["token_logprobs"]) {
      streamed.push_back(value);
    }
    return true;
  });
  EXPECT_EQ(streamed, echoed["token_logprobs"]);
}

TEST_F(CompletionsTest, PenaltiesBiasesAndStopIdsChangeWhatIsSampled) {
  const RunningServer server(engine_.get());
  Json body = Greedy(kPrompt, 12);
  const TokenId x = engine_->tokenizer().Encode("x", {.add_special = false}).at(0);
  body["logit_bias"] = {{std::to_string(x), 100}};
  EXPECT_EQ(server.Complete(body).json["choices"][0]["text"], "xxxxxxxxxxxx");
  body["stop_token_ids"] = {x};
  const auto stopped = server.Complete(body);
  EXPECT_EQ(stopped.json["choices"][0]["text"], "");
  EXPECT_EQ(stopped.json["choices"][0]["finish_reason"], "stop");
  body["min_tokens"] = 3;
  EXPECT_EQ(server.Complete(body).json["usage"]["completion_tokens"], 4);
}

TEST_F(CompletionsTest, ProgressOfThePromptIsToldWhenAskedFor) {
  const RunningServer server(engine_.get());
  std::string prompt;
  while (prompt.size() < 6000) prompt += kPrompt;
  Json body = Greedy(prompt, 4);
  body["return_progress"] = true;
  std::vector<Json> steps;
  const StreamedAnswer stream = Stream(server, body, [&](const Json& chunk) {
    if (chunk.contains("prompt_progress")) {
      EXPECT_TRUE(chunk["choices"].empty());
      steps.push_back(chunk["prompt_progress"]);
    }
    return true;
  });
  ASSERT_GE(steps.size(), 2u);
  uint32_t processed = 0;
  for (const Json& step : steps) {
    EXPECT_EQ(step["total"], steps[0]["total"]);
    EXPECT_EQ(step["cache"], 0);
    EXPECT_EQ(step["index"], 0);
    EXPECT_GT(step["processed"].get<uint32_t>(), processed);
    processed = step["processed"];
    EXPECT_GT(step["time_ms"].get<double>(), 0);
  }
  EXPECT_EQ(processed, steps[0]["total"].get<uint32_t>());
  body.erase("return_progress");
  EXPECT_EQ(Stream(server, body).text, stream.text);
}

TEST_F(CompletionsTest, MaxTokensZeroReadsThePromptOnly) {
  const RunningServer server(engine_.get());
  const auto reply = server.Complete(Greedy(kPrompt, 0));
  ASSERT_EQ(reply.status, 200) << reply.json;
  EXPECT_EQ(reply.json["choices"][0]["text"], "");
  EXPECT_EQ(reply.json["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(reply.json["usage"]["completion_tokens"], 0);
}

TEST_F(CompletionsTest, BadRequestsAreNamed) {
  const RunningServer server(engine_.get());
  struct Case {
    std::string body;
    int status;
    const char* code;
    Json param;
  };
  const std::string long_text(9000 * 30, 'x');
  const Case cases[] = {
      {"{", 400, "invalid_json", nullptr},
      {"", 400, "invalid_json", nullptr},
      {"{\"prompt\":\"\xff\"}", 400, "invalid_json", nullptr},
      {std::string(100'000, '['), 400, "invalid_json", nullptr},
      {R"({"prompt":"x","foo":1})", 400, "unknown_parameter", "foo"},
      {R"({"prompt":"x","temperature":"1"})", 400, "invalid_type", "temperature"},
      {R"({"prompt":"x","top_p":2})", 400, "invalid_value", "top_p"},
      {R"({"prompt":"x","model":"gpt-5"})", 404, "model_not_found", "model"},
      {R"({"prompt":""})", 400, "invalid_value", "prompt"},
      {R"({"prompt":"x","max_tokens":8192})", 400, "context_length_exceeded", "prompt"},
      {Json({{"prompt", long_text}}).dump(), 400, "context_length_exceeded", "prompt"},
      {Json({{"prompt", std::vector<int>(8192, 1)}}).dump(), 400, "context_length_exceeded",
       "prompt"},
      {Json({{"prompt", {"fine", std::vector<int>(8192, 1)}}}).dump(), 400,
       "context_length_exceeded", "prompt"},
      {R"({"prompt":"x","suffix":"y"})", 400, "unsupported_parameter", "suffix"},
      {R"({"prompt":[1,2,3],"checkpoint_at":[1,4]})", 400, "invalid_value", "checkpoint_at"},
      {R"({"prompt":[[1,2,3],[1,2]],"checkpoint_at":3})", 400, "invalid_value", "checkpoint_at"},
      {R"({"prompt":[[1,2,3],[1,2]],"isolate_after":3})", 400, "invalid_value", "isolate_after"},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.body.substr(0, 60));
    const auto reply = server.Post(bad.body);
    ASSERT_EQ(reply.status, bad.status) << reply.json;
    const Json& error = reply.json["error"];
    EXPECT_EQ(error["code"], bad.code) << error;
    EXPECT_EQ(error["param"], bad.param) << error;
    EXPECT_EQ(error["type"], "invalid_request_error");
    EXPECT_TRUE(error["message"].is_string());
  }
  const auto too_long = server.Complete({{"prompt", "x"}, {"max_tokens", 8192}});
  EXPECT_NE(too_long.json["error"]["message"].get<std::string>().find("8192 tokens"),
            std::string::npos);
  // The same in a stream: nothing is out yet, so the status says it.
  const StreamedAnswer stream = Stream(server, {{"prompt", "x"}, {"max_tokens", 8192}});
  EXPECT_EQ(stream.status, 400);
}

}  // namespace
}  // namespace tessera::testing
