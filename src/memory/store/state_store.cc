// SPDX-License-Identifier: Apache-2.0
#include "memory/store/state_store.h"

#include <utility>

#include "memory/store/page_map_reader.h"
#include "memory/store/sequence_hold.h"
#include "memory/store/state_memory.h"

namespace tessera {
namespace {

Status CheckOptions(const StoreOptions& options) {
  if (options.reuse.checkpoint_grid < 1) {
    return InvalidArgument("checkpoint grid is 0, expected at least 1 token");
  }
  if (!options.extra_kinds.empty() && options.shape.recurrent_layers == 0) {
    return InvalidArgument("a model without recurrent layers keeps no kind of state but attention");
  }
  return Status::Ok();
}

}  // namespace

struct StateStore::Impl {
  store::StateMemory memory;

  store::Terms TermsOf(const SequenceRequest& request) const;
  // Before anything is looked up: whether it would fit if all whole blocks of its prompt were shared.
  bool MayFitWithLuck(const store::Terms& terms, const SequenceRequest& request) const;
  Match Find(LedgerLock& lock, const SequenceRequest& request) const;
};

struct SequenceState::State {
  store::SequenceHold hold;
};

StateStore::StateStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StateStore::~StateStore() = default;

Result<std::unique_ptr<StateStore>> StateStore::Create(const StoreOptions& options) {
  TESSERA_RETURN_IF_ERROR(CheckOptions(options));
  const KeptRows rows = options.reuse.enabled ? KeptRows(options.reuse.row_width) : KeptRows();
  const uint64_t pool_bytes = rows.PoolBytes(options.budget_bytes);
  TESSERA_ASSIGN_OR_RETURN(Organisation table,
                           MakeOrganisation(options.organisation, options.shape, pool_bytes));
  const store::ArenaLayout layout = store::LayOutPools(
      table, options.budget_bytes, rows.Units(options.budget_bytes) * rows.unit_bytes());
  Arena arena;
  if (!options.dry) {
    TESSERA_ASSIGN_OR_RETURN(arena, Arena::Map(layout.bytes));
  }
  std::unique_ptr<Impl> impl(
      new Impl{store::StateMemory(options, std::move(table), rows, layout, std::move(arena))});
  return std::unique_ptr<StateStore>(new StateStore(std::move(impl)));
}

const StateShape& StateStore::shape() const { return impl_->memory.shape(); }
const Organisation& StateStore::organisation() const { return impl_->memory.table(); }

uint32_t StateStore::block_tokens() const {
  return impl_->memory.attention() != nullptr ? impl_->memory.page_tokens() : kGroupTokens;
}

StateNeed StateStore::NeedFor(uint64_t max_tokens, bool may_fork) const {
  return store::NeedOf(organisation(), {.max_tokens = max_tokens,
                                        .may_fork = may_fork,
                                        .extra_image_pages = impl_->memory.extra_image_pages()});
}

uint64_t StateStore::BudgetFor(uint64_t max_tokens, bool may_fork) const {
  const store::Terms terms{.max_tokens = max_tokens,
                           .may_fork = may_fork,
                           .extra_image_pages = impl_->memory.extra_image_pages()};
  return impl_->memory.rows().BudgetFor(store::PoolBytesOf(organisation(), terms, 1));
}

Result<uint64_t> StateStore::BudgetForSequences(const StateShape& shape,
                                                const OrganisationSpec& organisation,
                                                uint32_t sequences, uint64_t max_tokens,
                                                bool may_fork) {
  TESSERA_ASSIGN_OR_RETURN(Organisation table, DescribeOrganisation(organisation, shape));
  return store::PoolBytesOf(table, {.max_tokens = max_tokens, .may_fork = may_fork}, sequences);
}

// ---- Admission.

store::Terms StateStore::Impl::TermsOf(const SequenceRequest& request) const {
  TESSERA_CHECK(request.max_tokens >= request.prompt.size());
  TESSERA_CHECK(request.reserve_tokens <= request.max_tokens);
  TESSERA_CHECK(request.reserve_tokens == 0 || request.reserve_tokens >= request.prompt.size());
  store::Terms terms;
  terms.max_tokens = request.max_tokens;
  terms.may_fork = request.may_fork;
  terms.extra_image_pages = memory.extra_image_pages();
  terms.reserve_tokens = request.reserve_tokens > 0 ? request.reserve_tokens : request.max_tokens;
  if (memory.attention() == nullptr) terms.reserve_tokens = terms.max_tokens;
  return terms;
}

bool StateStore::Impl::MayFitWithLuck(const store::Terms& terms,
                                      const SequenceRequest& request) const {
  store::Terms best = terms;
  if (memory.attention() != nullptr) {
    best.shared_tokens = request.prompt.size() / memory.page_tokens() * memory.page_tokens();
  }
  return memory.HasRoom(memory.AskOf(best), request.headroom);
}

Match StateStore::Impl::Find(LedgerLock& lock, const SequenceRequest& request) const {
  if (memory.index() != nullptr && request.lookup && !request.prompt.empty()) {
    return memory.index()->Find(lock, {.prompt = request.prompt,
                                       .salt = request.salt,
                                       .isolate_after = request.isolate_after,
                                       .from_row = request.from_row});
  }
  Match match;
  match.report =
      ComputedReport(static_cast<uint32_t>(request.prompt.size()), ComputeReason::kDisabled);
  return match;
}

AdmitResult StateStore::Admit(const SequenceRequest& request) {
  store::StateMemory& memory = impl_->memory;
  store::Terms terms = impl_->TermsOf(request);
  LedgerLock lock(memory.ledger());
  AdmitResult result;
  if (!impl_->MayFitWithLuck(terms, request)) {
    result.outcome = memory.CanPromise(terms, request.headroom, &result.reason);
    return result;
  }
  Match match = impl_->Find(lock, request);
  Lease lease;
  if (match.boundary.valid()) lease = memory.index()->Adopt(lock, match);
  terms.shared_tokens = lease.shared_tokens();
  result.outcome = memory.CanPromise(terms, request.headroom, &result.reason);
  if (result.outcome == Admission::kMustWait && lease.held() && !memory.has_sequences()) {
    // The checkpoint and the block to be copied are the pages that are missing, and nobody is there
    // whose end would help.
    memory.index()->Release(lock, &lease);
    match.boundary = NodeId();
    match.report = ComputedReport(match.report.prompt_tokens, ComputeReason::kEvicted);
    terms.shared_tokens = 0;
    result.outcome = memory.CanPromise(terms, request.headroom, &result.reason);
  }
  store::Promise promise = memory.EmptyPromise();
  if (result.outcome == Admission::kAdmitted &&
      !memory.AddPromise(lock, memory.AskOf(terms), &promise)) {
    result.outcome = Admission::kMustWait;
    result.reason = "what is cached is retained for sequences that run";
  }
  if (result.outcome != Admission::kAdmitted) {
    if (lease.held()) memory.index()->Release(lock, &lease);
    return result;
  }
  if (!request.resumed) memory.CountAdmission(lock, match);
  std::unique_ptr<SequenceState::State> state(new SequenceState::State{store::SequenceHold(
      lock, &memory, request, terms, match, std::move(lease), std::move(promise))});
  result.sequence = SequenceState(std::move(state));
  return result;
}

MatchReport StateStore::Lookup(const SequenceRequest& request) const {
  LedgerLock lock(impl_->memory.ledger());
  return impl_->Find(lock, request).report;
}

void StateStore::OpenStep() {
  LedgerLock lock(impl_->memory.ledger());
  impl_->memory.ledger().OpenStep(lock);
}

void StateStore::CloseStep() {
  LedgerLock lock(impl_->memory.ledger());
  impl_->memory.ledger().CloseStep(lock);
  impl_->memory.ledger().Resume(lock);
}

std::vector<BoundaryInfo> StateStore::Boundaries(size_t limit, size_t prefix_tokens) const {
  LedgerLock lock(impl_->memory.ledger());
  return impl_->memory.Boundaries(lock, limit, prefix_tokens);
}

uint64_t StateStore::Clear() {
  if (impl_->memory.index() == nullptr) return 0;
  LedgerLock lock(impl_->memory.ledger());
  impl_->memory.pins().ReleaseAll(lock);
  return impl_->memory.index()->Clear(lock);
}

// ---- Pins.

PinResult StateStore::Pin(const SequenceRequest& request, const PinTerms& terms) {
  store::StateMemory& memory = impl_->memory;
  PinResult result;
  if (memory.state() == nullptr) {
    result.error = InvalidArgument("pin: a model without recurrent layers has no checkpoints");
    return result;
  }
  if (memory.options().reuse.retention.kind == RetentionSpec::Kind::kStrict) {
    result.error = InvalidArgument(
        "pin: strict retention keeps nothing but what running requests "
        "made: a pin could make others wait for ever");
    return result;
  }
  LedgerLock lock(memory.ledger());
  const Match match = impl_->Find(lock, request);
  result.report = match.report;
  if (!match.boundary.valid()) return result;
  const EntryId checkpoint(EntryType::kCheckpoint,
                           memory.index()->tree().at(match.boundary).checkpoint);
  PinInfo info;
  info.tokens = match.report.reused;
  info.bytes = memory.checkpoint_bytes();
  info.expires_at = terms.expires_at;
  info.salted = memory.index()->IsSalted(match.boundary);
  if (memory.pins().Add(lock, checkpoint, terms.owner, &info)) {
    result.pin = info;
  } else {
    result.error = InvalidArgument("pin: there are 1024 pins, which is the most there can be");
  }
  return result;
}

bool StateStore::Unpin(uint64_t id, std::string_view owner) {
  LedgerLock lock(impl_->memory.ledger());
  return impl_->memory.pins().Remove(lock, id, owner);
}

void StateStore::ExpirePins(uint64_t now) {
  LedgerLock lock(impl_->memory.ledger());
  impl_->memory.pins().Expire(lock, now);
}

std::vector<PinInfo> StateStore::Pins(std::string_view owner) const {
  LedgerLock lock(impl_->memory.ledger());
  return impl_->memory.pins().List(lock, owner);
}

StoreStats StateStore::Stats() const {
  LedgerLock lock(impl_->memory.ledger());
  return impl_->memory.Stats(lock);
}

StoreCensus StateStore::Census() const {
  const PrefixIndex* index = impl_->memory.index();
  CensusPaper paper;
  if (index != nullptr) paper = index->MakeCensusPaper();  // before anybody has to wait
  LedgerLock lock(impl_->memory.ledger());
  return impl_->memory.Census(lock, &paper);
}

std::vector<PoolPageMap> StateStore::PageMap() const {
  store::PageMapReader reader(&impl_->memory);
  {
    LedgerLock lock(impl_->memory.ledger());
    reader.Read(lock);
  }
  return reader.Runs();
}

Status StateStore::Validate(int level) const {
  LedgerLock lock(impl_->memory.ledger());
  return impl_->memory.Validate(lock, level);
}

// ---- Sequences.

SequenceState::SequenceState(std::unique_ptr<State> state) : state_(std::move(state)) {}
SequenceState::SequenceState(SequenceState&& other) noexcept = default;
SequenceState& SequenceState::operator=(SequenceState&& other) noexcept = default;
SequenceState::~SequenceState() = default;

uint64_t SequenceState::position() const { return state_->hold.position(); }
uint64_t SequenceState::max_tokens() const { return state_->hold.terms().max_tokens; }
uint64_t SequenceState::reserved_tokens() const { return state_->hold.terms().reserve_tokens; }
bool SequenceState::paused() const { return state_->hold.paused(); }

uint32_t SequenceState::Grow(uint64_t tokens) {
  if (tokens <= reserved_tokens()) return 0;
  LedgerLock lock(state_->hold.memory().ledger());
  return state_->hold.Grow(lock, tokens);
}

HeldPages SequenceState::held_pages() const {
  LedgerLock lock(state_->hold.memory().ledger());
  return state_->hold.held_pages();
}

void SequenceState::Pause() {
  LedgerLock lock(state_->hold.memory().ledger());
  state_->hold.Pause(lock);
}

bool SequenceState::Resume(uint64_t tokens, double headroom) {
  LedgerLock lock(state_->hold.memory().ledger());
  return state_->hold.Resume(lock, tokens, headroom);
}

const MatchReport& SequenceState::match() const { return state_->hold.match(); }
std::span<const float> SequenceState::kept_row() const {
  LedgerLock lock(state_->hold.memory().ledger());  // others may be clearing the entry
  return state_->hold.kept_row();
}
uint32_t SequenceState::TokensToCut() const { return state_->hold.TokensToCut(); }
bool SequenceState::AddCut(uint32_t position) { return state_->hold.AddCut(position); }
uint32_t SequenceState::first_new_group() const { return state_->hold.first_new_group(); }
uint32_t SequenceState::last_new_group() const { return state_->hold.last_new_group(); }

StateView SequenceState::BeginStep(uint32_t tokens, bool fork) {
  TESSERA_CHECK(state_ != nullptr);
  LedgerLock lock(state_->hold.memory().ledger());
  return state_->hold.BeginStep(lock, tokens, fork);
}

void SequenceState::CopyShared() { state_->hold.CopyShared(); }

void SequenceState::EndStep() {
  TESSERA_CHECK(state_ != nullptr);
  LedgerLock lock(state_->hold.memory().ledger());
  state_->hold.EndStep(lock);
}

void SequenceState::Publish(std::span<const TokenId> history, std::span<const float> row,
                            bool last) {
  LedgerLock lock(state_->hold.memory().ledger());
  state_->hold.Publish(lock, history, row, last);
}

std::vector<std::byte*> SequenceState::ExtraPages(size_t kind, bool source) const {
  return state_->hold.ExtraPages(kind, source);
}

}  // namespace tessera
