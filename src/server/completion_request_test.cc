// SPDX-License-Identifier: Apache-2.0
#include "server/completion_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "server/json_body.h"

namespace tessera {
namespace {

constexpr ModelLimits kLimits = {.vocab_size = 514, .context_length = 100, .token_bytes_max = 4};

CompletionRequest Parse(const std::string& body) {
  ApiResult<CompletionRequest> result = ParseCompletionRequest(body, kLimits);
  if (const ApiError* error = std::get_if<ApiError>(&result)) {
    ADD_FAILURE() << body << ": " << error->message;
    return {};
  }
  return std::get<CompletionRequest>(result);
}

ApiError Refusal(const std::string& body) {
  ApiResult<CompletionRequest> result = ParseCompletionRequest(body, kLimits);
  if (const ApiError* error = std::get_if<ApiError>(&result)) return *error;
  ADD_FAILURE() << "accepted: " << body.substr(0, 200);
  return {};
}

TEST(CompletionRequest, DefaultsAreOpenAis) {
  const CompletionRequest request = Parse(R"({"prompt":"hi"})");
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(std::get<std::string>(request.prompts[0]), "hi");
  EXPECT_EQ(request.max_tokens, 16u);
  EXPECT_EQ(request.sampling.temperature, 1.0f);
  EXPECT_EQ(request.sampling.top_p, 1.0f);
  EXPECT_EQ(request.sampling.top_k, 0u);
  EXPECT_EQ(request.sampling.min_p, 0.0f);
  EXPECT_FALSE(request.seed.has_value());
  EXPECT_TRUE(request.stop.empty());
  EXPECT_FALSE(request.ignore_eos);
  EXPECT_EQ(request.logprobs, -1);
  EXPECT_FALSE(request.stream);
  EXPECT_TRUE(request.cache_prompt);
  EXPECT_EQ(request.cache_salt, "");
  EXPECT_EQ(request.isolate_after, 0u);
  EXPECT_TRUE(request.checkpoint_at.empty());
}

TEST(CompletionRequest, EveryFieldIsRead) {
  const CompletionRequest request = Parse(
      R"({"model":"m","prompt":[1,513],"max_tokens":0,"temperature":0.5,"top_p":0.25,"top_k":7,
          "min_p":0.125,"seed":18446744073709551615,"stop":["a","b"],"ignore_eos":true,"logprobs":0,
          "stream":true,"stream_options":{"include_usage":true},"cache_prompt":false,
          "cache_salt":"tenant 7","isolate_after":2,"checkpoint_at":[64,2],
          "prompt_cache_key":"docs"})");
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(std::get<std::vector<TokenId>>(request.prompts.at(0)), (std::vector<TokenId>{1, 513}));
  EXPECT_EQ(request.max_tokens, 0u);
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.sampling.top_p, 0.25f);
  EXPECT_EQ(request.sampling.top_k, 7u);
  EXPECT_EQ(request.sampling.min_p, 0.125f);
  EXPECT_EQ(request.seed->bits, UINT64_MAX);
  EXPECT_FALSE(request.seed->negative);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(request.ignore_eos);
  EXPECT_EQ(request.logprobs, 0);
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_FALSE(request.cache_prompt);
  EXPECT_EQ(request.cache_salt, "tenant 7");
  EXPECT_EQ(request.isolate_after, 2u);
  EXPECT_EQ(request.checkpoint_at, (std::vector<uint32_t>{2, 64}));
}

TEST(CompletionRequest, NullMeansAbsent) {
  const CompletionRequest request = Parse(
      R"({"prompt":"x","model":null,"max_tokens":null,"temperature":null,"seed":null,"stop":null,
          "logprobs":null,"stream":null,"stream_options":null,"cache_prompt":null,
          "cache_salt":null,"isolate_after":null,"checkpoint_at":null,"prompt_cache_key":null,"n":null,"echo":null,
          "best_of":null,"suffix":null,"logit_bias":null,"presence_penalty":null,"user":null,
          "max_completion_tokens":null,"min_tokens":null,"stop_token_ids":null})");
  EXPECT_EQ(request.max_tokens, 16u);
  EXPECT_EQ(request.sampling.temperature, 1.0f);
  EXPECT_FALSE(request.seed.has_value());
  EXPECT_EQ(request.choices, 1u);
}

