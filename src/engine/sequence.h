// SPDX-License-Identifier: Apache-2.0
//
// Sequence is one request from Submit to its final event: its tokens, its state memory once it is
// admitted, its text so far, and what the next event will carry.
//
//   Waiting --Admit--> Running --(EndStep)*--> Running --Finish--> Finished
//      ^                 |  ^
//      |                 |  +---- Resume ----+
//      +--- Recompute ---+                   |
//                        +----- Pin ------> Pinned --Recompute--> Waiting
//
// Recompute drops the state and keeps what was sampled: the sequence waits like a new one whose
// prompt is all its tokens, and goes on after the last. Finish ends it in any state.
//
// In a step the executor writes the slots of the row results (sample, logprobs, receipt); after it
// the loop calls EndStep, which turns them into text and decides whether the sequence has finished.
//
// Q1  computed() tokens have state, those reused from others included; the history is the prompt
//     and every sampled token that goes on.
// Q2  Finish is called once; the event after it is the last one. No token, text or row of the prompt
//     is in two events.
// Q3  Buffers for the whole request are reserved at construction: a decode step allocates only the
//     text and alternatives its event carries.
//
// Threads: constructed anywhere, then the loop's; the executor's workers write disjoint slots.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compute/tokenizer/tokenizer.h"
#include "engine/engine.h"
#include "engine/inflight_prefills.h"
#include "engine/logit_adjuster.h"
#include "engine/receipt.h"
#include "engine/stop_matcher.h"
#include "memory/store/state_store.h"

namespace tessera {

class Sequence {
 public:
  Sequence(Request request, RequestSink sink, const Tokenizer* tokenizer, uint64_t submitted_ns);

  // Given when it is queued.
  void set_id(RequestId id) { id_ = id; }
  void set_salt(std::string salt) { salt_ = std::move(salt); }
  RequestId id() const { return id_; }
  const std::string& salt() const { return salt_; }
  // Of its tokens, how many all may find.
  uint32_t public_tokens() const { return PublicTokens(salt_, request_.isolate_after); }
  const Request& request() const { return request_; }
  uint32_t prompt_size() const { return prompt_size_; }
  uint64_t max_positions() const { return uint64_t{prompt_size_} + request_.max_tokens; }
  uint32_t computed() const { return computed_; }
  bool finished() const { return finish_ != FinishReason::kNone; }
  bool failed() const { return finish_ == FinishReason::kError; }
  bool cancelled() const { return finish_ == FinishReason::kCancelled; }
  uint32_t completion_tokens() const { return completion_tokens_; }
  uint64_t submitted_ns() const { return submitted_ns_; }
  uint64_t last_token_ns() const { return last_token_ns_; }  // 0: the prompt is not done
  uint32_t reused() const { return match_.reused; }

  // May start from what others have computed: not while it is to tell of every row of its prompt.
  bool may_reuse() const {
    return request_.reuse && (request_.prompt_logprobs < 0 || prompt_done());
  }
  // The row after the prompt has been there: what it predicts is known.
  bool prompt_done() const { return completion_tokens_ > 0; }
  // The running prefill it waits for.
  std::optional<Join>& join() { return join_; }

  // Takes over what the state begins with.
  void Admit(SequenceState state);
  bool admitted() const { return state_.has_value(); }
  SequenceState& state() { return *state_; }
  bool pinned() const { return admitted() && state_->paused(); }
  // Was admitted before.
  bool resumed() const { return preemptions_ > 0; }
  // Has computed something that others may reuse.
  bool has_news() const { return admitted() && computed_ > adopted_; }
  // Its state was published here, or found.
  void NotePublished() { published_ = computed_; }
  // Tokens that it would compute again, were what it published all there is.
  uint32_t unpublished_tokens() const { return computed_ - published_; }
  void Pin();
  void Recompute();
  // It leaves nothing for others, nor for itself.
  void StopPublishing() { publishes_ = false; }
  bool publishes() const { return publishes_; }
  // Of the next `tokens`, those computed before.
  uint32_t AgainComputed(uint32_t tokens) const {
    return std::min(tokens, most_computed_ - std::min(most_computed_, computed_));
  }
  std::span<const TokenId> prompt() const { return std::span(history_).first(prompt_size_); }
  std::span<const TokenId> history() const { return history_; }
  void ReleaseState() { state_.reset(); }

