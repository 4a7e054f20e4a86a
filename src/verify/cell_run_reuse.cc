// SPDX-License-Identifier: Apache-2.0
//
// Who joins a cell, what of their prompts they find, and what they publish.
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "verify/cell_run.h"
#include "verify/cell_store.h"
#include "verify/state_pieces.h"

namespace tessera {
namespace {

constexpr std::string_view kOtherSalt = "another tenant";

// Descending positions between two tokens of a script, as many as there are different ones of
// `count` draws.
std::vector<uint32_t> DrawPositions(uint32_t count, uint32_t size, Random* random) {
  std::vector<uint32_t> positions;
  for (uint32_t i = 0; i < count; ++i) {
    positions.push_back(1 + static_cast<uint32_t>(random->Below(size - 1)));
  }
  std::sort(positions.rbegin(), positions.rend());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  return positions;
}

}  // namespace

// `arrival` is an adopter's.
void CellRun::Start(Role role, Part part, const Arrival* arrival) {
  Running running;
  running.role = role;
  running.part = part;
  running.script = &workload_.scripts[role.script];
  running.random = Random(CounterRandom(cell_.seed, role.script));
  if (cell_.reuse == Reuse::kPreempted || cell_.reuse == Reuse::kEvicted) {
    const uint32_t times = part == Part::kLead ? LeadPreemptions(cell_.reuse) : 1;
    running.preempt_at = DrawPositions(times, running.script->size(), &running.random);
  }
  Adoption adoption;
  if (arrival != nullptr) adoption.expected = arrival->expected;
  const bool salted = arrival != nullptr && arrival->salted && fault_ != Fault::kSaltIgnored;
  const auto prompt = std::span(running.script->tokens).first(running.script->prompt_tokens);
  Admit(&running, prompt, salted ? kOtherSalt : "", adoption);
  running_.push_back(std::move(running));
}

void CellRun::Admit(Running* running, std::span<const TokenId> prompt, std::string_view salt,
                    const Adoption& adoption) {
  SequenceRequest request{.max_tokens = running->script->size(), .may_fork = cell_.fork};
  std::vector<uint32_t> named;
  if (reuses()) {
    request.prompt = prompt;
    request.salt = salt;
    if (has_hits() && running->part == Part::kLead) {
      for (const HitPoint& point : running->script->hit_points) named.push_back(point.at);
      request.checkpoint_at = named;
    }
  }
  AdmitResult admitted = store_->Admit(request);
  TESSERA_CHECK(admitted.outcome == Admission::kAdmitted);
  running->state = std::move(*admitted.sequence);
  running->position = static_cast<uint32_t>(running->state->position());
  running->prompt_tokens =
      std::max(running->script->prompt_tokens, static_cast<uint32_t>(prompt.size()));
  running->adopted = running->position > 0;
  if (!reuses()) return;
  const MatchReport& match = running->state->match();
  Adoption found = adoption;
  found.sequence = running->role.script;
  found.prompt_tokens = static_cast<uint32_t>(prompt.size());
  found.reused = match.reused;
  found.from_row = match.from_row;
  sink_->Adopted(found);
  if (match.from_row) HandInKeptRow(*running);
}

// The head on the row that was kept must give what it gave on the row that was computed.
void CellRun::HandInKeptRow(const Running& running) {
  HandInRow({.kind = EvidenceKind::kNormRow,
             .sequence = running.role.script,
             .position = running.position - 1},
            *running.script, running.state->kept_row().data());
  HandInLogits();
}

bool CellRun::LeadWaits() const {
  size_t adopters = arriving_.size() + later_.size();
  bool anyone_adopts = false;
  for (const Running& running : running_) {
    if (running.part != Part::kAdopter) continue;
    ++adopters;
    anyone_adopts = anyone_adopts || running.adopted;
  }
  return adopters > kAdoptersBeside || (anyone_adopts && reuse_fault_.holds_producer());
}

// The lead's, when it publishes there.
const HitPoint* CellRun::HitPointAt(const Running& running, uint32_t position) const {
  if (!has_hits() || running.part != Part::kLead) return nullptr;
  for (const HitPoint& point : running.script->hit_points) {
    if (point.at == position) return &point;
  }
  return nullptr;
}

// The state is taken for that of one token more: the token at its end is never computed.
void CellRun::SkipToken(Running* running) {
  if (running->script->size() - running->position < 2) return;
  const StateShape& shape = store_->shape();
  const StateView view = running->state->BeginStep(1);
  running->state->CopyShared();
  if (shape.attention_layers > 0) {
    for (uint32_t plane = 0; plane < shape.planes(); ++plane) {
      for (uint32_t group = running->state->first_new_group();
           group < running->state->last_new_group(); ++group) {
        std::memset(view.GroupAt(plane, group), 0, shape.group_bytes());
      }
    }
  }
  if (shape.recurrent_layers > 0) {
    const std::vector<std::byte> image = SourceBytes(shape, view);
    const std::byte* from = image.data();
    ForEachDestinationPiece(shape, view, [&from](const StatePiece& piece) {
      std::memcpy(piece.data, from, piece.size);
      from += piece.size;
    });
  }
  running->state->EndStep();
  ++running->position;
  running->take = std::min(running->take, running->script->size() - running->position);
}

// ---- After a step.

void CellRun::AfterStep(Running* running) {
  if (!reuses()) return;
  const HitPoint* point = HitPointAt(*running, running->position);
  // A branch publishes where there is memory for it; the lead's script is the lead's to publish.
  const bool branch = cell_.reuse == Reuse::kHitsAtEdges && running->role.script != lead_script_;
  if (running->finished()) {
    if (running->part != Part::kAdopter || branch) Publish(running, /*last=*/true);
  } else if (point != nullptr) {
    reuse_fault_.ProducerPublishes(point->at, running->view);
    Publish(running, /*last=*/false);
    BringAdopters(*point);
  } else if (!running->preempt_at.empty() && running->position == running->preempt_at.back()) {
    Preempt(running);
  }
}

void CellRun::Publish(Running* running, bool last) {
  const auto history = std::span(running->script->tokens).first(running->position);
  running->state->Publish(history, running->last_row, last);
}

void CellRun::BringAdopters(const HitPoint& point) {
  if (point.same) arriving_.push_back({.script = lead_script_, .expected = point.at});
  if (point.branch != HitPoint::kNoBranch) {
    later_.push_back({.script = point.branch, .expected = point.at});
  }
  if (point.salted) later_.push_back({.script = lead_script_, .expected = 0, .salted = true});
}

void CellRun::Preempt(Running* running) {
  running->preempt_at.pop_back();
  Publish(running, /*last=*/true);
  const bool row_kept = !running->last_row.empty();
  const uint32_t at = running->position;
  running->state.reset();
  const bool evicted = cell_.reuse == Reuse::kEvicted;
  if (evicted) store_->Clear();
  // With its row kept, what it had is enough of a prompt.
  const bool from_row = row_kept && running->random.Below(2) == 0;
  Admit(running, std::span(running->script->tokens).first(from_row ? at : at + 1), "",
        {.admitted = evicted ? Adoption::Case::kEvicted : Adoption::Case::kResumed,
         .expected = evicted ? 0 : at});
}

}  // namespace tessera