TEST(CompletionRequest, PromptArraysOfTextAndOfIdsAreSeveralPrompts) {
  const CompletionRequest texts = Parse(R"({"prompt":["a","b","c"]})");
  ASSERT_EQ(texts.prompts.size(), 3u);
  EXPECT_EQ(std::get<std::string>(texts.prompts[2]), "c");
  const CompletionRequest ids = Parse(R"({"prompt":[[1,2],[3]]})");
  ASSERT_EQ(ids.prompts.size(), 2u);
  EXPECT_EQ(std::get<std::vector<TokenId>>(ids.prompts[1]), (std::vector<TokenId>{3}));
}

TEST(CompletionRequest, PenaltiesBiasesAndEndsAreRead) {
  const CompletionRequest request = Parse(
      R"({"prompt":"x","presence_penalty":-2,"frequency_penalty":0.5,"repetition_penalty":1.25,
          "logit_bias":{"7":-100,"513":2.5},"stop_token_ids":[3,513],"min_tokens":2,"n":3,
          "best_of":3,"echo":true,"max_completion_tokens":9,"user":"u","safety_identifier":"s",
          "metadata":{"a":"b"},"priority":-7,"stream":true,"return_progress":true})");
  EXPECT_EQ(request.sampling.presence_penalty, -2);
  EXPECT_EQ(request.sampling.frequency_penalty, 0.5f);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.25f);
  ASSERT_EQ(request.sampling.logit_bias.size(), 2u);
  float sum = 0;
  for (const LogitBias& bias : request.sampling.logit_bias) {
    sum += bias.bias;
    EXPECT_EQ(bias.bias, bias.id == 7 ? -100 : 2.5f);
  }
  EXPECT_EQ(sum, -97.5f);
  EXPECT_EQ(request.stop_ids, (std::vector<TokenId>{3, 513}));
  EXPECT_EQ(request.min_tokens, 2u);
  EXPECT_EQ(request.choices, 3u);
  EXPECT_TRUE(request.echo);
  EXPECT_EQ(request.max_tokens, 9u);
  EXPECT_TRUE(request.return_progress);
  EXPECT_EQ(request.priority, -7);
}

TEST(CompletionRequest, TooManyStopIdsAndBiasesAreRefused) {
  nlohmann::json body = {{"prompt", "x"}};
  body["stop_token_ids"] = std::vector<int>(kMaxStopIds + 1, 1);
  EXPECT_EQ(Refusal(body.dump()).param, "stop_token_ids");
  body.erase("stop_token_ids");
  for (size_t i = 0; i <= kMaxLogitBiases; ++i) body["logit_bias"][std::to_string(i)] = 1;
  EXPECT_EQ(Refusal(body.dump()).message, "logit_bias: expected at most 1024 tokens, got 1025");
}

TEST(CompletionRequest, NegativeSeedKeepsItsBitsAndSign) {
  const CompletionRequest request = Parse(R"({"prompt":"x","seed":-2})");
  EXPECT_EQ(request.seed->bits, static_cast<uint64_t>(int64_t{-2}));
  EXPECT_TRUE(request.seed->negative);
}

TEST(CompletionRequest, CheckpointPositionsAreOneOrManyEachOnce) {
  const auto positions = [](const std::string& value) {
    return Parse(R"({"prompt":"x","checkpoint_at":)" + value + "}").checkpoint_at;
  };
  EXPECT_EQ(positions("7"), (std::vector<uint32_t>{7}));
  EXPECT_EQ(positions("[9,1,9,100]"), (std::vector<uint32_t>{1, 9, 100}));
  EXPECT_TRUE(positions("[]").empty());
  EXPECT_EQ(positions(nlohmann::json(std::vector<int>(kMaxCheckpoints, 5)).dump()).size(), 1u);
}

TEST(CompletionRequest, ASaltOfTheMostBytesIsReadAndAnEmptyOneIsNone) {
  const std::string salt(kMaxSaltBytes, 's');
  EXPECT_EQ(Parse(R"({"prompt":"x","cache_salt":")" + salt + R"("})").cache_salt, salt);
  EXPECT_EQ(Parse(R"({"prompt":"x","cache_salt":""})").cache_salt, "");
}

TEST(CompletionRequest, ARefusedSaltIsNotInTheMessage) {
  const std::string salt = "secret" + std::string(kMaxSaltBytes, 's');
  for (const std::string& value : {"\"" + salt + "\"", std::string(R"(["secret"])")}) {
    const ApiError error = Refusal(R"({"prompt":"x","cache_salt":)" + value + "}");
    EXPECT_EQ(error.param, "cache_salt");
    EXPECT_EQ(error.message.find("secret"), std::string::npos) << error.message;
  }
}

