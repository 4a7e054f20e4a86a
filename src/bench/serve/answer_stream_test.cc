// SPDX-License-Identifier: Apache-2.0
//
// Replies and streams as servers send them, and as they should not.
#include "bench/serve/answer_stream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tessera {
namespace {

const std::string kHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";

std::string Event(const std::string& json) { return "data: " + json + "\n\n"; }
std::string Piece(const std::string& text) {
  return Event(R"({"choices":[{"index":0,"text":")" + text + R"(","finish_reason":null}]})");
}
const std::string kFinish = Event(R"({"choices":[{"index":0,"text":"","finish_reason":"stop"}]})");
const std::string kUsage =
    Event(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,)"
          R"("prompt_tokens_details":{"cached_tokens":4}}})");

std::string Chunked(const std::string& head, const std::vector<std::string>& chunks) {
  std::string text = head.substr(0, head.size() - 2) + "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string& chunk : chunks)
    text += fmt::format("{:x}\r\n{}\r\n", chunk.size(), chunk);
  return text + "0\r\n\r\n";
}

// The record of bytes that come all at once, and then the connection's end.
LoadRecord Read(const std::string& bytes) {
  LoadRecord record;
  AnswerStream stream(&record);
  if (stream.Take(bytes, 1000)) stream.PeerClosed("");
  return record;
}

void ExpectFailure(const LoadRecord& record, LoadFailure failure, const std::string& part) {
  EXPECT_EQ(record.outcome, LoadOutcome::kFailed);
  EXPECT_EQ(LoadFailureName(record.failure), LoadFailureName(failure)) << record.error;
  EXPECT_NE(record.error.find(part), std::string::npos) << record.error;
  EXPECT_EQ(record.error.find('\n'), std::string::npos);
}

TEST(AnswerStream, PiecesHaveTheTimesTheyCameAt) {
  LoadRecord record;
  AnswerStream stream(&record);
  EXPECT_TRUE(stream.Take(kHead, 5));
  EXPECT_TRUE(stream.Take(": keep-alive\n\n", 50));
  EXPECT_TRUE(stream.Take(Piece("a"), 100));
  EXPECT_TRUE(stream.Take(Piece("b"), 130));
  EXPECT_TRUE(stream.Take(Piece("c"), 170));
  EXPECT_TRUE(stream.Take(kFinish, 200));
  EXPECT_TRUE(stream.Take(kUsage + Event("[DONE]"), 250));
  stream.PeerClosed("");
  EXPECT_EQ(record.outcome, LoadOutcome::kCompleted) << record.error;
  EXPECT_EQ(record.first_ns, 100u);
  EXPECT_EQ(record.gaps_ns, (std::vector<uint64_t>{30, 40}));
  EXPECT_EQ(record.last_ns, 200u);  // of the last choice: usage is no token
  EXPECT_EQ(record.text, "abc");
  EXPECT_EQ(record.finish_reason, "stop");
  EXPECT_EQ(record.prompt_tokens, 7u);
  EXPECT_EQ(record.output_tokens, 5u);
  EXPECT_EQ(record.cached_tokens, 4u);
}

TEST(AnswerStream, AnyCutOfTheBytesGivesTheSameRecord) {
  const std::string bytes = "HTTP/1.1 100 Continue\r\n\r\n" +
                            Chunked(kHead, {Piece("a").substr(0, 9), Piece("a").substr(9), "\r",
                                            "\n", Piece("b") + kFinish, kUsage + Event("[DONE]")});
  const LoadRecord whole = Read(bytes);
  ASSERT_EQ(whole.outcome, LoadOutcome::kCompleted) << whole.error;
  EXPECT_EQ(whole.text, "ab");
  for (size_t size = 1; size < 60; ++size) {
    LoadRecord record;
    AnswerStream stream(&record);
    bool open = true;
    for (size_t at = 0; at < bytes.size() && open; at += size) {
      open = stream.Take(std::string_view(bytes).substr(at, size), at);
    }
    EXPECT_FALSE(open) << size;  // the last chunk ends it, not the connection
    EXPECT_EQ(record.outcome, LoadOutcome::kCompleted) << size << record.error;
    EXPECT_EQ(record.text, whole.text);
    EXPECT_EQ(record.output_tokens, whole.output_tokens);
  }
}

TEST(AnswerStream, AChatsRoleIsNoPieceAndItsReasoningIsOne) {
  LoadRecord record;
  AnswerStream stream(&record);
  stream.Take(kHead, 0);
  stream.Take(Event(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})"), 10);
  stream.Take(Event(R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})"), 20);
  stream.Take(Event(R"({"choices":[{"delta":{"content":"yes"}}]})"), 30);
  stream.Take(Event(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})"), 40);
  stream.PeerClosed("");
  EXPECT_EQ(record.outcome, LoadOutcome::kCompleted) << record.error;
  EXPECT_EQ(record.first_ns, 20u);
  EXPECT_EQ(record.pieces, 2u);
  EXPECT_EQ(record.output_tokens, 2u);  // no usage: pieces are counted
  EXPECT_EQ(record.text, "hmyes");
  EXPECT_FALSE(record.cached_tokens.has_value());
}

