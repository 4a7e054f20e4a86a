// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "engine/state_salt.h"
#include "port/clock.h"
#include "port/float_environment.h"

namespace tessera {

EngineLoop::EngineLoop(StateStore* store, Executor* executor, const LoopOptions& options)
    : store_(store), executor_(executor), options_(options), prefills_(options.checkpoint_grid) {
  items_.reserve(options.limits.max_running);
}

EngineLoop::~EngineLoop() { Stop(); }

Status EngineLoop::Start() {
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error& error) {
    return IoError(fmt::format("cannot start the engine's thread: {}", error.code().message()));
  }
  return Status::Ok();
}

void EngineLoop::Stop() {
  {
    MutexLock lock(inbox_mutex_);
    stopping_ = true;
  }
  inbox_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

RequestId EngineLoop::TakeId() {
  MutexLock lock(inbox_mutex_);
  return RequestId(next_id_++);
}

Result<RequestId> EngineLoop::Submit(std::unique_ptr<Sequence> sequence) {
  RequestId id;
  {
    MutexLock lock(inbox_mutex_);
    if (stopping_) return Status(StatusCode::kUnavailable, "the engine is shutting down");
    id = RequestId(next_id_++);
    sequence->set_id(id);
    inbox_.push_back(std::move(sequence));
  }
  inbox_changed_.notify_all();
  return id;
}

void EngineLoop::Cancel(RequestId id) {
  if (!id.valid()) return;
  {
    MutexLock lock(inbox_mutex_);
    if (stopping_) return;
    cancels_.push_back(id);
  }
  inbox_changed_.notify_all();
}

EngineStats EngineLoop::Stats() const {
  EngineStats stats;
  {
    MutexLock lock(stats_mutex_);
    stats = seen_stats_;
  }
  stats.store = store_->Stats();
  return stats;
}

void EngineLoop::CopyStats() {
  stats_.running = scheduler_.running();
  stats_.waiting = scheduler_.waiting();
  stats_.pinned = scheduler_.pinned();
  MutexLock lock(stats_mutex_);
  seen_stats_ = stats_;
}

void EngineLoop::Run() {
  ScopedFloatEnvironment environment;
  while (TakeCommands()) {
    AddSubmitted();
    CancelAsked();
    RunStep();
  }
  AddSubmitted();
  CancelRest();
}

bool EngineLoop::TakeCommands() {
  MutexLock lock(inbox_mutex_);
  while (idle_ && inbox_.empty() && cancels_.empty() && !stopping_) {
    inbox_changed_.wait(inbox_mutex_);
  }
  // Swapped, so that both sides keep their capacity.
  taken_.swap(inbox_);
  taken_cancels_.swap(cancels_);
  return !stopping_;
}

void EngineLoop::AddSubmitted() {
  for (std::unique_ptr<Sequence>& sequence : taken_) {
    const uint64_t key = sequence->id().index();
    const Request& request = sequence->request();
    sequence->set_salt(StateSalt(options_.isolate, {.isolation_key = request.isolation_key,
                                                    .cache_salt = request.cache_salt,
                                                    .id = sequence->id()}));
    scheduler_.Add(SequenceId(key), sequence->prompt_size(), request.priority);
    board_.Show(sequence->SoFar());
    sequences_.emplace(key, std::move(sequence));
  }
  taken_.clear();
  CopyStats();
}

void EngineLoop::CancelAsked() {
  for (RequestId id : taken_cancels_) {
    auto found = sequences_.find(id.index());
    if (found == sequences_.end()) continue;  // finished already
    Sequence* sequence = found->second.get();
    sequence->Finish(FinishReason::kCancelled);
    // What it has computed is as good as if it had gone on.
    if (Publishes(*sequence) && sequence->has_news()) Publish(*sequence, {}, /*last=*/true);
    Retire(*sequence);
    CopyStats();
    EmitAndForget(sequence);
  }
  taken_cancels_.clear();
}

void EngineLoop::CancelRest() {
  while (!sequences_.empty()) {
    Sequence* sequence = sequences_.begin()->second.get();
    sequence->Finish(FinishReason::kCancelled);
    Retire(*sequence);
    CopyStats();
    EmitAndForget(sequence);
  }
}

void EngineLoop::RunStep() {
  PlanStep();
  FailRefused();
  if (!items_.empty()) executor_->Compute();
  CloseStep();
}

// Nobody else finds what an isolated request leaves beyond what it shares.
bool EngineLoop::Publishes(const Sequence& sequence) const {
  if (!options_.reuse || !sequence.publishes()) return false;
  if (options_.isolate != IsolateKind::kRequest) return true;
  return sequence.public_tokens() > 0 && sequence.computed() <= sequence.public_tokens();
}

void EngineLoop::Publish(Sequence& sequence, std::span<const float> row, bool last) {
  sequence.state().Publish(sequence.history(), row, last);
  sequence.NotePublished();
}

// Of all its tokens: for one that was preempted, what it sampled is as known as its prompt.
SequenceRequest EngineLoop::StateRequestOf(const Sequence& sequence) const {
  SequenceRequest request;
  request.max_tokens = sequence.max_positions();
  request.tag = sequence.id().index();
  request.prompt = sequence.history();
  request.reserve_tokens =
      std::min<uint64_t>(request.max_tokens, request.prompt.size() + store_->block_tokens());
  request.salt = sequence.salt();
  request.isolate_after = sequence.request().isolate_after;
  request.checkpoint_at = sequence.request().checkpoint_at;
  request.message_ends = sequence.request().message_ends;
  request.lookup = sequence.may_reuse();
  request.plan_tokens = sequence.prompt_size();
  request.resumed = sequence.resumed();
  return request;
}

std::optional<Join> EngineLoop::FindJoin(const Sequence& sequence) const {
  JoinQuery query;
  query.id = SequenceId(sequence.id().index());
  query.prompt = sequence.prompt();
  query.salt = sequence.salt();
  query.public_tokens = sequence.public_tokens();
  query.usable_limit = sequence.prompt_size() - (options_.keeps_rows ? 0 : 1);
  if (!prefills_.Best(query)) return std::nullopt;
  // Worth a look at what needs no waiting.
  query.already_reusable = store_->Lookup(StateRequestOf(sequence)).reused;
  return prefills_.Best(query);
}

bool EngineLoop::WaitsForPrefix(Sequence& sequence) {
  std::optional<Join>& join = sequence.join();
  if (join && prefills_.WillReach(join->producer, join->position)) return true;
  join.reset();
  if (!Publishes(sequence) || !sequence.may_reuse() || sequence.resumed()) return false;
  join = FindJoin(sequence);
  if (!join) return false;
  if (!At(join->producer).state().AddCut(join->position)) {
    join.reset();  // nothing would be there when the producer has passed
    return false;
  }
  ++stats_.joins;
  return true;
}

void EngineLoop::OfferPrefill(const Sequence& sequence) {
  if (!Publishes(sequence) || sequence.computed() >= sequence.prompt_size()) return;
  prefills_.Add(SequenceId(sequence.id().index()), sequence.prompt(), sequence.salt(),
                sequence.public_tokens(), sequence.computed());
}

AdmitAnswer EngineLoop::ResumePinned(Sequence& sequence, double headroom) {
  if (!sequence.state().Resume(sequence.computed() + 1, headroom)) {
    ++stats_.admissions_refused;
    return {.outcome = AdmitAnswer::kMustWait};
  }
  ++stats_.resumptions;
  OfferPrefill(sequence);
  return {.outcome = AdmitAnswer::kAdmitted};
}

AdmitAnswer EngineLoop::Admit(SequenceId id, const AdmitTerms& terms) {
  Sequence& sequence = At(id);
  const double headroom = terms.waives_headroom ? 0 : options_.headroom;
  if (terms.pinned) return ResumePinned(sequence, headroom);
  if (WaitsForPrefix(sequence)) return {.outcome = AdmitAnswer::kWaitsForPrefix};
  SequenceRequest request = StateRequestOf(sequence);
  request.headroom = headroom;
  AdmitResult result = store_->Admit(request);
  switch (result.outcome) {
    case Admission::kAdmitted:
      if (sequence.resumed()) ++stats_.resumptions;
      sequence.Admit(std::move(*result.sequence));
      OfferPrefill(sequence);
      return {.outcome = AdmitAnswer::kAdmitted,
              .cached_tokens = sequence.computed(),
              .from_row = sequence.state().match().from_row};
    case Admission::kMustWait:
      ++stats_.admissions_refused;
      return {.outcome = AdmitAnswer::kMustWait};
    case Admission::kNeverFits:
      break;
  }
  sequence.Finish(FinishReason::kError, NoMemory(std::move(result.reason)));
  refused_.push_back(&sequence);
  return {.outcome = AdmitAnswer::kNeverFits};
}

uint32_t EngineLoop::Grow(SequenceId id) {
  Sequence& sequence = At(id);
  const uint32_t lacking = sequence.state().Grow(uint64_t{sequence.computed()} + 1);
  if (lacking > 0) ++stats_.growths_refused;
  return lacking;
}

PreemptCost EngineLoop::CostOf(SequenceId id) {
  Sequence& sequence = At(id);
  const HeldPages pages = sequence.state().held_pages();
  return {.unused_pages = pages.unused,
          .all_pages = pages.all,
          .lost_tokens = sequence.unpublished_tokens()};
}

uint32_t EngineLoop::Preempt(SequenceId id, Preemption way) {
  Sequence& sequence = At(id);
  prefills_.Remove(id);
  if (way == Preemption::kPin) {
    ++stats_.preemptions_pinned;
    sequence.Pin();
    return 0;
  }
  if (sequence.pinned()) {
    ++stats_.pins_given_up;
  } else {
    ++stats_.preemptions_recomputed;
  }
  // It may find its own state again, if nobody needs the memory more.
  if (options_.reuse && sequence.publishes() && sequence.has_news()) {
    Publish(sequence, {}, /*last=*/true);
  }
  if (way == Preemption::kRecomputeAlone) {
    // Submit saw that it fits when nothing else is kept.
    TESSERA_CHECK(sequence.publishes());
    sequence.StopPublishing();
  }
  sequence.Recompute();
  return static_cast<uint32_t>(sequence.history().size());
}

uint32_t EngineLoop::TokensToCut(SequenceId id) {
  Sequence& sequence = At(id);
  return Publishes(sequence) ? sequence.state().TokensToCut() : SequenceState::kNoCut;
}

void EngineLoop::PlanStep() {
  const uint64_t began_ns = NowNs();
  store_->ExpirePins(began_ns);
  const Plan plan = Step(scheduler_, options_.limits, *this);
  TESSERA_CHECK(!plan.items.empty() || scheduler_.empty());  // P3
  const uint64_t now_ns = NowNs();
  ++stats_.plans;
  stats_.plan_ns += now_ns - began_ns;
  stats_.plan_ns_max = std::max(stats_.plan_ns_max, now_ns - began_ns);
  items_.clear();
  for (const PlanItem& item : plan.items) {
    Sequence& sequence = At(item.id);
    sequence.BeginStep(now_ns);
    board_.Show(sequence.SoFar());
    const bool at_boundary = item.tokens > 0 && TokensToCut(item.id) == item.tokens;
    items_.push_back({&sequence, item.tokens, item.completes_row, at_boundary});
  }
  store_->OpenStep();
  executor_->Begin(items_);
  CopyStats();
}

void EngineLoop::FailRefused() {
  for (Sequence* sequence : refused_) EmitAndForget(sequence);
  refused_.clear();
}

void EngineLoop::CloseStep() {
  executor_->End();
  store_->CloseStep();
  scheduler_.EndStep();
  const uint64_t now_ns = NowNs();
  uint32_t step_tokens = 0;
  for (const ExecutorItem& item : items_) step_tokens += item.tokens;
  if (step_tokens > 0) {
    ++stats_.steps;
    meter_.CountStep(step_tokens);
  }
  for (size_t index = 0; index < items_.size(); ++index) CloseItem(index, now_ns);
  idle_ = scheduler_.empty();
  CopyStats();
  for (const ExecutorItem& item : items_) EmitAndForget(item.sequence);
  items_.clear();
}

// Before its step ends: the tokens it computed for the first time, and again.
void EngineLoop::CountItem(const ExecutorItem& item) {
  const Sequence& sequence = *item.sequence;
  const uint32_t prompt_left =
      sequence.prompt_size() - std::min(sequence.computed(), sequence.prompt_size());
  const uint32_t of_prompt = std::min(prompt_left, item.tokens);
  const uint32_t again = sequence.AgainComputed(item.tokens);
  stats_.recomputed_tokens += again;
  stats_.prompt_tokens += of_prompt - std::min(of_prompt, again);
}

void EngineLoop::CloseItem(size_t index, uint64_t now_ns) {
  const ExecutorItem& item = items_[index];
  Sequence& sequence = *item.sequence;
  CountItem(item);
  const uint32_t sampled_before = sequence.completion_tokens();
  const uint64_t last_token_ns = sequence.last_token_ns();  // or of the prompt's end
  sequence.EndStep(item.tokens, item.completes_row, now_ns);
  if (last_token_ns == 0 && sequence.last_token_ns() != 0) {
    meter_.CountPrompt(sequence.prompt_size(), sequence.reused());
  }
  if (sequence.completion_tokens() > sampled_before) CountToken(sequence, last_token_ns);
  stats_.completion_tokens += sequence.completion_tokens() - sampled_before;
  if (Publishes(sequence) && !sequence.failed() && (item.at_boundary || sequence.finished()) &&
      sequence.has_news()) {
    Publish(sequence, executor_->LastRow(index), sequence.finished());
  }
  prefills_.Advance(SequenceId(sequence.id().index()), sequence.computed());
  if (sequence.finished()) Retire(sequence);
}

void EngineLoop::Retire(Sequence& sequence) {
  const SequenceId id(sequence.id().index());
  scheduler_.Remove(id);
  prefills_.Remove(id);
  sequence.ReleaseState();
  if (sequence.cancelled()) {
    ++stats_.requests_cancelled;
  } else {
    ++stats_.requests_finished;
  }
}

void EngineLoop::CountToken(const Sequence& sequence, uint64_t last_token_ns) {
  if (sequence.completion_tokens() == 1) {
    meter_.CountFirstToken(sequence.last_token_ns() - sequence.submitted_ns());
  } else {
    meter_.CountToken(sequence.last_token_ns() - last_token_ns);
  }
}

void EngineLoop::EmitAndForget(Sequence* sequence) {
  if (sequence->finished()) {
    const RequestProgress request = sequence->SoFar();
    meter_.CountFinished(request.summary);
    board_.End(request);
    if (options_.on_finished) options_.on_finished(request.summary);
  }
  sequence->Emit();
  if (sequence->finished()) sequences_.erase(sequence->id().index());
}

}  // namespace tessera