TEST(CompletionRequest, TopKMinusOneIsOff) {
  EXPECT_EQ(Parse(R"({"prompt":"x","top_k":-1})").sampling.top_k, 0u);
}

struct BadField {
  const char* body;
  const char* param;
  const char* code;
  const char* expected;  // in the message
  const char* actual;    // in the message
};

TEST(CompletionRequest, WrongFieldsAreNamedWithExpectedAndActual) {
  const BadField cases[] = {
      {R"({})", "prompt", "missing_required_parameter", "a string", "required"},
      {R"({"prompt":null})", "prompt", "missing_required_parameter", "a string", "required"},
      {R"({"prompt":7})", "prompt", "invalid_type", "a string", "7"},
      {R"({"prompt":[]})", "prompt", "invalid_value", "at least one", "array of 0"},
      {R"({"prompt":[[]]})", "prompt", "invalid_type", "at least one token id", "array of 0"},
      {R"({"prompt":[1,"a"]})", "prompt", "invalid_type", "an integer from 0 to 513", "\"a\""},
      {R"({"prompt":["a",1]})", "prompt", "invalid_type", "prompt[1]", "1"},
      {R"({"prompt":[514]})", "prompt", "invalid_value", "0 to 513", "514"},
      {R"({"prompt":[-1]})", "prompt", "invalid_value", "0 to 513", "-1"},
      {R"({"prompt":[1.5]})", "prompt", "invalid_type", "prompt[0]", "1.5"},
      {R"({"prompt":[18446744073709551615]})", "prompt", "invalid_value", "0 to 513",
       "18446744073709551615"},
      {R"({"prompt":[true]})", "prompt", "invalid_type", "prompt[0]", "true"},
      {R"({"prompt":"x","model":1})", "model", "invalid_type", "a string", "1"},
      {R"({"prompt":"x","max_tokens":-1})", "max_tokens", "invalid_value", "0 to", "-1"},
      {R"({"prompt":"x","max_tokens":1.0})", "max_tokens", "invalid_type", "an integer", "1.0"},
      {R"({"prompt":"x","max_tokens":"5"})", "max_tokens", "invalid_type", "an integer", "\"5\""},
      {R"({"prompt":"x","max_tokens":1e30})", "max_tokens", "invalid_type", "an integer", "1e+30"},
      {R"({"prompt":"x","max_tokens":9223372036854775808})", "max_tokens", "invalid_value",
       "an integer", "9223372036854775808"},
      {R"({"prompt":"x","temperature":2.5})", "temperature", "invalid_value", "0 to 2", "2.5"},
      {R"({"prompt":"x","temperature":-0.1})", "temperature", "invalid_value", "0 to 2", "-0.1"},
      {R"({"prompt":"x","temperature":"hot"})", "temperature", "invalid_type", "a number", "hot"},
      {R"({"prompt":"x","top_p":1.5})", "top_p", "invalid_value", "0 to 1", "1.5"},
      {R"({"prompt":"x","top_p":0})", "top_p", "invalid_value", "above 0", "0"},
      {R"({"prompt":"x","top_p":1e-50})", "top_p", "invalid_value", "above 0", "1e-50"},
      {R"({"prompt":"x","min_p":-1})", "min_p", "invalid_value", "0 to 1", "-1"},
      {R"({"prompt":"x","top_k":-2})", "top_k", "invalid_value", "-1 to", "-2"},
      {R"({"prompt":"x","seed":1.5})", "seed", "invalid_type", "an integer", "1.5"},
      {R"({"prompt":"x","logprobs":true})", "logprobs", "invalid_type", "0 to 20", "true"},
      {R"({"prompt":"x","logprobs":21})", "logprobs", "invalid_value", "0 to 20", "21"},
      {R"({"prompt":"x","stop":""})", "stop", "invalid_value", "1 to 1024", "\"\""},
      {R"({"prompt":"x","ignore_eos":1})", "ignore_eos", "invalid_type", "true or false", "1"},
      {R"({"prompt":"x","stop":[1]})", "stop", "invalid_type", "strings", "1"},
      {R"({"prompt":"x","stop":["a","b","c","d","e"]})", "stop", "invalid_value", "up to 4",
       "array of 5"},
      {R"({"prompt":"x","stop":{}})", "stop", "invalid_type", "a string or an array", "an object"},
      {R"({"prompt":"x","stream":"yes"})", "stream", "invalid_type", "true or false", "yes"},
      {R"({"prompt":"x","stream_options":{}})", "stream_options", "invalid_value",
       "only allowed when stream", ""},
      {R"({"prompt":"x","stream":true,"stream_options":[]})", "stream_options", "invalid_type",
       "an object", "array of 0"},
      {R"({"prompt":"x","stream":true,"stream_options":{"include_usage":1}})",
       "stream_options.include_usage", "invalid_type", "true or false", "1"},
      {R"({"prompt":"x","stream":true,"stream_options":{"foo":1}})", "stream_options.foo",
       "unknown_parameter", "include_usage", "foo"},
      {R"({"prompt":"x","cache_prompt":"yes"})", "cache_prompt", "invalid_type", "true or false",
       "yes"},
      {R"({"prompt":"x","cache_salt":7})", "cache_salt", "invalid_type", "at most 256 bytes",
       "number"},
      {R"({"prompt":"x","isolate_after":-1})", "isolate_after", "invalid_value", "0 to 100", "-1"},
      {R"({"prompt":"x","isolate_after":"system"})", "isolate_after", "invalid_type", "an integer",
       "system"},
      {R"({"prompt":"x","checkpoint_at":0})", "checkpoint_at", "invalid_value", "1 to 100", "0"},
      {R"({"prompt":"x","checkpoint_at":101})", "checkpoint_at", "invalid_value", "1 to 100",
       "101"},
      {R"({"prompt":"x","checkpoint_at":1.5})", "checkpoint_at", "invalid_type", "an integer",
       "1.5"},
      {R"({"prompt":"x","checkpoint_at":"end"})", "checkpoint_at", "invalid_type", "up to 64",
       "\"end\""},
      {R"({"prompt":"x","checkpoint_at":[1,-2]})", "checkpoint_at", "invalid_value",
       "checkpoint_at[1]", "-2"},
      {R"({"prompt":"x","checkpoint_at":[[1]]})", "checkpoint_at", "invalid_type",
       "checkpoint_at[0]", "array of 1"},
      {R"({"prompt":"x","prompt_cache_key":5})", "prompt_cache_key", "invalid_type", "a string",
       "5"},
      {R"({"prompt":"x","nn":1})", "nn", "unknown_parameter", "max_tokens", "nn: not a field"},
      {R"({"prompt":"x","messages":null})", "messages", "unknown_parameter", "max_tokens",
       "messages"},
      {R"({"prompt":"x","n":0})", "n", "invalid_value", "1 to 128", "0"},
      {R"({"prompt":"x","n":129})", "n", "invalid_value", "1 to 128", "129"},
      {R"({"prompt":"x","n":true})", "n", "invalid_type", "an integer", "true"},
      {R"({"prompt":["x","y"],"n":65})", "n", "invalid_value", "at most 128", "2 prompts of 65"},
      {R"({"prompt":"x","best_of":2})", "best_of", "unsupported_parameter", "what n is, 1", "2"},
      {R"({"prompt":"x","suffix":"y"})", "suffix", "unsupported_parameter", "does not insert",
       "suffix"},
      {R"({"prompt":"x","echo":1})", "echo", "invalid_type", "true or false", "1"},
      {R"({"prompt":"x","presence_penalty":2.5})", "presence_penalty", "invalid_value", "-2 to 2",
       "2.5"},
      {R"({"prompt":"x","frequency_penalty":"1"})", "frequency_penalty", "invalid_type", "a number",
       "\"1\""},
      {R"({"prompt":"x","repetition_penalty":0})", "repetition_penalty", "invalid_value",
       "above 0, at most 10", "0"},
      {R"({"prompt":"x","repetition_penalty":11})", "repetition_penalty", "invalid_value",
       "0 to 10", "11"},
      {R"({"prompt":"x","logit_bias":[1]})", "logit_bias", "invalid_type", "an object",
       "array of 1"},
      {R"({"prompt":"x","logit_bias":{"514":1}})", "logit_bias", "invalid_value", "0 to 513",
       "514"},
      {R"({"prompt":"x","logit_bias":{"-1":1}})", "logit_bias", "invalid_value", "0 to 513", "-1"},
      {R"({"prompt":"x","logit_bias":{"the":1}})", "logit_bias", "invalid_value", "0 to 513",
       "the"},
      {R"({"prompt":"x","logit_bias":{"5 ":1}})", "logit_bias", "invalid_value", "0 to 513", "5 "},
      {R"({"prompt":"x","logit_bias":{"5":101}})", "logit_bias", "invalid_value", "-100 to 100",
       "101"},
      {R"({"prompt":"x","logit_bias":{"5":null}})", "logit_bias", "invalid_type", "a number",
       "null"},
      {R"({"prompt":"x","stop_token_ids":5})", "stop_token_ids", "invalid_type", "an array", "5"},
      {R"({"prompt":"x","stop_token_ids":[514]})", "stop_token_ids", "invalid_value", "0 to 513",
       "514"},
      {R"({"prompt":"x","min_tokens":17})", "min_tokens", "invalid_value", "at most max_tokens, 16",
       "17"},
      {R"({"prompt":"x","max_tokens":4,"max_completion_tokens":5})", "max_completion_tokens",
       "invalid_value", "max_tokens, 4", "5"},
      {R"({"prompt":"x","priority":2147483648})", "priority", "invalid_value", "-2147483648 to",
       "2147483648"},
      {R"({"prompt":"x","user":5})", "user", "invalid_type", "a string", "5"},
      {R"({"prompt":"x","metadata":"m"})", "metadata", "invalid_type", "an object", "m"},
      {R"({"prompt":"x","return_progress":true})", "return_progress", "invalid_value",
       "when stream is true", ""},
      {R"({"prompt":"x","stream":true,"stream_options":{"include_obfuscation":true}})",
       "stream_options.include_obfuscation", "invalid_value", "false", "true"},
      {R"([])", "", "invalid_type", "an object", "array of 0"},
      {R"("x")", "", "invalid_type", "an object", "\"x\""},
  };
  for (const BadField& bad : cases) {
    SCOPED_TRACE(bad.body);
    const ApiError error = Refusal(bad.body);
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_EQ(error.param, bad.param);
    EXPECT_EQ(error.code, bad.code);
    EXPECT_NE(error.message.find(bad.expected), std::string::npos) << error.message;
    EXPECT_NE(error.message.find(bad.actual), std::string::npos) << error.message;
    EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
  }
}

