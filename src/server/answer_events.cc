// SPDX-License-Identifier: Apache-2.0
#include "server/answer_events.h"

#include <utility>

#include "base/thread_annotations.h"

namespace tessera {

struct AnswerEvents::Queue {
  Mutex mutex;
  CondVar arrived;
  bool abandoned GUARDED_BY(mutex) = false;
  std::vector<ChoiceEvent> events GUARDED_BY(mutex);

  void Push(ChoiceEvent event) EXCLUDES(mutex) {
    {
      MutexLock lock(mutex);
      if (abandoned) return;
      events.push_back(std::move(event));
    }
    arrived.notify_one();
  }
};

namespace {

ChoiceEvent Own(uint32_t choice, const RequestEvent& event) {
  ChoiceEvent own;
  own.choice = choice;
  own.text = event.text;
  own.logprobs.assign(event.logprobs.begin(), event.logprobs.end());
  own.prompt_logprobs.assign(event.prompt_logprobs.begin(), event.prompt_logprobs.end());
  own.progress = event.progress;
  own.finish = event.finish;
  own.error = event.error;
  own.prompt_tokens = event.prompt_tokens;
  own.cached_tokens = event.cached_tokens;
  own.completion_tokens = event.completion_tokens;
  own.receipt = event.receipt;
  own.timings = event.timings;
  own.match = event.match;
  return own;
}

// Most tokens of a stop string in progress say nothing yet.
bool Silent(const RequestEvent& event) {
  return event.text.empty() && event.logprobs.empty() && event.prompt_logprobs.empty() &&
         !event.progress && event.finish == FinishReason::kNone;
}

}  // namespace

AnswerEvents::AnswerEvents(Engine* engine, std::shared_ptr<Queue> queue)
    : engine_(engine), queue_(std::move(queue)) {}

Result<std::unique_ptr<AnswerEvents>> AnswerEvents::Submit(Engine* engine,
                                                           std::vector<Request> requests) {
  auto queue = std::make_shared<Queue>();
  std::unique_ptr<AnswerEvents> events(new AnswerEvents(engine, queue));
  for (uint32_t choice = 0; choice < requests.size(); ++choice) {
    Result<RequestId> id =
        engine->Submit(std::move(requests[choice]), [queue, choice](const RequestEvent& event) {
          if (!Silent(event)) queue->Push(Own(choice, event));
        });
    if (!id) return id.error();  // the destructor cancels the earlier ones
    events->ids_.push_back(*id);
  }
  return events;
}

AnswerEvents::~AnswerEvents() {
  if (finished()) return;
  {
    MutexLock lock(queue_->mutex);
    queue_->abandoned = true;
    queue_->events.clear();
  }
  Cancel();
}

std::vector<ChoiceEvent> AnswerEvents::Take(std::chrono::milliseconds wait) {
  std::vector<ChoiceEvent> taken;
  const auto deadline = std::chrono::steady_clock::now() + wait;
  {
    MutexLock lock(queue_->mutex);
    while (queue_->events.empty()) {
      if (queue_->arrived.wait_until(queue_->mutex, deadline) == std::cv_status::timeout) break;
    }
    taken.swap(queue_->events);
  }
  for (const ChoiceEvent& event : taken) {
    if (event.finish != FinishReason::kNone) ++finished_;
  }
  return taken;
}

void AnswerEvents::Cancel() {
  for (RequestId id : ids_) engine_->Cancel(id);
}

}  // namespace tessera
