// SPDX-License-Identifier: Apache-2.0
//
// The log against a disk that does not cooperate: it may lose records, never a half line, never
// itself, and always the count of what it lost.
#include "server/request_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

namespace tessera {
namespace {

namespace fs = std::filesystem;

class RequestLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("tessera-request-log-" + std::to_string(getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path() const { return (folder_ / "requests.jsonl").string(); }
  static std::unique_ptr<RequestLog> Open(const RequestLogOptions& options) {
    Result<std::unique_ptr<RequestLog>> log = RequestLog::Open(options);
    EXPECT_TRUE(log) << log.error().message();
    return log ? std::move(*log) : nullptr;
  }
  // Ids of the records in it, each of which must parse.
  static std::vector<uint64_t> Ids(const std::string& path) {
    std::vector<uint64_t> ids;
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      EXPECT_FALSE(file.eof()) << "no end of line";
      const Result<RequestRecord> record = ParseRequestRecord(line, path, ids.size() + 1);
      EXPECT_TRUE(record) << record.error().message();
      if (record) ids.push_back(record->id);
    }
    return ids;
  }

  fs::path folder_;
};

RequestRecord Record(uint64_t id) {
  RequestRecord record;
  record.id = id;
  record.model = std::string(1, 'm');
  record.finish = FinishName(FinishReason::kStop);
  return record;
}

bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000 && !condition(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

TEST_F(RequestLogTest, WhatWasAppendedIsThereWhenItEndsAndFollowsWhatWasThereBefore) {
  for (uint64_t run = 0; run < 2; ++run) {
    const std::unique_ptr<RequestLog> log = Open({.path = path()});
    for (uint64_t i = 0; i < 100; ++i) log->Append(Record(run * 100 + i));
  }
  const std::vector<uint64_t> ids = Ids(path());
  ASSERT_EQ(ids.size(), 200u);
  for (uint64_t i = 0; i < 200; ++i) EXPECT_EQ(ids[i], i);
}

TEST_F(RequestLogTest, AfterALineThatWasCutTheNextRecordIsALineByItself) {
  const std::string cut = R"({"schema":1,"id")";
  std::ofstream(path()) << WriteRequestRecord(Record(1)) << '\n' << cut;
  {
    const std::unique_ptr<RequestLog> log = Open({.path = path()});
    log->Append(Record(2));
    log->Append(Record(3));
  }
  std::ifstream file(path());
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  EXPECT_EQ(lines, (std::vector<std::string>{WriteRequestRecord(Record(1)), cut,
                                             WriteRequestRecord(Record(2)),
                                             WriteRequestRecord(Record(3))}));
}

TEST_F(RequestLogTest, AFileThatIsFullBecomesTheOneBefore) {
  const uint64_t line = WriteRequestRecord(Record(10)).size() + 1;
  const std::unique_ptr<RequestLog> log = Open({.path = path(), .rotate_bytes = 5 * line});
  for (uint64_t i = 10; i < 22; ++i) log->Append(Record(i));
  ASSERT_TRUE(Eventually([&] { return log->Counts().written == 12; }));
  EXPECT_EQ(Ids(path()), (std::vector<uint64_t>{20, 21}));
  EXPECT_EQ(Ids(path() + ".1"), (std::vector<uint64_t>{15, 16, 17, 18, 19}));
}

TEST_F(RequestLogTest, AFileThatSomebodyMovedOrRemovedIsBegunAgain) {
  const std::unique_ptr<RequestLog> log = Open({.path = path()});
  log->Append(Record(1));
  ASSERT_TRUE(Eventually([&] { return log->Counts().written == 1; }));
  fs::rename(path(), path() + ".moved");
  log->Append(Record(2));
  ASSERT_TRUE(Eventually([&] { return log->Counts().written == 2; }));
  fs::remove(path());
  log->Append(Record(3));
  ASSERT_TRUE(Eventually([&] { return log->Counts().written == 3; }));
  EXPECT_EQ(Ids(path() + ".moved"), std::vector<uint64_t>{1});
  EXPECT_EQ(Ids(path()), std::vector<uint64_t>{3});
}

TEST_F(RequestLogTest, AFullDiskCostsRecordsAndTheyAreCounted) {
  const std::unique_ptr<RequestLog> log = Open({.path = "/dev/full"});
  for (uint64_t i = 0; i < 10; ++i) log->Append(Record(i));
  ASSERT_TRUE(Eventually([&] { return log->Counts().dropped == 10; }));
  EXPECT_EQ(log->Counts().written, 0u);
}

TEST_F(RequestLogTest, HalfALineIsCutOffAndItGoesOnWhenThereIsRoomAgain) {
  const uint64_t line = WriteRequestRecord(Record(10)).size() + 1;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const std::unique_ptr<RequestLog> log = Open({.path = path()});
  const rlimit tight = {3 * line + line / 2, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  for (uint64_t i = 10; i < 15; ++i) log->Append(Record(i));
  EXPECT_TRUE(Eventually([&] { return log->Counts().dropped == 2; }));
  EXPECT_EQ(Ids(path()), (std::vector<uint64_t>{10, 11, 12}));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  log->Append(Record(15));
  ASSERT_TRUE(Eventually([&] { return log->Counts().written == 4; }));
  EXPECT_EQ(Ids(path()), (std::vector<uint64_t>{10, 11, 12, 15}));
}

TEST_F(RequestLogTest, AWriterThatFallsBehindLosesRecordsAndNobodyWaits) {
  // A pipe that nobody reads takes 64 KiB; what does not fit is lost.
  const std::string pipe = (folder_ / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(reader, 0);
  constexpr uint64_t kRecords = 5000;
  {
    const std::unique_ptr<RequestLog> log = Open({.path = pipe, .queue_max = 16});
    for (uint64_t i = 0; i < kRecords; ++i) log->Append(Record(i));
    EXPECT_TRUE(Eventually([&] {
      const RequestLogCounts counts = log->Counts();
      return counts.written + counts.dropped == kRecords;
    }));
    EXPECT_GT(log->Counts().dropped, 0u);
    EXPECT_GT(log->Counts().written, 0u);
  }
  ::close(reader);
}

TEST(RequestRecords, ARefusedRequestHasWhatItAskedForAndWhyNot) {
  FinishedRequest refused;
  refused.id = RequestId(9);
  refused.finish = FinishReason::kRefused;
  refused.error = InvalidArgument("too long");
  refused.prompt_tokens = 9000;
  refused.max_tokens = 5;
  const RequestRecord record = RecordOf(refused, "m");
  EXPECT_EQ(record.finish, "refused");
  EXPECT_EQ(record.error, "too long");
  EXPECT_EQ(record.prompt_tokens, 9000u);
  EXPECT_EQ(record.max_tokens, 5u);
  EXPECT_FALSE(record.supply.has_value());
  EXPECT_EQ(*ParseRequestRecord(WriteRequestRecord(record), "log", 1), record);
}

TEST_F(RequestLogTest, APathThatCannotBeWrittenIsRefusedByName) {
  const std::string bad = (folder_ / "no" / "such").string();
  const Result<std::unique_ptr<RequestLog>> log = RequestLog::Open({.path = bad});
  ASSERT_FALSE(log);
  EXPECT_EQ(log.error().code(), StatusCode::kIo);
  EXPECT_EQ(log.error().message(), "request log " + bad + ": No such file or directory");
}

}  // namespace
}  // namespace tessera