TEST(CompletionRequest, TooManyPromptsAreRefused) {
  nlohmann::json body;
  body["prompt"] = std::vector<std::string>(kPromptsMax, "x");
  EXPECT_EQ(Parse(body.dump()).prompts.size(), kPromptsMax);
  body["prompt"].push_back("x");
  EXPECT_EQ(Refusal(body.dump()).param, "prompt");
}

TEST(CompletionRequest, TooManyCheckpointPositionsAreRefused) {
  const std::string many = nlohmann::json(std::vector<int>(kMaxCheckpoints + 1, 5)).dump();
  const ApiError error = Refusal(R"({"prompt":"x","checkpoint_at":)" + many + "}");
  EXPECT_EQ(error.param, "checkpoint_at");
  EXPECT_NE(error.message.find("array of 65"), std::string::npos) << error.message;
}

TEST(CompletionRequest, WhatCannotFitTheContextIsRefusedBeforeItIsCopied) {
  const auto ids = [](size_t count) { return nlohmann::json(std::vector<int>(count, 1)); };
  const auto body = [](nlohmann::json prompt) {
    return nlohmann::json{{"prompt", std::move(prompt)}}.dump();
  };
  (void)Parse(body(ids(100)));
  (void)Parse(body(std::string(403, 'x')));
  (void)Parse(body(std::vector<nlohmann::json>(kPromptsMax, ids(100))));
  (void)Parse(body(std::string(403, ',')));
  const std::pair<nlohmann::json, const char*> cases[] = {
      {ids(101), "prompt has 101"},
      {{"x", ids(101)}, "prompt[1] has 101"},
      {std::string(404, 'x'), "prompt has at least 101"},
      {{ids(1), std::string(404, 'x')}, "prompt[1] has at least 101"},
  };
  for (const auto& [prompt, needs] : cases) {
    const ApiError error = Refusal(body(prompt));
    EXPECT_EQ(error.code, "context_length_exceeded");
    EXPECT_EQ(error.param, "prompt");
    EXPECT_NE(error.message.find(needs), std::string::npos) << error.message;
  }
}

