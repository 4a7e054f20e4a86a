// SPDX-License-Identifier: Apache-2.0
#include "server/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{50};  // how late a vanished client is noticed
constexpr std::string_view kDone = "data: [DONE]\n\n";

std::string SseEvent(std::string_view json) { return fmt::format("data: {}\n\n", json); }

std::optional<ApiError> Failure(const ChoiceEvent& event) {
  switch (event.finish) {
    case FinishReason::kError:
      return FromEngineStatus(event.error);
    case FinishReason::kCancelled:  // nobody but a shutdown cancels a request with a reader
      return FromEngineStatus(Status(StatusCode::kCancelled, ""));
    default:
      return std::nullopt;
  }
}

void AppendTo(std::vector<PositionLogprobs>* all, std::vector<PositionLogprobs>&& more) {
  all->insert(all->end(), std::make_move_iterator(more.begin()),
              std::make_move_iterator(more.end()));
}

// What came of a choice so far and what comes next, as one.
void Gather(ChoiceEvent&& event, ChoiceEvent* choice) {
  std::string text = std::move(choice->text) + event.text;
  std::vector<PositionLogprobs> logprobs = std::move(choice->logprobs);
  std::vector<PositionLogprobs> prompt_logprobs = std::move(choice->prompt_logprobs);
  AppendTo(&logprobs, std::move(event.logprobs));
  AppendTo(&prompt_logprobs, std::move(event.prompt_logprobs));
  *choice = std::move(event);
  choice->text = std::move(text);
  choice->logprobs = std::move(logprobs);
  choice->prompt_logprobs = std::move(prompt_logprobs);
}

}  // namespace

std::vector<ChoiceEvent> Answer::Take() {
  if (options_.cancel_all->load()) events_->Cancel();
  return events_->Take(kPoll);
}

void Answer::Count(const ChoiceEvent& event) {
  if (event.finish == FinishReason::kNone) return;
  --open_;
  if (event.choice % options_.choices_per_prompt == 0) {
    totals_.prompt_tokens += event.prompt_tokens;
    totals_.cached_tokens += event.cached_tokens;
  }
  totals_.completion_tokens += event.completion_tokens;
  totals_.predicted_intervals += event.completion_tokens > 0 ? event.completion_tokens - 1 : 0;
  totals_.prompt_ms = std::max(totals_.prompt_ms, event.timings.prompt_ms);
  totals_.predicted_ms = std::max(totals_.predicted_ms, event.timings.predicted_ms);
}

HttpReply Answer::Collect(Peer& peer) {
  std::vector<ChoiceEvent> choices(options_.choices);
  while (!events_->finished()) {
    for (ChoiceEvent& event : Take()) {
      if (std::optional<ApiError> error = Failure(event)) return HttpReply::Error(*error);
      Count(event);
      Gather(std::move(event), &choices[event.choice]);
    }
    if (peer.Gone()) {
      events_.reset();
      return HttpReply::Error(InvalidField("", "client_closed_request", "the client went away"));
    }
  }
  return HttpReply::Json(format_->Body(std::move(choices), options_.seed, totals_));
}

std::string Answer::TakeStreamEvents(bool* failed) {
  std::string out;
  for (ChoiceEvent& event : Take()) {
    if (std::optional<ApiError> error = Failure(event)) {
      *failed = true;
      return out + SseEvent(ErrorBody(*error));
    }
    Count(event);
    const StreamEnding ending{options_.seed, totals_};
    for (const std::string& chunk :
         format_->Chunks(std::move(event), open_ == 0 ? &ending : nullptr)) {
      out += SseEvent(chunk);
    }
  }
  return out;
}

void Answer::Stream(PeerStream& peer) {
  Clock::time_point last_write = Clock::now();
  bool failed = false;
  while (!events_->finished() && !failed) {
    // Everything that came together leaves in one write.
    std::string out = TakeStreamEvents(&failed);
    if (!failed && events_->finished() && options_.include_usage) {
      out += SseEvent(format_->Usage(totals_));
    }
    if (failed || events_->finished()) out += kDone;
    const Clock::time_point now = Clock::now();
    if (out.empty() && now - last_write >= options_.keep_alive) out = ": keep-alive\n\n";
    if (!out.empty()) {
      if (!peer.Write(out)) break;
      last_write = now;
    }
    if (peer.Gone()) break;
  }
  events_.reset();  // cancels what is left before the transport lets go of the connection
}

HttpReply ReplyWith(std::shared_ptr<Answer> answer, bool stream, Peer& peer) {
  if (!stream) return answer->Collect(peer);
  HttpReply reply;
  reply.content_type = "text/event-stream";
  reply.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  reply.stream = [answer = std::move(answer)](PeerStream& to) { answer->Stream(to); };
  return reply;
}

}  // namespace tessera
