// SPDX-License-Identifier: Apache-2.0
#include "trace/request_trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tessera {
namespace {

const std::string kTraces = TESSERA_SOURCE_DIR "/bench/traces/";

std::vector<uint64_t> Ids(const RequestTrace& trace, size_t request) {
  std::vector<uint64_t> ids;
  for (const IdRange& range : trace.Ranges(trace.requests[request])) {
    for (uint64_t id = range.first; id <= range.last; ++id) ids.push_back(id);
  }
  return ids;
}

RequestTrace Parsed(std::string_view text) {
  Result<RequestTrace> trace = ParseRequestTrace(text, "t");
  EXPECT_TRUE(trace.has_value()) << trace.error().ToString();
  return trace ? *trace : RequestTrace();
}

std::string ErrorOf(std::string_view text) {
  const Result<RequestTrace> trace = ParseRequestTrace(text, "t");
  EXPECT_FALSE(trace.has_value()) << text;
  if (trace) return "";
  EXPECT_EQ(trace.error().code(), StatusCode::kBadFile);
  return trace.error().message();
}

TEST(RequestTrace, ReadsMooncakeLinesWithAnIdForThePartialBlock) {
  const RequestTrace trace =
      Parsed(R"({"timestamp":3000,"input_length":1100,"output_length":7,"hash_ids":[4,5,9]})"
             "\r\n\n"
             R"({"timestamp":3001.5,"input_length":0,"output_length":0,"hash_ids":[],"more":{}})");
  ASSERT_EQ(trace.requests.size(), 2u);
  EXPECT_EQ(trace.format, TraceFormat::kMooncake);
  EXPECT_EQ(trace.block_tokens, 512u);
  EXPECT_EQ(trace.FullBlocks(trace.requests[0]), 2u);
  EXPECT_EQ(Ids(trace, 0), (std::vector<uint64_t>{4, 5, 9}));
  EXPECT_EQ(trace.requests[0].output_tokens, 7u);
  EXPECT_EQ(trace.requests[1].arrival_ms, 3001.5);
  EXPECT_NE(trace.requests[0].session, trace.requests[1].session);
  EXPECT_EQ(trace.InputTokens(), 1100u);
}

TEST(RequestTrace, ASubAgentSharesItsParentsIdsAndNoOtherSessionDoes) {
  const RequestTrace trace =
      Parsed(R"({"s":"a","i":0,"t":1.5,"in":130,"out":1,"b":[7,8]})"
             "\n"
             R"({"s":"a.1","i":0,"t":2,"in":64,"out":1,"parent":["a",0],"b":[7,7]})"
             "\n"
             R"({"s":"a.1.1","i":0,"t":3,"in":63,"out":1,"parent":["a.1",0],"b":[]})"
             "\n"
             R"({"s":"b","i":0,"t":0,"in":192,"out":1,"b":[1,1,5,6]})");
  ASSERT_EQ(trace.requests.size(), 4u);
  EXPECT_EQ(trace.format, TraceFormat::kAgentic);
  EXPECT_EQ(trace.id_spaces, 2u);
  EXPECT_EQ(trace.requests[0].arrival_ms, 1500);
  EXPECT_EQ(trace.requests[1].id_space, trace.requests[0].id_space);
  EXPECT_EQ(trace.requests[2].id_space, trace.requests[0].id_space);
  EXPECT_NE(trace.requests[3].id_space, trace.requests[0].id_space);
  EXPECT_EQ(Ids(trace, 3), (std::vector<uint64_t>{1, 5, 6}));
  EXPECT_EQ(trace.session_names, (std::vector<std::string>{"a", "a.1", "a.1.1", "b"}));
}

TEST(RequestTrace, CountsCharactersOfAgentLogsAsTokensOfFour) {
  const RequestTrace trace =
      Parsed(R"({"s":"m","i":0,"t":0,"in_chars":5561,"out_chars":9,"b":[1,21]})");
  ASSERT_EQ(trace.requests.size(), 1u);
  EXPECT_EQ(trace.requests[0].input_tokens, 1390u);
  EXPECT_EQ(trace.FullBlocks(trace.requests[0]), 21u);
  EXPECT_EQ(trace.requests[0].output_tokens, 2u);
}

TEST(RequestTrace, ReadsAzureRowsAsPromptsWithoutIds) {
  const RequestTrace trace = Parsed("t_s,input_tokens,output_tokens\n0.5,48,10\n1,3,0\n");
  ASSERT_EQ(trace.requests.size(), 2u);
  EXPECT_EQ(trace.requests[0].arrival_ms, 500);
  EXPECT_EQ(trace.requests[1].input_tokens, 3u);
  EXPECT_TRUE(trace.Ranges(trace.requests[0]).empty());
}

TEST(RequestTrace, AnErrorNamesLineFieldExpectedAndFound) {
  const std::string good = R"({"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[0]})";
  struct Case {
    std::string line, error;
  };
  const Case cases[] = {
      {"[1]", "t:2: line: expected one JSON object, found [1]"},
      {"{", "t:2: line: expected one JSON object, found {"},
      {R"({"timestamp":0})", "t:2: input_length: expected the field, found none"},
      {R"({"timestamp":-1,"input_length":1,"output_length":1,"hash_ids":[0]})",
       "t:2: timestamp: expected a time of 0 or later, found -1"},
      {R"({"timestamp":0,"input_length":1.5,"output_length":1,"hash_ids":[0]})",
       "t:2: input_length: expected a whole number up to 16777216, found 1.5"},
      {R"({"timestamp":0,"input_length":16777217,"output_length":1,"hash_ids":[0]})",
       "t:2: input_length: expected a whole number up to 16777216, found 16777217"},
      {R"({"timestamp":0,"input_length":513,"output_length":1,"hash_ids":[0]})",
       "t:2: hash_ids: expected 2 ids for an input of 513 tokens, found 1"},
      {R"({"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[-1]})",
       "t:2: hash_ids: expected ids that are whole numbers up to 4611686018427387904, found -1"},
      {R"({"timestamp":0,"input_length":1,"output_length":1,"hash_ids":{"a":1}})",
       "t:2: hash_ids: expected an array, found an object"},
  };
  for (const Case& c : cases) EXPECT_EQ(ErrorOf(good + "\n" + c.line), c.error);
}

