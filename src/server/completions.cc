// SPDX-License-Identifier: Apache-2.0
#include "server/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "server/completion_events.h"
#include "server/completion_request.h"
#include "server/completion_response.h"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kPoll{50};  // how late a vanished client is noticed
constexpr std::string_view kDone = "data: [DONE]\n\n";

std::string SseEvent(std::string_view json) { return fmt::format("data: {}\n\n", json); }

CompletionHead MakeHead(const std::string& model_id) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const RequestSeed random = DrawSeed();
  return {fmt::format("cmpl-{:014x}{:014x}", random.bits, DrawSeed().bits),
          std::chrono::duration_cast<std::chrono::seconds>(now).count(), model_id};
}

}  // namespace

// One answer: the choices' requests, and what is known of them so far.
class Completions::Answer {
 public:
  Answer(CompletionHead head, const CompletionRequest& request, RequestSeed seed,
         std::unique_ptr<CompletionEvents> events, const Tokenizer* tokenizer,
         std::chrono::milliseconds keep_alive, const std::atomic<bool>* cancel_all)
      : head_(std::move(head)),
        seed_(seed),
        include_usage_(request.include_usage),
        with_logprobs_(request.logprobs >= 0),
        writers_(request.prompts.size(), LogprobWriter(tokenizer)),
        open_(request.prompts.size()),
        events_(std::move(events)),
        keep_alive_(keep_alive),
        cancel_all_(cancel_all) {}

  // Waits for the end. Nobody reads the reply when the peer has gone.
  HttpReply Collect(Peer& peer);
  // Writes the stream, to its end or until the peer has gone.
  void Stream(PeerStream& peer);

 private:
  std::vector<ChoiceEvent> Take();
  // What an event adds to its choice; counts it into the totals when it is the last.
  ChoicePart Part(ChoiceEvent&& event);
  static std::optional<ApiError> Failure(const ChoiceEvent& event);

  const CompletionHead head_;
  const RequestSeed seed_;
  const bool include_usage_;
  const bool with_logprobs_;
  std::vector<LogprobWriter> writers_;  // one per choice
  size_t open_;                         // choices without a finish_reason
  CompletionTotals totals_;
  std::unique_ptr<CompletionEvents> events_;
  const std::chrono::milliseconds keep_alive_;
  const std::atomic<bool>* const cancel_all_;
};

std::vector<ChoiceEvent> Completions::Answer::Take() {
  if (cancel_all_->load()) events_->Cancel();
  return events_->Take(kPoll);
}

std::optional<ApiError> Completions::Answer::Failure(const ChoiceEvent& event) {
  switch (event.finish) {
    case FinishReason::kError:
      return FromEngineStatus(event.error);
    case FinishReason::kCancelled:  // nobody but a shutdown cancels a request with a reader
      return FromEngineStatus(Status(StatusCode::kCancelled, ""));
    default:
      return std::nullopt;
  }
}

ChoicePart Completions::Answer::Part(ChoiceEvent&& event) {
  ChoicePart part;
  part.index = event.choice;
  part.text = std::move(event.text);
  if (with_logprobs_) part.logprobs = writers_[event.choice].Write(event.logprobs);
  part.finish = event.finish;
  part.receipt = event.receipt;
  part.match = event.match;
  if (event.finish != FinishReason::kNone) {
    --open_;
    totals_.prompt_tokens += event.prompt_tokens;
    totals_.cached_tokens += event.cached_tokens;
    totals_.completion_tokens += event.completion_tokens;
    totals_.predicted_intervals += event.completion_tokens > 0 ? event.completion_tokens - 1 : 0;
    totals_.prompt_ms = std::max(totals_.prompt_ms, event.timings.prompt_ms);
    totals_.predicted_ms = std::max(totals_.predicted_ms, event.timings.predicted_ms);
  }
  return part;
}

