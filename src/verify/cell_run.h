// SPDX-License-Identifier: Apache-2.0
//
// CellRun is one run of one cell: it admits sequences to a StateStore, cuts their tokens into steps
// as the cell says, drives Forward with the addresses that the store hands out, and hands in what
// the sequences leave behind.
//
//   a step:  join who is due → choose each sequence's tokens
//            → BeginStep (forked at cuts if the cell says so) → Forward::Run
//            → hand in norm rows, logits, and the whole state of a sequence at its end
//            → EndStep → publish, preempt → whoever is finished leaves, its pages are freed
//
// Where state is reused, three kinds of sequences take part:
//
//   lead        the first role's. Under hits it publishes at its script's hit points and goes on;
//               it waits while more than kAdoptersBeside others run beside it
//   companions  the other roles'. They publish their ends
//   adopters    start from a hit point: the same script at once, the branch when the same script
//               and the lead have appended to it. One asks with another salt and must find nothing
//
// Preempted sequences publish where they are, at a seeded position, and are dropped; they are
// admitted again with what they had as the prompt, or with the next token too. Evicted ones find
// nothing left (StateStore::Clear) and compute it all again.
//
// Threads: one run at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "compute/model/forward.h"
#include "memory/store/state_store.h"
#include "verify/evidence.h"
#include "verify/faults.h"
#include "verify/hostile_float_environment.h"
#include "verify/matrix.h"
#include "verify/reuse_fault.h"
#include "verify/workload.h"

namespace tessera {

class CellRun {
 public:
  // Rows that Forward::Head must take at once.
  static constexpr uint32_t kHeadRows = 8;

  // What is passed by reference or pointer must outlive it.
  CellRun(const Model& model, const Workload& workload, const CellSettings& cell, Fault fault,
          std::vector<Role> roles, StateStore* store, Forward* forward, EvidenceSink* sink);

  // Until every sequence is through or the sink has enough.
  void Run();

 private:
  enum class Part : uint8_t { kLead, kCompanion, kAdopter };

  struct Running {
    Role role;
    Part part = Part::kCompanion;
    const Script* script = nullptr;
    std::optional<SequenceState> state;
    uint32_t prompt_tokens = 0;  // of its last admission
    uint32_t position = 0;
    uint32_t chunks = 0;
    bool adopted = false;  // the next step is the first from a boundary
    Random random{0};
    std::vector<uint32_t> preempt_at;  // descending
    // This step's part.
    uint32_t take = 0;
    WantedRows wanted = WantedRows::kLast;
    StateView view;
    std::vector<std::byte> read_from;  // the image the step must not write; empty: in place
    std::vector<float> last_row;       // of the step's last token; empty when not asked for

    bool in_prompt() const { return position < prompt_tokens; }
    bool finished() const { return position == script->size(); }
    uint32_t end() const { return position + take; }
  };

  // A sequence that starts from a hit point.
  struct Arrival {
    uint32_t script = 0;
    uint32_t expected = 0;  // tokens it must find
    bool salted = false;
  };

  bool reuses() const { return cell_.reuse != Reuse::kOff; }
  bool has_hits() const {
    return cell_.reuse == Reuse::kHitsEverywhere || cell_.reuse == Reuse::kHitsAtEdges;
  }

  // Steps (cell_run.cc).
  void DirtyAllPages();
  double Progress() const;
  void Join();
  uint32_t NextChunk(Running* running) const;
  void Choose();
  bool ForkNow(const Running& running) const;
  WantedRows Wanted(const Running& running) const;
  void Begin(Running* running);
  void Step();
  void CompareFloatMode(const HostileFloatEnvironment& hostile);
  static EvidencePlace Place(const Running& running, EvidenceKind kind);
  void HandInRows(uint32_t rows);
  void HandInRow(const EvidencePlace& place, const Script& script, const float* row);
  void HandInLogits();
  void FinishStep(Running* running);
  void CompareReadFrom(const Running& running);
  void SpoilAtCut(const Running& running);
  void HandInState(const Running& running);

  // Reuse (cell_run_reuse.cc).
  void Start(Role role, Part part, const Arrival* arrival);
  void Admit(Running* running, std::span<const TokenId> prompt, std::string_view salt,
             const Adoption& adoption);
  void HandInKeptRow(const Running& running);
  bool LeadWaits() const;
  const HitPoint* HitPointAt(const Running& running, uint32_t position) const;
  void SkipToken(Running* running);
  void AfterStep(Running* running);
  void Publish(Running* running, bool last);
  void BringAdopters(const HitPoint& point);
  void Preempt(Running* running);

  const Workload& workload_;
  const CellSettings& cell_;
  const Fault fault_;
  const uint32_t width_;
  const uint32_t vocab_size_;
  StateStore* const store_;
  Forward* const forward_;
  EvidenceSink* const sink_;

  std::vector<Role> waiting_;
  std::vector<Running> running_;
  std::vector<Arrival> arriving_;  // with the next step
  std::vector<Arrival> later_;     // with the one after it
  const uint32_t lead_script_;     // the others are paced by it
  bool lead_joined_ = false;
  std::vector<SequenceStep> steps_;
  std::vector<Running*> stepped_;  // who is in the step, in the order of steps_
  std::vector<float> head_input_;
  std::vector<EvidencePlace> logit_places_;
  ReuseFault reuse_fault_;
};

}  // namespace tessera