TEST(RequestTrace, AgenticErrorsNameRangesAndParents) {
  const std::string good = R"({"s":"a","i":0,"t":0,"in":64,"out":1,"b":[1,1]})";
  struct Case {
    std::string line, error;
  };
  const Case cases[] = {
      {R"({"s":"","i":0,"t":0,"in":64,"out":1,"b":[1,1]})", R"(t:2: s: expected a name, found "")"},
      {R"({"s":"a","i":0,"t":0,"in":64,"out":1,"b":[1]})",
       "t:2: b: expected pairs of first and last, found 1 numbers"},
      {R"({"s":"a","i":0,"t":0,"in":64,"out":1,"b":[2,1]})",
       "t:2: b: expected ranges that go up, found 2 to 1"},
      {R"({"s":"a","i":0,"t":0,"in":64,"out":1,"b":[0,4611686018427387904]})",
       "t:2: b: expected 1 ids for an input of 64 tokens, found more"},
      {R"({"s":"a","i":0,"t":0,"in":130,"out":1,"b":[1,1]})",
       "t:2: b: expected 2 ids for an input of 130 tokens, found 1"},
      {R"({"s":"c","i":0,"t":0,"in":64,"out":1,"parent":["x",0],"b":[1,1]})",
       R"(t:2: parent: expected a session of an earlier line, found "x")"},
      {R"({"s":"c","i":0,"t":0,"in":64,"out":1,"parent":["c",0],"b":[1,1]})",
       R"(t:2: parent: expected a session of an earlier line, found "c")"},
      {R"({"s":"c","i":0,"t":0,"in":64,"out":1,"parent":7,"b":[1,1]})",
       "t:2: parent: expected [session, index], found 7"},
  };
  for (const Case& c : cases) EXPECT_EQ(ErrorOf(good + "\n" + c.line), c.error);
}

TEST(RequestTrace, RefusesWhatIsNoTrace) {
  EXPECT_EQ(ErrorOf(""), "t: expected requests, found no line");
  EXPECT_EQ(ErrorOf("t_s,input_tokens,output_tokens\n"),
            "t: expected requests, found a header only");
  EXPECT_EQ(ErrorOf("hello\x1b[1m"),
            "t:1: line: expected a trace of the formats mooncake, agentic, agents or azure, found "
            "hello?[1m");
  EXPECT_EQ(ErrorOf("t_s,input_tokens,output_tokens\n1,2\n"),
            "t:2: line: expected t_s,input_tokens,output_tokens, found 1,2");
  EXPECT_EQ(ErrorOf("t_s,input_tokens,output_tokens\n1,2x,3\n"),
            "t:2: input_tokens: expected a whole number from 0 to 16777216, found 2x");
  EXPECT_EQ(ReadRequestTrace("/nonexistent/t").error().code(), StatusCode::kIo);
  EXPECT_EQ(ReadRequestTrace(kTraces).error().code(), StatusCode::kBadFile);
}

