// SPDX-License-Identifier: Apache-2.0
#include "verify/lab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/random.h"
#include "compute/model/forward.h"
#include "memory/store/state_store.h"
#include "port/process_memory.h"
#include "verify/hostile_float_environment.h"
#include "verify/state_pieces.h"

namespace tessera {
namespace {

constexpr uint32_t kHeadRows = 8;
constexpr uint32_t kRandomCutMax = 64;
constexpr uint32_t kCompanionCutMax = 24;
constexpr uint32_t kDecodeForkEvery = 5;

struct Running {
  Role role;
  const Script* script = nullptr;
  std::optional<SequenceState> state;
  uint32_t position = 0;
  uint32_t chunks = 0;
  Random random{0};
  // This step's part.
  uint32_t take = 0;
  WantedRows wanted = WantedRows::kLast;
  StateView view;
  std::vector<std::byte> forked_from;  // image before the step, empty when it updates in place

  bool in_prompt() const { return position < script->prompt_tokens; }
  bool finished() const { return position == script->size(); }
};

bool Fits(const StateStore& store, const std::vector<Role>& roles, const Workload& workload,
          bool fork) {
  const auto& pools = store.organisation().pools;
  std::vector<uint64_t> pages(pools.size(), 0);
  uint64_t slots = 0;
  for (const Role& role : roles) {
    const StateNeed need = store.NeedFor(workload.scripts[role.script].size(), fork);
    for (size_t i = 0; i < pages.size(); ++i) pages[i] += need.pages[i];
    slots += need.slots;
  }
  const uint32_t per_page = store.organisation().slots_per_page;
  if (slots > 0 && per_page > 0) {
    pages[static_cast<size_t>(store.organisation().state_pool)] += DivideUp(slots, per_page);
  }
  for (size_t i = 0; i < pages.size(); ++i) {
    if (pages[i] > pools[i].page_count) return false;
  }
  return true;
}

// A store that holds all sequences of the roles at once. How much an organisation wastes is its own
// affair, so the budget starts at the bare bytes and doubles until everything fits.
Result<std::unique_ptr<StateStore>> MakeStore(const StateShape& shape, const CellSettings& cell,
                                              const std::vector<Role>& roles,
                                              const Workload& workload) {
  StoreOptions options;
  options.shape = shape;
  options.organisation = cell.organisation;
  options.poison = cell.hostile;
  options.shuffle_seed = cell.hostile ? (cell.seed | 1) : 0;
  uint64_t bytes = 64 * kKiB;
  for (const Role& role : roles) {
    const uint64_t groups = DivideUp(workload.scripts[role.script].size(), kGroupTokens);
    bytes += options.shape.planes() * (groups * options.shape.group_bytes() +
                                       (cell.fork ? 2 : 1) * options.shape.image_bytes());
  }
  for (;; bytes *= 2) {
    const uint64_t available = AvailableMemoryBytes();
    if (bytes > available) {
      return NoMemory(fmt::format("a cell of the matrix needs {} of state, {} is available",
                                  FormatBytes(bytes), FormatBytes(available)));
    }
    options.budget_bytes = bytes;
    auto store = StateStore::Create(options);
    if (!store.has_value()) {
      if (store.error().code() == StatusCode::kNoMemory) continue;
      return store.error();
    }
    if (Fits(**store, roles, workload, cell.fork)) return store;
  }
}

// One run of one cell.
class CellRun {
 public:
  CellRun(const Model& model, const Workload& workload, const CellSettings& cell, Fault fault,
          std::vector<Role> roles, StateStore* store, Forward* forward, EvidenceSink* sink)
      : workload_(workload),
        cell_(cell),
        fault_(fault),
        width_(model.shape().width),
        vocab_size_(model.shape().vocab_size),
        store_(store),
        forward_(forward),
        sink_(sink),
        waiting_(std::move(roles)),
        lead_script_(waiting_.front().script) {
    head_input_.resize(size_t{kHeadRows} * width_);
  }

  void Run() {
    if (cell_.hostile) DirtyAllPages();
    while (!waiting_.empty() || !running_.empty()) {
      Join();
      Choose();
      Step();
      if (sink_->done()) break;
    }
    TESSERA_CHECK(sink_->done() || store_->Validate(3).ok());
  }