  // For the executor.
  std::span<const TokenId> Tokens(uint32_t first, uint32_t count) const {
    return std::span(history_).subspan(first, count);
  }
  bool wants_prompt_rows() const {
    return request_.prompt_logprobs >= 0 && computed_ < prompt_size_ && !prompt_done();
  }
  bool samples_at(bool completes_row) const { return completes_row && request_.max_tokens > 0; }
  // The token that follows prompt position `position` in the prompt, or -1.
  TokenId GivenAfter(uint32_t position) const {
    return position + 1 < prompt_size_ ? history_[position + 1] : -1;
  }
  // For the next sample.
  SampleContext sample_context() const {
    const bool must_go_on = completion_tokens_ < request_.min_tokens;
    return {prompt(), std::span(history_).subspan(prompt_size_),
            must_go_on ? std::span<const TokenId>(ends_) : std::span<const TokenId>()};
  }
  std::optional<TokenId>& sample() { return sample_; }
  PositionLogprobs& sample_logprobs() { return sample_logprobs_; }
  PositionLogprobs& prompt_logprobs(uint32_t position) { return prompt_logprobs_[position]; }
  Receipt& receipt() { return receipt_; }

  void BeginStep(uint64_t now_ns);
  // `tokens` more are computed; `completes_row` as planned.
  void EndStep(uint32_t tokens, bool completes_row, uint64_t now_ns);
  void Finish(FinishReason reason, Status error = Status::Ok());
  // Calls the sink when there is something new or the sequence has finished.
  void Emit();
  // So far, or all of it when it has finished.
  FinishedRequest Summary() const;
  RequestProgress SoFar() const;

 private:
  void AcceptSample(uint64_t now_ns);
  bool Ends(TokenId token) const;
  bool Shows(TokenId token) const;
  void EndText();
  RequestTimings Timings() const;
  PromptProgress Progress() const;

  RequestId id_;
  bool was_admitted_ = false;
  std::string salt_;
  Request request_;
  RequestSink sink_;
  const Tokenizer* tokenizer_;
  const uint32_t prompt_size_;
  std::vector<TokenId> history_;
  uint32_t computed_ = 0;
  uint32_t most_computed_ = 0;  // ever
  uint32_t adopted_ = 0;        // of computed_, when it was last admitted
  uint32_t published_ = 0;      // computed_ when its state was last published, or adopted
  uint32_t preemptions_ = 0;
  bool publishes_ = true;
  std::optional<SequenceState> state_;
  std::optional<Join> join_;
  MatchReport match_;  // of the first admission

  StreamingDetokenizer detokenizer_;
  StopMatcher stop_;
  std::vector<TokenId> ends_;  // tokens that end the text; only when some are forbidden for a time
  Receipt receipt_;
  uint32_t completion_tokens_ = 0;
  FinishReason finish_ = FinishReason::kNone;
  Status error_;

  std::optional<TokenId> sample_;
  PositionLogprobs sample_logprobs_;
  std::vector<PositionLogprobs> prompt_logprobs_;

  // The next event.
  TokenId new_token_ = -1;
  std::string new_text_;
  bool prompt_logprobs_due_ = false;
  bool progress_due_ = false;

  uint64_t submitted_ns_ = 0;
  uint64_t started_ns_ = 0;  // 0: not yet
  uint64_t first_token_ns_ = 0;
  uint64_t last_token_ns_ = 0;
  uint64_t step_end_ns_ = 0;
};

}  // namespace tessera
