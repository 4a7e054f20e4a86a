// SPDX-License-Identifier: Apache-2.0
#include "server/completion_response.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "server/openai_error.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

const AnswerHead kHead = {"cmpl-1", 1'700'000'000, "harbour"};

AnswerTotals SomeTotals() {
  AnswerTotals totals;
  totals.prompt_tokens = 10;
  totals.cached_tokens = 4;
  totals.completion_tokens = 5;
  totals.predicted_intervals = 4;
  totals.prompt_ms = 12;
  totals.predicted_ms = 50;
  return totals;
}

ChoicePart Done(std::string text) {
  ChoicePart part;
  part.text = std::move(text);
  part.finish = FinishReason::kStop;
  part.receipt = 0xABC;
  return part;
}

TEST(CompletionResponse, BodyHasTheFieldsOfTheSchemaAndOurs) {
  const ChoicePart choice = Done("in the attic.");
  const Json json = Json::parse(CompletionBody(kHead, {&choice, 1}, {42, false}, SomeTotals()));
  EXPECT_EQ(json["id"], "cmpl-1");
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["created"], 1'700'000'000);
  EXPECT_EQ(json["model"], "harbour");
  EXPECT_EQ(json["seed"], 42);
  const Json& first = json["choices"][0];
  EXPECT_EQ(first["text"], "in the attic.");
  EXPECT_EQ(first["index"], 0);
  EXPECT_EQ(first["finish_reason"], "stop");
  EXPECT_TRUE(first["logprobs"].is_null());
  EXPECT_EQ(first["receipt"], "0000000000000abc");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 10);
  EXPECT_EQ(json["usage"]["completion_tokens"], 5);
  EXPECT_EQ(json["usage"]["total_tokens"], 15);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(json["timings"]["cache_n"], 4);
  EXPECT_EQ(json["timings"]["prompt_n"], 6);
  EXPECT_EQ(json["timings"]["prompt_per_token_ms"], 2.0);
  EXPECT_EQ(json["timings"]["prompt_per_second"], 500.0);
  EXPECT_EQ(json["timings"]["predicted_n"], 5);
  EXPECT_EQ(json["timings"]["predicted_per_token_ms"], 12.5);
  EXPECT_EQ(json["timings"]["predicted_per_second"], 80.0);
}

TEST(CompletionResponse, EveryTokenThatWasNotReusedHasItsReason) {
  ChoicePart choice = Done("");
  MatchReport& match = choice.match;
  match.prompt_tokens = 100;
  match.reused = 60;
  match.attention = 80;
  match.recurrent = 64;
  match.diverged_at = 90;
  match.computed = {{{60, 90, ComputeReason::kNoCheckpoint}, {90, 100, ComputeReason::kDiverged}}};
  match.computed_count = 2;
  const Json reuse =
      Json::parse(CompletionBody(kHead, {&choice, 1}, {}, {}))["choices"][0]["reuse"];
  EXPECT_EQ(reuse["reused"], 60);
  EXPECT_EQ(reuse["attention"], 80);
  EXPECT_EQ(reuse["recurrent"], 64);
  EXPECT_EQ(reuse["diverged_at"], 90);
  EXPECT_EQ(reuse["from_row"], false);
  EXPECT_EQ(reuse["computed"], Json::parse(R"([
      {"from": 60, "to": 90, "reason": "no_checkpoint"},
      {"from": 90, "to": 100, "reason": "diverged"}])"));
}

TEST(CompletionResponse, APromptReusedWholeHasNoReasons) {
  ChoicePart choice = Done("");
  choice.match.prompt_tokens = choice.match.reused = 100;
  choice.match.from_row = true;
  const Json reuse =
      Json::parse(CompletionBody(kHead, {&choice, 1}, {}, {}))["choices"][0]["reuse"];
  EXPECT_EQ(reuse["from_row"], true);
  EXPECT_EQ(reuse["computed"], Json::array());
}

TEST(CompletionResponse, RatesWithoutTimeAreZero) {
  const ChoicePart choice = Done("");
  const Json json = Json::parse(CompletionBody(kHead, {&choice, 1}, {}, {}));
  EXPECT_EQ(json["timings"]["prompt_per_second"], 0);
  EXPECT_EQ(json["timings"]["predicted_per_token_ms"], 0);
}