 private:
  // Every page that the run may get has been somebody else's before.
  void DirtyAllPages() {
    std::vector<SequenceState> held;
    for (const Role& role : waiting_) {
      const uint32_t tokens = workload_.scripts[role.script].size();
      SequenceState& state = held.emplace_back(Admit(tokens));
      state.BeginStep(tokens - 1);
      state.EndStep();
      state.BeginStep(1, cell_.fork);
      state.EndStep();
    }
  }

  SequenceState Admit(uint32_t tokens) {
    AdmitResult admitted = store_->Admit(tokens, cell_.fork);
    TESSERA_CHECK(admitted.outcome == Admission::kAdmitted);
    return std::move(*admitted.sequence);
  }

  bool IsLead(const Running& running) const { return running.role.script == lead_script_; }

  // How far the lead will be after this step, 0 .. 1.
  double Progress() const {
    for (const Running& running : running_) {
      if (!IsLead(running)) continue;
      return static_cast<double>(running.position + running.take) / running.script->size();
    }
    return lead_joined_ ? 1.0 : 0.0;
  }

  void Join() {
    const double progress = Progress();
    for (size_t i = 0; i < waiting_.size();) {
      const Role role = waiting_[i];
      if (role.begin > progress) {
        ++i;
        continue;
      }
      Running running;
      running.role = role;
      running.script = &workload_.scripts[role.script];
      running.state = Admit(running.script->size());
      running.random = Random(CounterRandom(cell_.seed, role.script));
      lead_joined_ |= IsLead(running);
      running_.push_back(std::move(running));
      waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    }
  }

  uint32_t NextChunk(Running* running) const {
    if (!running->in_prompt()) return 1;
    const uint32_t left = running->script->prompt_tokens - running->position;
    const bool is_lead = IsLead(*running);
    uint32_t cut = is_lead ? cell_.cut : kCutRandomly;
    if (running->role.prompt_first || cut == kCutNowhere) return left;
    if (cut == kCutRandomly) {
      const uint32_t max = is_lead ? kRandomCutMax : kCompanionCutMax;
      cut = 1 + static_cast<uint32_t>(running->random.Below(max));
    }
    return std::min(cut, left);
  }

  // Tokens each sequence brings to this step: prompts that come first alone; then the lead its next
  // chunk, and its companions what their pace asks for. When the lead is through, so is their time,
  // and each takes a chunk: no step is empty.
  void Choose() {
    const auto comes_first = [](const Running& running) {
      return running.role.prompt_first && running.in_prompt();
    };
    const bool any_first = std::any_of(running_.begin(), running_.end(), comes_first);
    for (Running& running : running_) {
      const bool chosen = any_first ? comes_first(running) : IsLead(running);
      running.take = chosen ? NextChunk(&running) : 0;
    }
    if (any_first) return;
    Join();  // whose time has come by the lead's chunk is in the same step
    const double progress = Progress();
    for (Running& running : running_) {
      if (IsLead(running)) continue;
      const double span = (progress - running.role.begin) / (running.role.end - running.role.begin);
      const double pace = progress >= 1.0 ? 1.0 : std::min(span, 1.0);
      if (running.position < pace * running.script->size()) running.take = NextChunk(&running);
    }
  }

  bool ForkNow(const Running& running) const {
    if (!cell_.fork) return false;
    return running.in_prompt() || running.position % kDecodeForkEvery == 0;
  }

  // All rows, the last, or none: each is what some caller of the product asks for.
  WantedRows Wanted(const Running& running) const {
    if (running.position + running.take >= running.script->prompt_tokens) {
      return running.chunks % 2 == 0 ? WantedRows::kAll : WantedRows::kLast;
    }
    constexpr WantedRows kCycle[] = {WantedRows::kAll, WantedRows::kAll, WantedRows::kLast,
                                     WantedRows::kAll, WantedRows::kNone};
    return kCycle[running.chunks % std::size(kCycle)];
  }

