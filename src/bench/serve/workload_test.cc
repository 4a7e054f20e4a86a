// SPDX-License-Identifier: Apache-2.0
//
// What a load asks, and when: everything follows from the seed.
#include "bench/serve/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "bench/serve/arrivals.h"
#include "bench/serve/http_target.h"
#include "bench/serve/repeated_prefixes.h"
#include "bench/serve/request_body.h"
#include "bench/serve/workload_kinds.h"
#include "trace/request_trace.h"

namespace tessera {
namespace {

using Tokens = std::vector<int32_t>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const std::string kTrace = TESSERA_SOURCE_DIR "/bench/traces/mooncake_conversation.jsonl";

std::unique_ptr<Workload> Open(const WorkloadOptions& options) {
  Result<std::unique_ptr<Workload>> workload = Workload::Open(options);
  EXPECT_TRUE(workload.has_value()) << workload.error().message();
  return std::move(*workload);
}

std::string WhyNot(const WorkloadOptions& options) {
  const Result<std::unique_ptr<Workload>> workload = Workload::Open(options);
  return workload ? "" : workload.error().message();
}

size_t CommonPrefix(const Tokens& a, const Tokens& b) {
  const size_t most = std::min(a.size(), b.size());
  size_t i = 0;
  while (i < most && a[i] == b[i]) ++i;
  return i;
}

// Coefficient of variation of the intervals.
double Variation(const std::vector<double>& times) {
  double mean = 0, squares = 0, last = 0;
  for (const double time : times) mean += (time - std::exchange(last, time)) / double(times.size());
  last = 0;
  for (const double time : times) squares += std::pow(time - std::exchange(last, time) - mean, 2);
  return std::sqrt(squares / double(times.size())) / mean;
}

TEST(Arrivals, HaveTheRateExactlyAndTheGammaShape) {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const std::vector<double> times = ArrivalTimes(20'000, 50, burstiness, 7);
    EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
    EXPECT_DOUBLE_EQ(times.back(), 20'000 / 50.0);
    // A gamma distribution varies by 1 / sqrt(shape); of 20,000 draws within 5 %.
    EXPECT_NEAR(Variation(times), 1 / std::sqrt(burstiness), 0.05 / std::sqrt(burstiness));
  }
  const std::vector<double> even = ArrivalTimes(10, 5, kInfinity, 7);
  for (size_t i = 0; i < even.size(); ++i) EXPECT_NEAR(even[i], double(i + 1) / 5, 1e-12);
}

TEST(Arrivals, ComeAtOnceAtAnInfiniteRateAndBySeedAtAnyOther) {
  EXPECT_EQ(ArrivalTimes(3, kInfinity, 1, 7), (std::vector<double>{0, 0, 0}));
  EXPECT_TRUE(ArrivalTimes(0, 3, 1, 7).empty());
  EXPECT_EQ(ArrivalTimes(50, 3, 0.5, 7), ArrivalTimes(50, 3, 0.5, 7));
  EXPECT_NE(ArrivalTimes(50, 3, 0.5, 7), ArrivalTimes(50, 3, 0.5, 8));
  for (const double time : ArrivalTimes(50, 3, 1e-6, 7)) EXPECT_TRUE(std::isfinite(time));
}

TEST(RandomWorkload, ShareThePrefixAndNothingElse) {
  WorkloadOptions options;
  options.prompt_count = 40;
  options.input_tokens = 50;
  options.output_tokens = 20;
  options.prefix_tokens = 30;
  options.range_ratio = 0.5;
  const std::unique_ptr<Workload> workload = Open(options);
  const std::vector<LoadPrompt> prompts = workload->Prompts(3, 1000);
  ASSERT_EQ(prompts.size(), 40u);
  std::set<size_t> lengths;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const size_t length = prompts[i].tokens.size();
    EXPECT_TRUE(length >= 30 + 25 && length <= 30 + 75) << length;
    EXPECT_TRUE(prompts[i].output_tokens >= 10 && prompts[i].output_tokens <= 30);
    lengths.insert(length);
    for (const int32_t id : prompts[i].tokens) EXPECT_TRUE(id >= 0 && id < 1000);
    if (i == 0) continue;
    const size_t common = CommonPrefix(prompts[0].tokens, prompts[i].tokens);
    EXPECT_TRUE(common >= 30 && common <= 32) << common;  // two by chance at most
  }
  EXPECT_GT(lengths.size(), 10u);
  EXPECT_EQ(workload->Prompts(3, 1000)[7].tokens, prompts[7].tokens);
  EXPECT_LT(CommonPrefix(workload->Prompts(4, 1000)[7].tokens, prompts[7].tokens), 3u);
}

TEST(SharedContexts, EachQuestionIsAboutOneOfTheContexts) {
  WorkloadOptions options;
  options.spec = "shared-context:contexts=5,tokens=100,questions=200,question=7";
  options.output_tokens = 9;
  std::map<Tokens, int> contexts;
  std::set<Tokens> questions;
  for (const LoadPrompt& prompt : Open(options)->Prompts(1, 500)) {
    ASSERT_EQ(prompt.tokens.size(), 107u);
    EXPECT_EQ(prompt.output_tokens, 9u);
    ++contexts[Tokens(prompt.tokens.begin(), prompt.tokens.begin() + 100)];
    questions.emplace(prompt.tokens.begin() + 100, prompt.tokens.end());
  }
  EXPECT_EQ(contexts.size(), 5u);
  EXPECT_EQ(questions.size(), 200u);
  // 40 of each in the mean; 15 is 4.4 standard deviations off.
  for (const auto& [context, count] : contexts) EXPECT_GT(count, 15);
}

TEST(TraceWorkload, PromptsAreEqualWhereTheTraceSaysSoAtASixteenth) {
  WorkloadOptions options;
  options.trace_path = kTrace;
  options.prompt_count = 60;
  options.time_scale = 0.5;
  const std::unique_ptr<Workload> workload = Open(options);
  EXPECT_TRUE(workload->timed());
  EXPECT_EQ(workload->file_hash().size(), 16u);
  const std::vector<LoadPrompt> prompts = workload->Prompts(5, 50'000);
  const RequestTrace trace = *ReadRequestTrace(kTrace);
  const auto ids = [&](size_t i) {
    std::vector<uint64_t> list;
    for (const IdRange& range : trace.Ranges(trace.requests[i])) {
      for (uint64_t id = range.first; id <= range.last; ++id) list.push_back(id);
    }
    return list;
  };
  ASSERT_EQ(prompts.size(), 60u);
  size_t shared = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const TraceRequest& request = trace.requests[i];
    EXPECT_EQ(prompts[i].tokens.size(), request.input_tokens / 16);
    EXPECT_EQ(prompts[i].output_tokens, std::max<uint64_t>(request.output_tokens / 16, 1));
    EXPECT_NEAR(prompts[i].arrival_s, request.arrival_ms / 2000, 1e-9);
    for (size_t j = 0; j < i; ++j) {
      const std::vector<uint64_t> a = ids(i), b = ids(j);
      size_t blocks = 0;
      while (blocks < std::min(a.size(), b.size()) && a[blocks] == b[blocks]) ++blocks;
      const size_t most = std::min(prompts[i].tokens.size(), prompts[j].tokens.size());
      EXPECT_EQ(CommonPrefix(prompts[i].tokens, prompts[j].tokens), std::min(blocks * 32, most));
      shared += blocks;
    }
  }
  EXPECT_GT(shared, 100u);
  EXPECT_EQ(CommonPrefix(workload->Prompts(6, 50'000)[0].tokens, prompts[0].tokens), 0u);
}

TEST(PromptFile, ReadsTextIdsAndMessages) {
  WorkloadOptions options;
  const std::string lines =
      "{\"prompt\":\"hello\",\"max_tokens\":3}\n\n{\"prompt\":[1,2,3],\"note\":\"x\"}\r\n";
  const auto file = ParsePromptFile(lines, "f", options);
  ASSERT_TRUE(file.has_value()) << file.error().message();
  const std::vector<LoadPrompt> prompts = (*file)->Prompts(0, 10);
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].text, "hello");
  EXPECT_EQ(prompts[0].output_tokens, 3u);
  EXPECT_EQ(prompts[1].tokens, (Tokens{1, 2, 3}));
  EXPECT_EQ(prompts[1].output_tokens, 64u);
  options.chat = true;
  const auto chat =
      ParsePromptFile(R"({"messages":[{"role":"user","content":"hi"}]})", "f", options);
  ASSERT_TRUE(chat.has_value()) << chat.error().message();
  EXPECT_EQ((*chat)->Prompts(0, 10)[0].messages, R"([{"content":"hi","role":"user"}])");
}

TEST(PromptFile, ErrorsNameTheLineAndTheField) {
  const auto why = [](const std::string& text, bool chat = false) {
    WorkloadOptions options;
    options.chat = chat;
    const auto file = ParsePromptFile(text, "f", options);
    if (file) return std::string();
    EXPECT_EQ(file.error().code(), StatusCode::kBadFile);
    return file.error().message();
  };
  EXPECT_EQ(why("{\"prompt\":\"a\"}\n[]\n"), "f:2: expected a JSON object");
  EXPECT_EQ(why("{"), "f:1: expected a JSON object");
  EXPECT_EQ(why("\n \n"), "f: expected a prompt, found none");
  EXPECT_EQ(why("{}"), "f:1: expected one of prompt and messages");
  EXPECT_EQ(why("{\"prompt\":\"\"}"), "f:1: prompt: expected a text that is not empty");
  EXPECT_EQ(why("{\"prompt\":[1,-2]}"), "f:1: prompt: expected token ids");
  EXPECT_EQ(why("{\"prompt\":[1,3000000000]}"), "f:1: prompt: expected token ids");
  EXPECT_EQ(why("{\"prompt\":7}"), "f:1: prompt: expected a string or an array of token ids");
  EXPECT_EQ(why("{\"prompt\":[1]}", true), "f:1: prompt: expected a string, which a chat can say");
  EXPECT_EQ(why("{\"messages\":[]}"), "f:1: messages: only /v1/chat/completions takes them");
  EXPECT_EQ(why("{\"prompt\":\"a\",\"max_tokens\":0}"),
            "f:1: max_tokens: expected a number of at least 1");
}

TEST(Workload, RefusesWhatDoesNotGoTogether) {
  WorkloadOptions options;
  options.spec = "shared-context:contexts=2,rows=3";
  EXPECT_NE(WhyNot(options).find("found 'rows=3'"), std::string::npos) << WhyNot(options);
  options.spec = "shared-context:contexts=two";
  EXPECT_NE(WhyNot(options).find("contexts: expected a number from 1"), std::string::npos);
  options.spec = "shared-context:contexts";
  EXPECT_NE(WhyNot(options).find("found ''"), std::string::npos) << WhyNot(options);
  options.spec = "shared-context";
  options.input_tokens = 3;
  EXPECT_EQ(WhyNot(options), "--input-len: shared-context has no use for it");
  options.spec = "random";
  options.trace_path = kTrace;
  EXPECT_EQ(WhyNot(options), "expected one of --workload, --trace and --prompts");
}

TEST(RequestBody, IsAStreamWithUsageAndTheExtraFields) {
  const auto bodies = RequestBodies::Create(
      {"m \"x\"", false, false, 0.5, true, R"({"cache_salt":"s","temperature":1})"});
  ASSERT_TRUE(bodies.has_value()) << bodies.error().message();
  LoadPrompt prompt;
  prompt.tokens = {5, 600};
  prompt.output_tokens = 12;
  const auto json = nlohmann::json::parse(bodies->Body(prompt));
  EXPECT_EQ(json, nlohmann::json::parse(R"({"model":"m \"x\"","stream":true,"ignore_eos":true,
    "stream_options":{"include_usage":true},"temperature":1,"cache_salt":"s","max_tokens":12,
    "prompt":[5,600]})"));
  prompt.tokens.clear();
  prompt.text = "a\"b\n";
  EXPECT_EQ(nlohmann::json::parse(bodies->Body(prompt))["prompt"], "a\"b\n");
}

TEST(RequestBody, AChatGetsIdsAsWordsThatBeginAlikeWhereIdsDo) {
  const auto bodies = RequestBodies::Create({"m", true, false, 0, false, ""});
  ASSERT_TRUE(bodies.has_value());
  LoadPrompt prompt;
  prompt.tokens = {0, 25, 26, 700};
  prompt.output_tokens = 2;
  const auto json = nlohmann::json::parse(bodies->Body(prompt));
  EXPECT_EQ(json["max_completion_tokens"], 2);
  EXPECT_EQ(json["messages"][0]["content"], TokensAsWords(prompt.tokens));
  EXPECT_TRUE(TokensAsWords({0, 25, 26, 700}).starts_with(TokensAsWords({0, 25, 26}) + " "));
  std::set<std::string> words;
  for (int32_t id = 0; id < 3000; ++id) words.insert(TokensAsWords({id}));
  EXPECT_EQ(words.size(), 3000u);
  prompt.messages = R"([{"role":"user","content":"hi"}])";
  EXPECT_EQ(nlohmann::json::parse(bodies->Body(prompt))["messages"][0]["content"], "hi");
}

TEST(RequestBody, TheLoadsOwnFieldsAreRefusedAsExtras) {
  for (const char* extra : {"[]", "{", R"({"stream":false})", R"({"max_tokens":1})"}) {
    const auto bodies = RequestBodies::Create({"m", false, false, 0, false, extra});
    ASSERT_FALSE(bodies.has_value()) << extra;
    EXPECT_EQ(bodies.error().message().find("--extra-body: "), 0u);
  }
}

// Against every pair of prompts.
TEST(RepeatedPrefixes, AreWhatAnEarlierPromptBeganWith) {
  WorkloadOptions options;
  options.spec = "shared-context:contexts=3,tokens=40,questions=30,question=20";
  std::vector<LoadPrompt> prompts = Open(options)->Prompts(2, 4);  // few ids: chance is common
  prompts.push_back(prompts[4]);                                   // and one prompt twice
  std::vector<LoadRecord> records(prompts.size());
  for (size_t i = 0; i < records.size(); ++i) {
    records[i].started = true;
    records[i].start_ns = (i * 7) % records.size();  // not in their order
    records[i].outcome = LoadOutcome::kCompleted;
    records[i].cached_tokens = i % 3 == 0 ? 0 : 32;
  }
  records[5].outcome = LoadOutcome::kCancelled;
  uint64_t repeated = 0, recomputed = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    size_t longest = 0;
    for (size_t j = 0; j < prompts.size(); ++j) {
      if (records[j].start_ns < records[i].start_ns) {
        longest = std::max(longest, CommonPrefix(prompts[i].tokens, prompts[j].tokens) / 16 * 16);
      }
    }
    longest = std::min(longest, prompts[i].tokens.size() - 1);
    if (i == 5) continue;
    repeated += longest;
    recomputed += longest - std::min<uint64_t>(longest, *records[i].cached_tokens);
  }
  const auto counted = CountRepeatedPrefixes(prompts, records);
  ASSERT_TRUE(counted.has_value());
  EXPECT_EQ(counted->repeated_tokens, repeated);
  EXPECT_EQ(counted->recomputed_tokens, recomputed);
  EXPECT_GT(recomputed, 0u);
  records[3].cached_tokens.reset();  // missing is not zero
  EXPECT_FALSE(CountRepeatedPrefixes(prompts, records).has_value());
}

TEST(HttpTarget, ReadsHostAndPortAndRefusesTheRest) {
  const auto target = ParseHttpTarget("http://[::1]:8080/");
  ASSERT_TRUE(target.has_value()) << target.error().message();
  EXPECT_EQ(target->host, "::1");
  EXPECT_EQ(target->port, "8080");
  EXPECT_EQ(target->host_header, "[::1]:8080");
  EXPECT_EQ(ParseHttpTarget("http://localhost")->port, "80");
  for (const char* url :
       {"localhost:80", "https://x", "http://", "http://x:0", "http://x:66000", "http://x/v1",
        "http://x:", "http://[::1", "http://[::1]x", "http://a b"}) {
    EXPECT_FALSE(ParseHttpTarget(url).has_value()) << url;
  }
}

}  // namespace
}  // namespace tessera