TEST(CompletionRequest, MoreNumbersThanPromptsCanHoldAreNotParsed) {
  // Not even JSON: had it been parsed, the message would say so.
  std::string body = R"({"prompt":[)";
  for (int i = 0; i < 20'000; ++i) body += "1,";
  EXPECT_EQ(Refusal(body).code, "context_length_exceeded");
  // Commas in text are text.
  EXPECT_EQ(Refusal(R"({"prompt":")" + std::string(10'000, ',')).code, "invalid_json");
}

TEST(CompletionRequest, LongNamesAreNotEchoed) {
  const std::string name(100'000, 'n');
  for (const std::string& body :
       {R"({"prompt":"x",")" + name + R"(":1})",
        R"({"prompt":"x","stream":true,"stream_options":{")" + name + R"(":1}})"}) {
    const ApiError error = Refusal(body);
    EXPECT_EQ(error.code, "unknown_parameter");
    EXPECT_LT(error.param.size(), 100u);
    EXPECT_LT(error.message.size(), 600u);
  }
}

TEST(ModelLimits, BodyHoldsAContextOfTheLongestTokensWithinAFloorAndACap) {
  EXPECT_EQ(BodyBytesMax({.context_length = 8192, .token_bytes_max = 4}), size_t{1} << 20);
  EXPECT_EQ(BodyBytesMax({.context_length = 32768, .token_bytes_max = 100}), 32768u * 600);
  EXPECT_EQ(BodyBytesMax({.context_length = UINT32_MAX, .token_bytes_max = SIZE_MAX}),
            size_t{32} << 20);
}

TEST(JsonBody, MalformedTextIsRefusedWithLineAndColumn) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "line 1, column 1"},
      {"{\"prompt\":\n  nope}", "line 2, column 4"},
      {"{\"prompt\": \"x\"", "line 1, column 15"},
      {"{\"prompt\": \"x\"} x", "line 1, column 17"},
      {"{\"temperature\": NaN}", "line 1, column 17"},
      {"{\"temperature\": Infinity}", "line 1, column 17"},
      {"{\"prompt\": \"\xff\"}", "line 1, column 13"},
      {"{\"prompt\": \"\xed\xa0\x80\"}", "line 1, column"},
      {R"({"prompt": "\ud800"})", "line 1, column"},
      {"{\"prompt\": \"a\nb\"}", "line 1, column"},
  };
  for (const auto& [body, position] : cases) {
    SCOPED_TRACE(body);
    const ApiError error = Refusal(body);
    EXPECT_EQ(error.code, "invalid_json");
    EXPECT_NE(error.message.find(position), std::string::npos) << error.message;
    EXPECT_EQ(error.message.find("json.exception"), std::string::npos) << error.message;
    // Whatever bytes the message quotes, the reply is JSON.
    EXPECT_TRUE(nlohmann::json::accept(ErrorBody(error)));
  }
}

