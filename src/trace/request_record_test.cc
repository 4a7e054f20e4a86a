// SPDX-License-Identifier: Apache-2.0
#include "trace/request_record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

RequestRecord Example() {
  RequestRecord record;
  record.id = 7;
  record.ended = 1767225600.125;
  record.model = "harbour";
  record.prompt_tokens = 60;
  record.max_tokens = 20;
  record.completion_tokens = 4;
  record.finish = "stop";
  record.salted = true;
  record.supply = SupplyRecord{.attention = 48,
                               .recurrent = 40,
                               .adopted = 32,
                               .diverged_at = 50,
                               .computed = {{32, 50, "no_checkpoint"}, {50, 60, "diverged"}}};
  record.queue_ms = 0.25;
  record.prefill_ms = 3.5;
  record.decode_ms = 40.125;
  record.receipt = 0xc0ffee;
  return record;
}

TEST(RequestRecord, ReadsBackAsItWasWritten) {
  RequestRecord refused;
  refused.id = 8;
  refused.model = "harbour";
  refused.prompt_tokens = 60;
  refused.finish = "refused";
  refused.error = "pool 'shared' needs 9 pages,\nhas 4";
  for (const RequestRecord& record : {Example(), refused}) {
    const std::string line = WriteRequestRecord(record);
    EXPECT_EQ(line.find('\n'), std::string::npos);
    const Result<RequestRecord> read = ParseRequestRecord(line, "log", 1);
    ASSERT_TRUE(read) << read.error().message();
    EXPECT_EQ(*read, record);
  }
  const nlohmann::json json = nlohmann::json::parse(WriteRequestRecord(Example()));
  EXPECT_EQ(json["supply"]["gap_r"], 8);
  EXPECT_EQ(json["receipt"], "0000000000c0ffee");
  EXPECT_FALSE(json.contains("error"));
}

TEST(RequestRecord, AModelNameOfAnyBytesIsStillALineOfJson) {
  RequestRecord record = Example();
  record.model = "a\xff\"\n";
  const Result<RequestRecord> read = ParseRequestRecord(WriteRequestRecord(record), "log", 1);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->model, "a\xEF\xBF\xBD\"\n");
}

TEST(RequestRecord, SaysWhichFieldOfWhichLineIsWrong) {
  const nlohmann::json good = nlohmann::json::parse(WriteRequestRecord(Example()));
  const auto expect = [](const std::string& text, const std::string& message) {
    const Result<RequestRecord> read = ParseRequestRecord(text, "log", 3);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().code(), StatusCode::kBadFile);
    EXPECT_EQ(read.error().message(), message);
  };
  expect("{", "log:3: line: expected one JSON object, found {");
  expect("[1]", "log:3: line: expected one JSON object, found [1]");
  const auto changed = [&good](const char* pointer, const nlohmann::json& value) {
    nlohmann::json json = good;
    json[nlohmann::json::json_pointer(pointer)] = value;
    return json.dump();
  };
  expect(changed("/schema", 2), "log:3: schema: expected 1, found 2");
  expect(changed("/prompt_tokens", -1),
         "log:3: prompt_tokens: expected a whole number up to 4294967295, found -1");
  expect(changed("/queue_ms", -0.5), "log:3: queue_ms: expected a time of 0 or later, found -0.5");
  expect(changed("/salted", 1), "log:3: salted: expected true or false, found 1");
  expect(changed("/receipt", "xyz"), "log:3: receipt: expected 16 hex digits, found xyz");
  expect(changed("/supply", 5), "log:3: supply: expected an object, found 5");
  expect(changed("/supply/gap_r", 7), "log:3: gap_r: expected r_max - j_adopt, found 7");
  expect(changed("/supply/j_adopt", 41), "log:3: gap_r: expected r_max - j_adopt, found 8");
  expect(changed("/supply/computed/1/from", 49),
         "log:3: computed: expected a range from 50, found [49, 60)");
  expect(changed("/prompt_tokens", 61),
         "log:3: computed: expected ranges up to prompt_tokens, 61, found 60");
  expect(changed("/supply/computed", 1), "log:3: computed: expected an array, found 1");
  for (const auto& [name, value] : good.items()) {
    if (name == "supply") continue;  // may be absent
    nlohmann::json json = good;
    json.erase(name);
    expect(json.dump(), "log:3: " + name + ": expected the field, found none");
  }
}

}  // namespace
}  // namespace tessera