TEST(RequestTrace, DeepNestingIsRefusedWithoutRecursion) {
  const std::string deep(200000, '[');
  const std::string line = R"({"timestamp":0,"input_length":1,"output_length":1,"hash_ids":)" +
                           deep + std::string(deep.size(), ']') + "}";
  EXPECT_EQ(ErrorOf(line).substr(0, 14), "t:1: hash_ids:");
}

TEST(RequestTrace, TheShippedTracesHaveTheirPublishedLengths) {
  struct Case {
    const char* file;
    size_t requests;
    uint64_t input_tokens;
    uint32_t id_spaces;
  };
  const Case cases[] = {{"mooncake_conversation.jsonl", 6000, 76643649, 1},
                        {"mooncake_synthetic.jsonl", 2000, 24732716, 1},
                        {"agentic_coding_sessions.jsonl", 9005, 827635435, 165},
                        {"agents_miniswe.jsonl", 206, 1219083, 1},
                        {"agents_magagent.jsonl", 353, 1053471, 1}};
  for (const Case& c : cases) {
    const Result<RequestTrace> trace = ReadRequestTrace(kTraces + c.file);
    ASSERT_TRUE(trace.has_value()) << trace.error().ToString();
    EXPECT_EQ(trace->name, c.file);
    EXPECT_EQ(trace->requests.size(), c.requests) << c.file;
    EXPECT_EQ(trace->InputTokens(), c.input_tokens) << c.file;
    EXPECT_EQ(trace->id_spaces, c.id_spaces) << c.file;
  }
}

TEST(ShrinkTrace, KeepsFullBlocksAndRefusesOtherFactors) {
  const std::string line =
      R"({"timestamp":0,"input_length":1100,"output_length":33,"hash_ids":[4,5,9]})";
  const Result<RequestTrace> small = ShrinkTrace(Parsed(line), 16);
  ASSERT_TRUE(small.has_value());
  EXPECT_EQ(small->block_tokens, 32u);
  EXPECT_EQ(small->requests[0].input_tokens, 68u);
  EXPECT_EQ(small->requests[0].output_tokens, 2u);
  EXPECT_EQ(small->FullBlocks(small->requests[0]), 2u);
  EXPECT_EQ(ShrinkTrace(Parsed(line), 3).error().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ShrinkTrace(Parsed(line), 0).error().code(), StatusCode::kInvalidArgument);
}

TEST(ReplayOrder, MergesASessionWithItsSubAgentsByTime) {
  const RequestTrace trace =
      Parsed(R"({"s":"a","i":0,"t":1,"in":1,"out":1,"b":[]})"
             "\n"
             R"({"s":"a","i":1,"t":9,"in":1,"out":1,"b":[]})"
             "\n"
             R"({"s":"a.1","i":0,"t":5,"in":1,"out":1,"parent":["a",1],"b":[]})"
             "\n"
             R"({"s":"b","i":0,"t":0,"in":1,"out":1,"b":[]})");
  EXPECT_EQ(ReplayOrder(trace), (std::vector<uint32_t>{0, 2, 1, 3}));
}

TEST(ReplayOrder, AtOnceMixesSoManySessionsAndKeepsTheOrderOfEach) {
  const Result<RequestTrace> trace = ReadRequestTrace(kTraces + "agentic_coding_sessions.jsonl");
  ASSERT_TRUE(trace.has_value());
  const std::vector<uint32_t> order = ReplayOrder(*trace, 4, 1);
  EXPECT_NE(order, ReplayOrder(*trace, 4, 2));
  std::vector<uint32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (uint32_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], i);
  std::vector<uint32_t> left(trace->id_spaces), started(trace->id_spaces);
  std::vector<double> last(trace->id_spaces);
  for (const TraceRequest& r : trace->requests) ++left[r.id_space];
  uint32_t running = 0, most = 0;
  for (const uint32_t i : order) {
    const TraceRequest& r = trace->requests[i];
    if (started[r.id_space]++ == 0) ++running;
    most = std::max(most, running);
    EXPECT_GE(r.arrival_ms, last[r.id_space]);
    last[r.id_space] = r.arrival_ms;
    if (--left[r.id_space] == 0) --running;
  }
  EXPECT_EQ(most, 4u);
}

}  // namespace
}  // namespace tessera
