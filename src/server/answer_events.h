// SPDX-License-Identifier: Apache-2.0
//
// AnswerEvents is the meeting point of the engine's loop, which must never wait, and the thread
// of one HTTP request, which does nothing else: the requests of one answer (a choice each) and the
// queue of what happened to them.
//
//   Submit --> Take, Take, ... --> finished (one final event per choice was taken)
//   the destructor cancels what has not finished: an answer nobody reads costs nothing more
//
// C1  The queue holds what the engine produced and nobody took; max_tokens bounds it.
// C2  After the destructor the engine may still deliver into the shared queue, where it is dropped.
//
// Failure: Submit is all or nothing; when one request is refused those before it are cancelled.
// Threads: one thread uses the object; sinks run on the engine's loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/engine.h"

namespace tessera {

// A RequestEvent that owns what it says. The numbers come with the final one (finish set).
struct ChoiceEvent {
  uint32_t choice = 0;
  std::string text;
  std::vector<PositionLogprobs> logprobs;
  std::vector<PositionLogprobs> prompt_logprobs;  // once
  std::optional<PromptProgress> progress;
  FinishReason finish = FinishReason::kNone;
  Status error;
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  uint64_t receipt = 0;
  RequestTimings timings;
  MatchReport match;
};

class AnswerEvents {
 public:
  static Result<std::unique_ptr<AnswerEvents>> Submit(Engine* engine,
                                                      std::vector<Request> requests);
  ~AnswerEvents();
  AnswerEvents(const AnswerEvents&) = delete;
  AnswerEvents& operator=(const AnswerEvents&) = delete;

  // What has come since, in order; waits at most `wait` for the first.
  std::vector<ChoiceEvent> Take(std::chrono::milliseconds wait);
  // The final event of every choice has been taken.
  bool finished() const { return finished_ == ids_.size(); }
  // Asks for an end: final events with kCancelled follow.
  void Cancel();

 private:
  struct Queue;
  AnswerEvents(Engine* engine, std::shared_ptr<Queue> queue);

  Engine* const engine_;
  const std::shared_ptr<Queue> queue_;
  std::vector<RequestId> ids_;
  size_t finished_ = 0;
};

}  // namespace tessera