HttpReply Completions::Answer::Collect(Peer& peer) {
  std::vector<ChoicePart> choices(open_);
  for (uint32_t i = 0; i < choices.size(); ++i) {
    choices[i].index = i;
    if (with_logprobs_) choices[i].logprobs.emplace();
  }
  while (!events_->finished()) {
    for (ChoiceEvent& event : Take()) {
      if (std::optional<ApiError> error = Failure(event)) return HttpReply::Error(*error);
      ChoicePart part = Part(std::move(event));
      ChoicePart& choice = choices[part.index];
      choice.text += part.text;
      if (with_logprobs_) choice.logprobs->Append(std::move(*part.logprobs));
      choice.finish = part.finish;
      choice.receipt = part.receipt;
      choice.match = part.match;
    }
    if (peer.Gone()) {
      events_.reset();
      return HttpReply::Error(InvalidField("", "client_closed_request", "the client went away"));
    }
  }
  return HttpReply::Json(CompletionBody(head_, choices, seed_, totals_));
}

void Completions::Answer::Stream(PeerStream& peer) {
  Clock::time_point last_write = Clock::now();
  std::string out;
  bool failed = false;
  while (!events_->finished() && !failed) {
    // Everything that came together leaves in one write.
    out.clear();
    for (ChoiceEvent& event : Take()) {
      if (std::optional<ApiError> error = Failure(event)) {
        out += SseEvent(ErrorBody(*error));
        failed = true;
        break;
      }
      const ChoicePart part = Part(std::move(event));
      const StreamEnding ending{seed_, totals_};
      out += SseEvent(CompletionChunk(head_, part, include_usage_, open_ == 0 ? &ending : nullptr));
    }
    if (!failed && events_->finished() && include_usage_) {
      out += SseEvent(UsageChunk(head_, totals_));
    }
    if (failed || events_->finished()) out += kDone;
    const Clock::time_point now = Clock::now();
    if (out.empty() && now - last_write >= keep_alive_) out = ": keep-alive\n\n";
    if (!out.empty()) {
      if (!peer.Write(out)) break;
      last_write = now;
    }
    if (peer.Gone()) break;
  }
  events_.reset();  // cancels what is left before the transport lets go of the connection
}

Completions::Completions(Engine* engine, std::string model_id, std::chrono::milliseconds keep_alive)
    : engine_(engine),
      model_id_(std::move(model_id)),
      limits_(ModelLimits::Of(engine->shape(), engine->tokenizer())),
      keep_alive_(keep_alive) {}

HttpReply Completions::Handle(const std::string& body, Peer& peer) {
  ApiResult<CompletionRequest> parsed = ParseCompletionRequest(body, limits_);
  if (const ApiError* error = std::get_if<ApiError>(&parsed)) return HttpReply::Error(*error);
  const CompletionRequest& request = std::get<CompletionRequest>(parsed);
  if (!request.model.empty() && request.model != model_id_) {
    return HttpReply::Error(ModelNotFound(request.model, model_id_));
  }
  const RequestSeed seed = request.seed ? *request.seed : DrawSeed();
  ApiResult<std::vector<Request>> requests =
      MakeEngineRequests(request, engine_->tokenizer(), limits_, seed);
  if (const ApiError* error = std::get_if<ApiError>(&requests)) return HttpReply::Error(*error);

  Result<std::unique_ptr<CompletionEvents>> events =
      CompletionEvents::Submit(engine_, std::move(std::get<std::vector<Request>>(requests)));
  if (!events) return HttpReply::Error(FromEngineStatus(events.error()));
  auto answer = std::make_shared<Answer>(MakeHead(model_id_), request, seed, std::move(*events),
                                         &engine_->tokenizer(), keep_alive_, &cancel_all_);
  if (!request.stream) return answer->Collect(peer);
  HttpReply reply;
  reply.content_type = "text/event-stream";
  reply.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  reply.stream = [answer](PeerStream& stream) { answer->Stream(stream); };
  return reply;
}

}  // namespace tessera