TEST(JsonBody, NumbersBeyondADoubleAreRefused) {
  EXPECT_EQ(Refusal(R"({"prompt":"x","temperature":1e999})").code, "invalid_json");
}

TEST(JsonBody, DepthIsBoundedBeforeParsing) {
  const std::string deep(8'000'000, '[');
  EXPECT_NE(Refusal(R"({"prompt":)" + deep).message.find("nested"), std::string::npos);
  const auto nested = [](int depth) {
    return std::string(static_cast<size_t>(depth), '[') + "1" +
           std::string(static_cast<size_t>(depth), ']');
  };
  EXPECT_TRUE(std::holds_alternative<nlohmann::json>(ParseJsonBody(nested(kJsonDepthMax))));
  EXPECT_TRUE(std::holds_alternative<ApiError>(ParseJsonBody(nested(kJsonDepthMax + 1))));
  // Brackets inside strings are text, also after an escaped quote.
  const std::string text = R"({"prompt":"\")" + std::string(100, '[') + "\"}";
  EXPECT_EQ(std::get<std::string>(Parse(text).prompts.at(0)).size(), 101u);
}

TEST(JsonBody, EveryPrefixAndEveryFlippedByteGivesAnAnswer) {
  const std::string good =
      R"({"prompt":["a\u00e9",[1,2]],"seed":-5,"stop":["\n"],"stream":true,"logprobs":3})";
  for (size_t length = 0; length < good.size(); ++length) {
    (void)ParseCompletionRequest(good.substr(0, length), kLimits);
  }
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = good;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      ApiResult<CompletionRequest> result = ParseCompletionRequest(damaged, kLimits);
      if (const ApiError* error = std::get_if<ApiError>(&result)) {
        EXPECT_EQ(error->http_status, 400);
        EXPECT_TRUE(nlohmann::json::accept(ErrorBody(*error)));
      }
    }
  }
}

}  // namespace
}  // namespace tessera