TEST(CompletionResponse, SeedComesBackAsItWent) {
  const ChoicePart choice = Done("");
  const auto seed = [&](RequestSeed value) {
    return Json::parse(CompletionBody(kHead, {&choice, 1}, value, {}))["seed"].dump();
  };
  EXPECT_EQ(seed({UINT64_MAX, false}), "18446744073709551615");
  EXPECT_EQ(seed({static_cast<uint64_t>(int64_t{-7}), true}), "-7");
}

TEST(CompletionResponse, OnlyTheFinishedChunkCarriesReceiptReuseSeedAndTimings) {
  ChoicePart part;
  part.text = "in";
  const Json middle = Json::parse(CompletionChunk(kHead, part, false, nullptr));
  EXPECT_TRUE(middle["choices"][0]["finish_reason"].is_null());
  EXPECT_FALSE(middle["choices"][0].contains("receipt"));
  EXPECT_FALSE(middle["choices"][0].contains("reuse"));
  EXPECT_FALSE(middle.contains("seed"));
  EXPECT_FALSE(middle.contains("usage"));
  const StreamEnding ending{{3, false}, SomeTotals()};
  const Json last = Json::parse(CompletionChunk(kHead, Done("."), true, &ending));
  EXPECT_EQ(last["choices"][0]["receipt"], "0000000000000abc");
  EXPECT_EQ(last["choices"][0]["reuse"]["reused"], 0);
  EXPECT_EQ(last["seed"], 3);
  EXPECT_EQ(last["timings"]["predicted_n"], 5);
  EXPECT_TRUE(last.contains("usage"));
  EXPECT_TRUE(last["usage"].is_null());
}

TEST(CompletionResponse, UsageChunkHasNoChoices) {
  const Json json = Json::parse(UsageChunk(kHead, kCompletionObject, SomeTotals()));
  EXPECT_TRUE(json["choices"].is_array());
  EXPECT_TRUE(json["choices"].empty());
  EXPECT_EQ(json["usage"]["total_tokens"], 15);
}

TEST(CompletionResponse, TextThatIsNotUtf8IsSpelledInBytes) {
  EXPECT_EQ(TokenText("a\xc3\xa9"), "a\xc3\xa9");
  EXPECT_EQ(TokenText(""), "");
  EXPECT_EQ(TokenText("\xe6\x97"), "bytes:\\xe6\\x97");
}

TEST(CompletionResponse, LogprobsAreNumbersEvenForTheImpossible) {
  ChoicePart part = Done("x");
  part.logprobs.emplace();
  part.logprobs->tokens = {"x"};
  part.logprobs->token_logprobs = {-std::numeric_limits<float>::infinity()};
  part.logprobs->top_logprobs = {{{"y", -0.5f}, {"x", -std::numeric_limits<float>::infinity()}}};
  part.logprobs->text_offset = {0};
  const Json json = Json::parse(CompletionChunk(kHead, part, false, nullptr));
  const Json& logprobs = json["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["token_logprobs"][0], -9999.0);
  EXPECT_EQ(logprobs["top_logprobs"][0]["y"], -0.5);
  EXPECT_EQ(logprobs["text_offset"][0], 0);
}

TEST(OpenAiError, BodyHasTheFourFieldsOfTheSchema) {
  const Json json = Json::parse(ErrorBody(InvalidField("top_p", "invalid_value", "no\xff")));
  EXPECT_EQ(json["error"]["type"], "invalid_request_error");
  EXPECT_EQ(json["error"]["param"], "top_p");
  EXPECT_EQ(json["error"]["code"], "invalid_value");
  EXPECT_EQ(json["error"]["message"], "no\xef\xbf\xbd");
  const Json server = Json::parse(ErrorBody(ServerError(500, "", "x")));
  EXPECT_TRUE(server["error"]["param"].is_null());
  EXPECT_TRUE(server["error"]["code"].is_null());
}

TEST(OpenAiError, WhatCanNeverFitIsTheClientsErrorNotARetry) {
  const ApiError error = FromEngineStatus(NoMemory("needs 12 bytes, the budget has 8"));
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.code, "budget_exceeded");
  EXPECT_NE(error.message.find("12"), std::string::npos);
  EXPECT_EQ(FromEngineStatus(Status(StatusCode::kUnavailable, "x")).http_status, 503);
  EXPECT_EQ(FromEngineStatus(Status(StatusCode::kFailed, "x")).http_status, 500);
}

}  // namespace
}  // namespace tessera