  void Begin(Running* running) {
    running->wanted = Wanted(*running);
    const bool fork = ForkNow(*running);
    running->view = running->state->BeginStep(running->take, fork);
    running->forked_from.clear();
    if (fault_ == Fault::kFreshStateNotZeroed && running->position == 0) {
      // 3c3c3c3c is .0115 in fp32, 3c3c is .0115 in bf16: a state like another's.
      ForEachStatePiece(Place(*running, EvidenceKind::kSsm), store_->shape(), running->view,
                        [](const StatePiece& piece) { std::memset(piece.data, 0x3c, piece.size); });
      running->view.source_offsets = running->view.destination_offsets;
    }
    if (fork && running->view.source_offsets != nullptr) {
      ForEachSourcePiece(store_->shape(), running->view, [&](const StatePiece& piece) {
        running->forked_from.insert(running->forked_from.end(), piece.data,
                                    piece.data + piece.size);
      });
    }
  }

  void Step() {
    // The order inside a step must not matter: it turns by one every step.
    std::rotate(running_.begin(), running_.begin() + 1, running_.end());
    steps_.clear();
    stepped_.clear();
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
    HandInRows(rows);
    for (Running* running : stepped_) FinishStep(running);
    std::erase_if(running_, [](const Running& running) { return running.finished(); });
  }

  // L3.
  void CompareFloatMode(const HostileFloatEnvironment& hostile) {
    if (hostile.now() == hostile.set()) return;
    sink_->Spoiled({.place = {.kind = EvidenceKind::kFloatMode, .sequence = lead_script_},
                    .expected = hostile.set(),
                    .actual = hostile.now()});
  }

  static EvidencePlace Place(const Running& running, EvidenceKind kind) {
    return {
        .kind = kind, .sequence = running.role.script, .position = running.position + running.take};
  }

  void HandInRows(uint32_t rows) {
    uint32_t wanted = 0;
    for (const Running* running : stepped_) {
      if (running->wanted == WantedRows::kAll) wanted += running->take;
      if (running->wanted == WantedRows::kLast) ++wanted;
    }
    TESSERA_CHECK(rows == wanted);
    const float* row = forward_->norm_rows();
    logit_places_.clear();
    for (const Running* running : stepped_) {
      uint32_t first = running->position;
      if (running->wanted == WantedRows::kNone) continue;
      if (running->wanted == WantedRows::kLast) first += running->take - 1;
      for (uint32_t at = first; at < running->position + running->take; ++at, row += width_) {
        EvidencePlace place{
            .kind = EvidenceKind::kNormRow, .sequence = running->role.script, .position = at};
        sink_->Row(place, {row, width_});
        if (!running->script->logits_at(at)) continue;
        place.kind = EvidenceKind::kLogitRow;
        std::memcpy(&head_input_[logit_places_.size() * width_], row, width_ * sizeof(float));
        logit_places_.push_back(place);
        if (logit_places_.size() == kHeadRows) HandInLogits();
      }
    }
    HandInLogits();
  }

