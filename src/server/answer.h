// SPDX-License-Identifier: Apache-2.0
//
// Answer is one answer on its way: the choices' requests in the engine, and a format that says in
// JSON what they do.
//
//   data: {chunk}\n\n  …  the chunk with finish_reason  [the usage chunk]  data: [DONE]\n\n
//   : keep-alive\n\n       while nothing else has been sent for `keep_alive` (a long prefill, a
//                          queue)
//   data: {"error": …}\n\n then [DONE]: a failure after the status line is out
//
// A client that goes away cancels its requests within 50 ms, or at the end of the running step if
// that is later, whether they wait, prefill or decode.
//
// Threads: one, that of the HTTP request.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "server/answer_events.h"
#include "server/answer_json.h"
#include "server/http_reply.h"

namespace tessera {

// How an answer is written. One per answer; it may keep what a stream has said so far.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;
  // The whole of it; choices in order, each gathered into one event.
  virtual std::string Body(std::vector<ChoiceEvent> choices, const RequestSeed& seed,
                           const AnswerTotals& totals) = 0;
  // The chunks that an event makes, in order; `ending` with the last event of the answer.
  virtual std::vector<std::string> Chunks(ChoiceEvent event, const StreamEnding* ending) = 0;
  virtual std::string Usage(const AnswerTotals& totals) = 0;
};

struct AnswerOptions {
  RequestSeed seed;
  size_t choices = 1;
  uint32_t choices_per_prompt = 1;  // whose prompt is counted once
  bool include_usage = false;
  std::chrono::milliseconds keep_alive{15'000};
  const std::atomic<bool>* cancel_all = nullptr;
};

class Answer {
 public:
  Answer(const AnswerOptions& options, std::unique_ptr<AnswerFormat> format,
         std::unique_ptr<AnswerEvents> events)
      : options_(options),
        open_(options.choices),
        format_(std::move(format)),
        events_(std::move(events)) {}

  // Waits for the end. Nobody reads the reply when the peer has gone.
  HttpReply Collect(Peer& peer);
  // Writes the stream, to its end or until the peer has gone.
  void Stream(PeerStream& peer);

 private:
  std::vector<ChoiceEvent> Take();
  // Counts the last event of a choice into the totals.
  void Count(const ChoiceEvent& event);
  // Everything that came together as one text; `failed` when the stream ends with an error.
  std::string TakeStreamEvents(bool* failed);

  const AnswerOptions options_;
  size_t open_;  // choices without a finish_reason
  AnswerTotals totals_;
  std::unique_ptr<AnswerFormat> format_;
  std::unique_ptr<AnswerEvents> events_;
};

// The reply that `stream` ? streams : waits for the answer.
HttpReply ReplyWith(std::shared_ptr<Answer> answer, bool stream, Peer& peer);

}  // namespace tessera
