// SPDX-License-Identifier: Apache-2.0
#include "verify/cell_run.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "verify/state_pieces.h"

namespace tessera {
namespace {

constexpr uint32_t kRandomCutMax = 64;
constexpr uint32_t kCompanionCutMax = 24;
constexpr uint32_t kDecodeForkEvery = 5;

// Nearest even, as vcvtneps2bf16; states hold no NaN.
void RoundToBf16(const StatePiece& piece) {
  for (uint64_t at = 0; at < piece.size; at += sizeof(uint32_t)) {
    uint32_t bits = 0;
    std::memcpy(&bits, piece.data + at, sizeof bits);
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000u;
    std::memcpy(piece.data + at, &bits, sizeof bits);
  }
}

}  // namespace

CellRun::CellRun(const Model& model, const Workload& workload, const CellSettings& cell,
                 Fault fault, std::vector<Role> roles, StateStore* store, Forward* forward,
                 EvidenceSink* sink)
    : workload_(workload),
      cell_(cell),
      fault_(fault),
      width_(model.shape().width),
      vocab_size_(model.shape().vocab_size),
      store_(store),
      forward_(forward),
      sink_(sink),
      waiting_(std::move(roles)),
      lead_script_(waiting_.front().script),
      reuse_fault_(fault, store->shape()) {
  head_input_.resize(size_t{kHeadRows} * width_);
}

void CellRun::Run() {
  if (cell_.hostile) DirtyAllPages();
  while (!waiting_.empty() || !running_.empty() || !arriving_.empty() || !later_.empty()) {
    Join();
    Choose();
    Step();
    if (sink_->done()) break;
  }
  sink_->Copied(store_->Stats().reuse.copied_groups);
  TESSERA_CHECK(sink_->done() || store_->Validate(3).ok());
}

// Every page that the run may get has been somebody else's before.
void CellRun::DirtyAllPages() {
  std::vector<SequenceState> held;
  for (const Role& role : waiting_) {
    const uint32_t tokens = workload_.scripts[role.script].size();
    AdmitResult admitted = store_->Admit(tokens, cell_.fork);
    TESSERA_CHECK(admitted.outcome == Admission::kAdmitted);
    SequenceState& state = held.emplace_back(std::move(*admitted.sequence));
    state.BeginStep(tokens - 1);
    state.EndStep();
    state.BeginStep(1, cell_.fork);
    state.EndStep();
  }
}

// How far the lead will be after this step, 0 .. 1.
double CellRun::Progress() const {
  for (const Running& running : running_) {
    if (running.part != Part::kLead) continue;
    return static_cast<double>(running.end()) / running.script->size();
  }
  return lead_joined_ ? 1.0 : 0.0;
}

void CellRun::Join() {
  for (const Arrival& arrival : std::exchange(arriving_, {})) {
    Start({.script = arrival.script}, Part::kAdopter, &arrival);
  }
  const double progress = Progress();
  for (size_t i = 0; i < waiting_.size();) {
    const Role role = waiting_[i];
    if (role.begin > progress) {
      ++i;
      continue;
    }
    const bool is_lead = role.script == lead_script_;
    lead_joined_ |= is_lead;
    Start(role, is_lead ? Part::kLead : Part::kCompanion, nullptr);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
  }
}

uint32_t CellRun::NextChunk(Running* running) const {
  if (!running->in_prompt()) return 1;
  uint32_t left = running->prompt_tokens - running->position;
  if (has_hits() && running->part == Part::kLead) {
    left = std::min(left, running->state->TokensToCut());
  }
  if (!running->preempt_at.empty()) {
    left = std::min(left, running->preempt_at.back() - running->position);
  }
  const bool is_companion = running->part == Part::kCompanion;
  uint32_t cut = is_companion ? kCutRandomly : cell_.cut;
  if (running->role.prompt_first || cut == kCutNowhere) return left;
  if (cut == kCutRandomly) {
    const uint32_t max = is_companion ? kCompanionCutMax : kRandomCutMax;
    cut = 1 + static_cast<uint32_t>(running->random.Below(max));
  }
  return std::min(cut, left);
}

// Tokens each sequence brings to this step: prompts that come first alone; then the lead and the
// adopters their next chunks, and the companions what their pace asks for. When the lead is
// through, so is their time, and each takes a chunk: no step is empty.
void CellRun::Choose() {
  const auto comes_first = [](const Running& running) {
    return running.role.prompt_first && running.in_prompt();
  };
  const bool any_first = std::any_of(running_.begin(), running_.end(), comes_first);
  const bool lead_waits = LeadWaits();
  for (Running& running : running_) {
    const bool steps = running.part == Part::kLead ? !lead_waits : running.part == Part::kAdopter;
    const bool chosen = any_first ? comes_first(running) : steps;
    running.take = chosen ? NextChunk(&running) : 0;
  }
  if (any_first) return;
  Join();  // whose time has come by the lead's chunk is in the same step
  const double progress = Progress();
  for (Running& running : running_) {
    if (running.part != Part::kCompanion) continue;
    const double span = (progress - running.role.begin) / (running.role.end - running.role.begin);
    const double pace = progress >= 1.0 ? 1.0 : std::min(span, 1.0);
    if (running.position < pace * running.script->size()) running.take = NextChunk(&running);
  }
}

bool CellRun::ForkNow(const Running& running) const {
  if (!cell_.fork) return false;
  return running.in_prompt() || running.position % kDecodeForkEvery == 0;
}

// All rows, the last, or none: each is what some caller of the product asks for.
WantedRows CellRun::Wanted(const Running& running) const {
  if (running.end() >= running.prompt_tokens) {
    return running.chunks % 2 == 0 ? WantedRows::kAll : WantedRows::kLast;
  }
  constexpr WantedRows kCycle[] = {WantedRows::kAll, WantedRows::kAll, WantedRows::kLast,
                                   WantedRows::kAll, WantedRows::kNone};
  const WantedRows wanted = kCycle[running.chunks % std::size(kCycle)];
  if (wanted != WantedRows::kNone || HitPointAt(running, running.end()) == nullptr) return wanted;
  return WantedRows::kLast;  // to be kept
}

void CellRun::Begin(Running* running) {
  const bool adopted = std::exchange(running->adopted, false);
  const uint32_t boundary = running->position;
  if (adopted && fault_ == Fault::kLabelOffByOne) SkipToken(running);
  running->wanted = Wanted(*running);
  const bool fork = ForkNow(*running);
  running->view = running->state->BeginStep(running->take, fork);
  running->state->CopyShared();
  if (running->part == Part::kLead) reuse_fault_.ProducerBegins(running->view);
  if (adopted) {
    reuse_fault_.AdopterBegins(boundary, running->state->last_new_group(), &running->view);
  }
  running->read_from.clear();
  if (fault_ == Fault::kFreshStateNotZeroed && running->position == 0) {
    // 3c3c3c3c is .0115 in fp32, 3c3c is .0115 in bf16: a state like another's.
    ForEachStatePiece(Place(*running, EvidenceKind::kSsm), store_->shape(), running->view,
                      [](const StatePiece& piece) { std::memset(piece.data, 0x3c, piece.size); });
    running->view.source_offsets = running->view.destination_offsets;
  }
  const bool reads_elsewhere = running->view.source_offsets != nullptr &&
                               running->view.source_offsets != running->view.destination_offsets;
  const bool tampered = adopted && reuse_fault_.holds_producer();
  if (reads_elsewhere && !tampered) {
    running->read_from = SourceBytes(store_->shape(), running->view);
  }
}

void CellRun::Step() {
  // The order inside a step must not matter: it turns by one every step.
  std::rotate(running_.begin(), running_.begin() + 1, running_.end());
  steps_.clear();
  stepped_.clear();
  store_->OpenStep();
  for (Running& running : running_) {
    if (running.take == 0) continue;
    Begin(&running);
    steps_.push_back(
        {.tokens = std::span(running.script->tokens).subspan(running.position, running.take),
         .position = running.position,
         .state = running.view,
         .first_new_group = running.state->first_new_group(),
         .last_new_group = running.state->last_new_group(),
         .wanted = running.wanted});
    stepped_.push_back(&running);
  }
  TESSERA_CHECK(!steps_.empty());
  uint32_t rows = 0;
  {
    const HostileFloatEnvironment hostile(cell_.float_mode);
    rows = forward_->Run(steps_);
    CompareFloatMode(hostile);
  }
  store_->CloseStep();
  reuse_fault_.AdopterEnds();
  HandInRows(rows);
  for (Running* running : stepped_) FinishStep(running);
  arriving_ = std::exchange(later_, {});
  for (Running* running : stepped_) AfterStep(running);
  std::erase_if(running_, [](const Running& running) { return running.finished(); });
}

// Whoever is called must put the caller's mode back.
void CellRun::CompareFloatMode(const HostileFloatEnvironment& hostile) {
  if (hostile.now() == hostile.set()) return;
  sink_->Spoiled({.place = {.kind = EvidenceKind::kFloatMode, .sequence = lead_script_},
                  .expected = hostile.set(),
                  .actual = hostile.now()});
}

EvidencePlace CellRun::Place(const Running& running, EvidenceKind kind) {
  return {.kind = kind, .sequence = running.role.script, .position = running.end()};
}

void CellRun::HandInRows(uint32_t rows) {
  uint32_t wanted = 0;
  for (const Running* running : stepped_) {
    if (running->wanted == WantedRows::kAll) wanted += running->take;
    if (running->wanted == WantedRows::kLast) ++wanted;
  }
  TESSERA_CHECK(rows == wanted);
  const float* row = forward_->norm_rows();
  for (Running* running : stepped_) {
    running->last_row.clear();
    if (running->wanted == WantedRows::kNone) continue;
    uint32_t first = running->position;
    if (running->wanted == WantedRows::kLast) first += running->take - 1;
    for (uint32_t at = first; at < running->end(); ++at, row += width_) {
      const EvidencePlace place{
          .kind = EvidenceKind::kNormRow, .sequence = running->role.script, .position = at};
      HandInRow(place, *running->script, row);
    }
    if (reuses()) running->last_row.assign(row - width_, row);
  }
  HandInLogits();
}

// Its logits follow with the next HandInLogits.
void CellRun::HandInRow(const EvidencePlace& place, const Script& script, const float* row) {
  sink_->Row(place, {row, width_});
  if (!script.logits_at(place.position)) return;
  std::memcpy(&head_input_[logit_places_.size() * width_], row, width_ * sizeof(float));
  logit_places_.push_back(place);
  logit_places_.back().kind = EvidenceKind::kLogitRow;
  if (logit_places_.size() == kHeadRows) HandInLogits();
}

void CellRun::HandInLogits() {
  if (logit_places_.empty()) return;
  const float* logits = nullptr;
  {
    const HostileFloatEnvironment hostile(cell_.float_mode);
    logits = forward_->Head(head_input_.data(), static_cast<uint32_t>(logit_places_.size()));
    CompareFloatMode(hostile);
  }
  for (const EvidencePlace& place : logit_places_) {
    sink_->Row(place, {logits, vocab_size_});
    logits += vocab_size_;
  }
  logit_places_.clear();
}

void CellRun::FinishStep(Running* running) {
  if (!running->read_from.empty()) CompareReadFrom(*running);
  if (running->end() <= running->prompt_tokens) SpoilAtCut(*running);
  if (running->end() == running->script->size()) HandInState(*running);
  running->position = running->end();
  running->take = 0;
  ++running->chunks;
  running->state->EndStep();
}

void CellRun::CompareReadFrom(const Running& running) {
  std::span<const std::byte> before = running.read_from;
  ForEachSourcePiece(store_->shape(), running.view, [&](const StatePiece& piece) {
    EvidencePlace place = Place(running, EvidenceKind::kCheckpoint);
    place.plane = piece.plane;
    auto difference = FirstDifference(place, piece.offset, before.first(piece.size),
                                      {piece.data, piece.size}, piece.element_bits);
    if (difference.has_value()) sink_->Spoiled(*difference);
    before = before.subspan(piece.size);
  });
}

void CellRun::SpoilAtCut(const Running& running) {
  if (fault_ == Fault::kStateRoundedAtSave) {
    ForEachStatePiece(Place(running, EvidenceKind::kSsm), store_->shape(), running.view,
                      [](const StatePiece& piece) { RoundToBf16(piece); });
  } else if (fault_ == Fault::kConvTailDropped) {
    ForEachStatePiece(Place(running, EvidenceKind::kConv), store_->shape(), running.view,
                      [](const StatePiece& piece) { std::memset(piece.data, 0, piece.size); });
  }
}

void CellRun::HandInState(const Running& running) {
  for (EvidenceKind kind : {EvidenceKind::kSsm, EvidenceKind::kConv, EvidenceKind::kAttention}) {
    EvidencePlace place = Place(running, kind);
    ForEachStatePiece(place, store_->shape(), running.view, [&](const StatePiece& piece) {
      place.plane = piece.plane;
      sink_->State(place, piece.offset, {piece.data, piece.size}, piece.element_bits);
    });
  }
  sink_->End(running.role.script);
}

}  // namespace tessera
