// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_tokens.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tessera {
namespace {

constexpr uint32_t kVocabulary = 50000;

RequestTrace Parsed(const std::string& text) {
  Result<RequestTrace> trace = ParseRequestTrace(text, "t");
  EXPECT_TRUE(trace.has_value()) << trace.error().ToString();
  return trace ? *trace : RequestTrace();
}

RequestTrace Mooncake() {
  return Parsed(R"({"timestamp":0,"input_length":1124,"output_length":9,"hash_ids":[4,5,9]})"
                "\n"
                R"({"timestamp":0,"input_length":1100,"output_length":9,"hash_ids":[4,5,9]})"
                "\n"
                R"({"timestamp":0,"input_length":1536,"output_length":9,"hash_ids":[4,6,7]})");
}

std::vector<int32_t> Prompt(const TraceTokens& tokens, const TraceRequest& request) {
  std::vector<int32_t> prompt;
  tokens.Prompt(request, &prompt);
  EXPECT_EQ(prompt.size(), request.input_tokens);
  for (const int32_t token : prompt) {
    EXPECT_GE(token, 0);
    EXPECT_LT(token, static_cast<int32_t>(kVocabulary));
  }
  return prompt;
}

size_t CommonTokens(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                             a.begin());
}

TEST(TraceTokens, PromptsAreEqualExactlyWhereFullBlocksAre) {
  const RequestTrace trace = Mooncake();
  const TraceTokens tokens(trace, PartialBlock::kOwn, kVocabulary);
  const std::vector<int32_t> a = Prompt(tokens, trace.requests[0]);
  const std::vector<int32_t> b = Prompt(tokens, trace.requests[1]);
  const std::vector<int32_t> c = Prompt(tokens, trace.requests[2]);
  EXPECT_EQ(CommonTokens(a, b), 1024u);
  EXPECT_EQ(CommonTokens(a, c), 512u);
}

TEST(TraceTokens, APartialBlockByIdIsItsIdsTokensCut) {
  const RequestTrace trace = Mooncake();
  const TraceTokens tokens(trace, PartialBlock::kById, kVocabulary);
  EXPECT_EQ(CommonTokens(Prompt(tokens, trace.requests[0]), Prompt(tokens, trace.requests[1])),
            1100u);
}

TEST(TraceTokens, TheSamePromptIsTheSameTokensAgain) {
  const RequestTrace trace = Mooncake();
  const TraceTokens tokens(trace, PartialBlock::kOwn, kVocabulary);
  EXPECT_EQ(Prompt(tokens, trace.requests[0]), Prompt(tokens, trace.requests[0]));
}

TEST(TraceTokens, IdsOfOtherSessionsAndOtherTracesAreOtherTokens) {
  const std::string lines = R"({"s":"a","i":0,"t":0,"in":70,"out":1,"b":[1,1]})"
                            "\n"
                            R"({"s":"b","i":0,"t":0,"in":70,"out":1,"b":[1,1]})";
  const RequestTrace trace = Parsed(lines);
  RequestTrace other = trace;
  other.name += 'u';
  const TraceTokens tokens(trace, PartialBlock::kOwn, kVocabulary);
  const TraceTokens others(other, PartialBlock::kOwn, kVocabulary);
  const std::vector<int32_t> a = Prompt(tokens, trace.requests[0]);
  EXPECT_EQ(CommonTokens(a, Prompt(tokens, trace.requests[1])), 0u);
  EXPECT_EQ(CommonTokens(a, Prompt(others, other.requests[0])), 0u);
}

TEST(TraceTokens, AnAnswerIsItsRequestsOwn) {
  const RequestTrace trace = Mooncake();
  const TraceTokens tokens(trace, PartialBlock::kOwn, kVocabulary);
  std::vector<int32_t> a, b;
  tokens.Answer(trace.requests[0], &a);
  tokens.Answer(trace.requests[1], &b);
  EXPECT_EQ(a.size(), 9u);
  EXPECT_NE(a, b);
}

}  // namespace
}  // namespace tessera
