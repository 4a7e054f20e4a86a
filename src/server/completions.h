// SPDX-License-Identifier: Apache-2.0
//
// Completions answers POST /v1/completions: parses, submits, and turns what the engine does into
// one JSON body or a stream of server-sent events.
//
//   data: {chunk}\n\n  …  the chunk with finish_reason  [the usage chunk]  data: [DONE]\n\n
//   : keep-alive\n\n       while nothing else has been sent for `keep_alive` (a long prefill, a
//   queue) data: {"error": …}\n\n then [DONE]: a failure after the status line is out
//
// A client that goes away cancels its requests within 50 ms, or at the end of the running step if
// that is later, whether they wait, prefill or decode.
//
// Threads: Handle from any thread, and the streams it returns likewise. CancelAll from any.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "engine/engine.h"
#include "server/engine_requests.h"
#include "server/http_reply.h"

namespace tessera {

class Completions {
 public:
  // The engine must outlive it, and it the streams.
  Completions(Engine* engine, std::string model_id, std::chrono::milliseconds keep_alive);

  HttpReply Handle(const std::string& body, Peer& peer);
  const ModelLimits& limits() const { return limits_; }
  // Ends everything that runs, now and from here on, with 503 "shutting_down".
  void CancelAll() { cancel_all_ = true; }

 private:
  class Answer;

  Engine* const engine_;
  const std::string model_id_;
  const ModelLimits limits_;
  const std::chrono::milliseconds keep_alive_;
  std::atomic<bool> cancel_all_{false};
};

}  // namespace tessera