  void HandInLogits() {
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

  void FinishStep(Running* running) {
    if (!running->forked_from.empty()) CompareForkedFrom(*running);
    if (running->position + running->take <= running->script->prompt_tokens) SpoilAtCut(*running);
    if (running->position + running->take == running->script->size()) HandInState(*running);
    running->position += running->take;
    ++running->chunks;
    running->state->EndStep();
  }

  void CompareForkedFrom(const Running& running) {
    std::span<const std::byte> before = running.forked_from;
    ForEachSourcePiece(store_->shape(), running.view, [&](const StatePiece& piece) {
      EvidencePlace place = Place(running, EvidenceKind::kCheckpoint);
      place.plane = piece.plane;
      auto difference = FirstDifference(place, piece.offset, before.first(piece.size),
                                        {piece.data, piece.size}, piece.element_bits);
      if (difference.has_value()) sink_->Spoiled(*difference);
      before = before.subspan(piece.size);
    });
  }

  void SpoilAtCut(const Running& running) {
    if (fault_ == Fault::kStateRoundedAtSave) {
      ForEachStatePiece(Place(running, EvidenceKind::kSsm), store_->shape(), running.view,
                        [](const StatePiece& piece) { RoundToBf16(piece); });
    } else if (fault_ == Fault::kConvTailDropped) {
      ForEachStatePiece(Place(running, EvidenceKind::kConv), store_->shape(), running.view,
                        [](const StatePiece& piece) { std::memset(piece.data, 0, piece.size); });
    }
  }

  // Nearest even, as vcvtneps2bf16; states hold no NaN.
  static void RoundToBf16(const StatePiece& piece) {
    for (uint64_t at = 0; at < piece.size; at += sizeof(uint32_t)) {
      uint32_t bits = 0;
      std::memcpy(&bits, piece.data + at, sizeof bits);
      bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000u;
      std::memcpy(piece.data + at, &bits, sizeof bits);
    }
  }

  void HandInState(const Running& running) {
    for (EvidenceKind kind : {EvidenceKind::kSsm, EvidenceKind::kConv, EvidenceKind::kAttention}) {
      EvidencePlace place = Place(running, kind);
      ForEachStatePiece(place, store_->shape(), running.view, [&](const StatePiece& piece) {
        place.plane = piece.plane;
        sink_->State(place, piece.offset, {piece.data, piece.size}, piece.element_bits);
      });
    }
    sink_->End(running.role.script);
  }

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
  const uint32_t lead_script_;  // the first role's: the others are paced by it
  bool lead_joined_ = false;
  std::vector<SequenceStep> steps_;
  std::vector<Running*> stepped_;  // who is in the step, in the order of steps_
  std::vector<float> head_input_;
  std::vector<EvidencePlace> logit_places_;
};

}  // namespace

Lab::Lab(const Model& model, Workload workload, StateType state_type)
    : model_(model), workload_(std::move(workload)), state_type_(state_type) {}

Lab::~Lab() = default;

Result<ThreadPool*> Lab::Threads(int count) {
  std::unique_ptr<ThreadPool>& pool = threads_[count];
  if (pool == nullptr) {
    // Workers inherit the caller's float environment and must not keep it.
    const HostileFloatEnvironment hostile(&kTowardZero);
    TESSERA_ASSIGN_OR_RETURN(pool, ThreadPool::Create(count));
  }
  return pool.get();
}

Status Lab::Run(const CellSettings& cell, Fault fault, EvidenceSink* sink) {
  return RunRoles(cell, fault, RolesOf(cell.mix, workload_), sink);
}

Status Lab::RunReference(const CellSettings& reference, ReferenceRecorder* recorder) {
  for (uint32_t script = 0; script < workload_.scripts.size(); ++script) {
    TESSERA_RETURN_IF_ERROR(RunRoles(reference, Fault::kNone, {{.script = script}}, recorder));
  }
  return Status::Ok();
}

Status Lab::RunRoles(const CellSettings& cell, Fault fault, const std::vector<Role>& roles,
                     EvidenceSink* sink) {
  ForwardLimits limits{.rows = 0,
                       .sequences = static_cast<uint32_t>(roles.size()),
                       .head_rows = kHeadRows,
                       .context_length = workload_.longest()};
  for (const Role& role : roles) limits.rows += workload_.scripts[role.script].prompt_tokens;
  limits.rows += limits.sequences;
  const uint64_t activations = Forward::ActivationBytes(model_.shape(), limits, cell.threads);
  if (activations > AvailableMemoryBytes()) {
    return NoMemory(
        fmt::format("a cell of the matrix needs {} of activations", FormatBytes(activations)));
  }
  TESSERA_ASSIGN_OR_RETURN(
      auto store, MakeStore(model_.shape().state_shape(state_type_), cell, roles, workload_));
  const KernelTable broken = fault == Fault::kNone ? *cell.kernels : BrokenKernels(fault);
  TESSERA_ASSIGN_OR_RETURN(ThreadPool * threads, Threads(cell.threads));
  std::optional<Forward> forward;
  {
    const HostileFloatEnvironment hostile(cell.float_mode);
    forward.emplace(model_, state_type_, broken, *threads, limits);
  }
  CellRun(model_, workload_, cell, fault, roles, store.get(), &*forward, sink).Run();
  return Status::Ok();
}

}  // namespace tessera