TEST(AnswerStream, AnAnswerOfNoTextHasAFirstMoment) {
  const LoadRecord record = Read(kHead + kFinish + Event("[DONE]"));
  EXPECT_EQ(record.outcome, LoadOutcome::kCompleted) << record.error;
  EXPECT_EQ(record.first_ns, 1000u);
  EXPECT_TRUE(record.gaps_ns.empty());
}

TEST(AnswerStream, RefusalsSayTheStatusAndTheServersMessage) {
  const std::string body = R"({"error":{"message":"too\nmuch","code":"server_overloaded"}})";
  const std::string head =
      fmt::format("HTTP/1.1 503 Service Unavailable\r\nContent-Length: {}\r\n\r\n", body.size());
  const LoadRecord record = Read(head + body);
  ExpectFailure(record, LoadFailure::kStatus, "HTTP 503: too much");
  EXPECT_EQ(record.status, 503);
  ExpectFailure(Read(head + body.substr(0, 10)), LoadFailure::kStatus, "HTTP 503");
  ExpectFailure(Read("HTTP/1.1 404 Not Found\r\n\r\nno such page"), LoadFailure::kStatus,
                "HTTP 404");
  ExpectFailure(Read("HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n"), LoadFailure::kStatus,
                "HTTP 500");
}

TEST(AnswerStream, AnErrorInTheStreamIsTheServers) {
  ExpectFailure(
      Read(kHead + Piece("a") + Event(R"({"error":{"message":"engine died"}})") + Event("[DONE]")),
      LoadFailure::kServerError, "engine died");
}

TEST(AnswerStream, AConnectionThatEndsEarlyIsDisconnected) {
  ExpectFailure(Read(""), LoadFailure::kDisconnected, "0 pieces");
  ExpectFailure(Read(kHead.substr(0, 20)), LoadFailure::kDisconnected, "0 pieces");
  const std::string whole = Chunked(kHead, {Piece("a"), Piece("b"), kFinish});
  ExpectFailure(Read(whole.substr(0, whole.find("0\r\n\r\n"))), LoadFailure::kDisconnected,
                "2 pieces");
  // Its framing is the one thing that lacks.
  const std::string done = Chunked(kHead, {Piece("a"), kFinish + Event("[DONE]")});
  EXPECT_EQ(Read(done.substr(0, done.size() - 5)).outcome, LoadOutcome::kCompleted);
}

TEST(AnswerStream, WhatIsNoAnswerIsMalformed) {
  const auto malformed = [](const std::string& bytes, const std::string& part) {
    ExpectFailure(Read(bytes), LoadFailure::kMalformed, part);
  };
  malformed("SSH-2.0-OpenSSH\r\n\r\n", "expected a reply that begins with HTTP/1.1");
  malformed("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "NAME: VALUE");
  malformed("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "Content-Length");
  malformed("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>", "text/html");
  malformed(std::string(70'000, 'x'), "a head of at most");
  malformed(kHead + Event("{\"choices\":["), "an event of JSON");
  malformed(kHead + Piece("a"), "without a finish_reason");
  malformed(kHead + Event("[DONE]"), "without a choice");
  malformed(kHead + Event(R"({"choices":[{"text":7}]})") + Event("[DONE]"), "without a choice");
  const std::string chunked =
      kHead.substr(0, kHead.size() - 2) + "Transfer-Encoding: chunked\r\n\r\n";
  malformed(chunked + "zz\r\n", "the size of a chunk");
  malformed(chunked + "3\r\nabcd\r\n", "the end of a chunk");
  malformed(chunked + std::string(5000, '1'), "a line of at most");
}

TEST(AnswerStream, OddJsonIsPassedOver) {
  const LoadRecord record = Read(
      kHead + Event(R"({"choices":{}})") + Event(R"({"choices":[3]})") + Event(R"({"usage":[]})") +
      Event(R"({"usage":{"prompt_tokens":"7","prompt_tokens_details":3}})") + Piece("a") + kFinish);
  EXPECT_EQ(record.outcome, LoadOutcome::kCompleted) << record.error;
  EXPECT_EQ(record.text, "a");
}

TEST(EventLines, DataLinesOfOneEventAreJoined) {
  EventLines lines;
  std::vector<std::string> events;
  EXPECT_TRUE(lines.Take("event: x\r\ndata: a\r\ndata:b\r\n\r\n\n\n:c\n\ndata\n\ndata: d\n",
                         [&](std::string_view data) { events.emplace_back(data); }));
  EXPECT_EQ(events, (std::vector<std::string>{"a\nb"}));
  lines.Take("\n", [&](std::string_view data) { events.emplace_back(data); });
  EXPECT_EQ(events.back(), "d");
}

TEST(EventLines, AnEventWithoutAnEndIsGivenUp) {
  EventLines lines;
  const std::string part(1 << 20, 'x');
  size_t taken = 0;
  while (lines.Take(part, [](std::string_view) {})) taken += part.size();
  EXPECT_EQ(taken, EventLines::kEventBytesMax);
}

}  // namespace
}  // namespace tessera
