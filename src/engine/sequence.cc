// SPDX-License-Identifier: Apache-2.0
#include "engine/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "port/clock.h"

namespace tessera {

Sequence::Sequence(Request request, RequestSink sink, const Tokenizer* tokenizer,
                   uint64_t submitted_ns)
    : request_(std::move(request)),
      sink_(std::move(sink)),
      tokenizer_(tokenizer),
      prompt_size_(static_cast<uint32_t>(request_.prompt.size())),
      history_(std::move(request_.prompt)),
      detokenizer_(tokenizer),
      stop_(std::move(request_.stop)),
      submitted_ns_(submitted_ns) {
  history_.reserve(max_positions());
  match_.prompt_tokens = prompt_size_;
  if (request_.min_tokens > 0) {
    ends_ = request_.stop_ids;
    if (!request_.ignore_eos) {
      const std::span<const TokenId> model_ends = tokenizer_->end_tokens();
      ends_.insert(ends_.end(), model_ends.begin(), model_ends.end());
    }
  }
  if (request_.prompt_logprobs >= 0) prompt_logprobs_.resize(prompt_size_);
  if (request_.logprobs > 0) sample_logprobs_.top.reserve(static_cast<size_t>(request_.logprobs));
}

void Sequence::Admit(SequenceState state) {
  TESSERA_CHECK(computed_ == 0 && !admitted());
  if (!resumed()) match_ = state.match();
  computed_ = adopted_ = published_ = static_cast<uint32_t>(state.position());
  TESSERA_CHECK(computed_ == state.match().reused);
  most_computed_ = std::max(most_computed_, computed_);
  state_.emplace(std::move(state));
  was_admitted_ = true;
}

void Sequence::Pin() {
  ++preemptions_;
  state_->Pause();
}

void Sequence::Recompute() {
  ++preemptions_;
  state_.reset();
  computed_ = adopted_ = published_ = 0;
}

void Sequence::BeginStep(uint64_t now_ns) {
  if (started_ns_ == 0) started_ns_ = now_ns;
  sample_.reset();
}

void Sequence::EndStep(uint32_t tokens, bool completes_row, uint64_t now_ns) {
  const bool ends_prompt = completes_row && !prompt_done();
  progress_due_ = request_.report_progress && computed_ < prompt_size_ && !prompt_done();
  step_end_ns_ = now_ns;
  computed_ += tokens;
  most_computed_ = std::max(most_computed_, computed_);
  if (ends_prompt) prompt_logprobs_due_ = request_.prompt_logprobs >= 0;
  if (!completes_row) return;
  if (request_.max_tokens == 0) {
    first_token_ns_ = last_token_ns_ = now_ns;  // when the prompt was done
    Finish(FinishReason::kLength);
    return;
  }
  if (!sample_.has_value()) {
    Finish(FinishReason::kError,
           {StatusCode::kFailed,
            fmt::format("no logit of the row at position {} is a number: the model file's weights "
                        "are damaged or overflow",
                        computed_ - 1)});
    return;
  }
  AcceptSample(now_ns);
}

bool Sequence::Ends(TokenId token) const {
  const std::vector<TokenId>& ids = request_.stop_ids;
  return (!request_.ignore_eos && tokenizer_->IsEndOfGeneration(token)) ||
         std::find(ids.begin(), ids.end(), token) != ids.end();
}

bool Sequence::Shows(TokenId token) const {
  const std::vector<TokenId>& ids = request_.shown_special;
  return std::find(ids.begin(), ids.end(), token) != ids.end();
}

void Sequence::AcceptSample(uint64_t now_ns) {
  if (completion_tokens_ == 0) first_token_ns_ = now_ns;
  last_token_ns_ = now_ns;
  ++completion_tokens_;
  const TokenId token = *sample_;
  if (Ends(token)) {
    EndText();
    Finish(FinishReason::kStop);
    return;
  }
  history_.push_back(token);
  new_token_ = token;
  std::string text = detokenizer_.Append(token, Shows(token));
  // What the matcher never sees it cannot hold: the text stays in order.
  new_text_ =
      completion_tokens_ <= request_.min_tokens ? std::move(text) : stop_.Append(std::move(text));
  if (stop_.matched()) {
    Finish(FinishReason::kStop);
  } else if (completion_tokens_ == request_.max_tokens) {
    EndText();
    Finish(stop_.matched() ? FinishReason::kStop : FinishReason::kLength);
  }
}

void Sequence::EndText() {
  new_text_ += stop_.Append(detokenizer_.Finish());
  new_text_ += stop_.Finish();
}

void Sequence::Finish(FinishReason reason, Status error) {
  TESSERA_CHECK(!finished() && reason != FinishReason::kNone);
  // What was held back for a stop string that never came is text after all.
  if (reason == FinishReason::kCancelled) EndText();
  finish_ = reason;
  error_ = std::move(error);
}

RequestTimings Sequence::Timings() const {
  RequestTimings timings;
  if (started_ns_ == 0) return timings;
  timings.queue_ms = NsToMs(started_ns_ - submitted_ns_);
  if (first_token_ns_ == 0) return timings;
  timings.prompt_ms = NsToMs(first_token_ns_ - started_ns_);
  timings.predicted_ms = NsToMs(last_token_ns_ - first_token_ns_);
  return timings;
}

PromptProgress Sequence::Progress() const {
  return {prompt_size_, match_.reused, std::min(computed_, prompt_size_),
          NsToMs(step_end_ns_ - started_ns_)};
}

FinishedRequest Sequence::Summary() const {
  FinishedRequest summary;
  summary.id = id_;
  summary.finish = finish_;
  summary.error = error_;
  summary.prompt_tokens = prompt_size_;
  summary.max_tokens = request_.max_tokens;
  summary.completion_tokens = completion_tokens_;
  summary.salted = !salt_.empty();
  summary.admitted = was_admitted_;
  summary.match = match_;
  summary.receipt = receipt_.value();
  summary.timings = Timings();
  return summary;
}

RequestProgress Sequence::SoFar() const { return {Summary(), computed_, submitted_ns_}; }

void Sequence::Emit() {
  const bool new_output = new_token_ >= 0 || !new_text_.empty() || prompt_logprobs_due_;
  if (!new_output && !progress_due_ && !finished()) return;
  RequestEvent event;
  event.text = std::move(new_text_);
  if (new_token_ >= 0) {
    event.tokens = std::span(&new_token_, 1);
    if (request_.logprobs >= 0) event.logprobs = std::span(&sample_logprobs_, 1);
  }
  if (prompt_logprobs_due_) event.prompt_logprobs = prompt_logprobs_;
  if (progress_due_) event.progress = Progress();
  if (finished()) {
    event.finish = finish_;
    event.error = error_;
    event.prompt_tokens = prompt_size_;
    event.cached_tokens = match_.reused;
    event.match = match_;
    event.completion_tokens = completion_tokens_;
    event.receipt = receipt_.value();
    event.timings = Timings();
  }
  sink_(event);
  new_token_ = -1;
  new_text_.clear();
  prompt_logprobs_due_ = false;
  progress_due_ = false;
}

}  // namespace tessera
