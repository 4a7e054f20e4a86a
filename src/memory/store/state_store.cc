// SPDX-License-Identifier: Apache-2.0
#include "memory/store/state_store.h"

#include <utility>

#include "memory/store/sequence_hold.h"
#include "memory/store/state_memory.h"

namespace tessera {

struct StateStore::Impl {
  store::StateMemory memory;
};

struct SequenceState::State {
  store::SequenceHold hold;
};

StateStore::StateStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
StateStore::~StateStore() = default;

Result<std::unique_ptr<StateStore>> StateStore::Create(const StoreOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(Organisation table, MakeOrganisation(options.organisation, options.shape,
                                                                options.budget_bytes));
  store::ArenaLayout layout = store::LayOutPools(table, options.budget_bytes);
  TESSERA_ASSIGN_OR_RETURN(Arena arena, Arena::Map(layout.bytes));
  std::unique_ptr<Impl> impl(
      new Impl{store::StateMemory(options, std::move(table), std::move(layout), std::move(arena))});
  return std::unique_ptr<StateStore>(new StateStore(std::move(impl)));
}

const StateShape& StateStore::shape() const { return impl_->memory.shape(); }
const Organisation& StateStore::organisation() const { return impl_->memory.table(); }

StateNeed StateStore::NeedFor(uint64_t max_tokens, bool may_fork) const {
  return store::NeedOf(organisation(), {max_tokens, may_fork});
}

uint64_t StateStore::BudgetFor(uint64_t max_tokens, bool may_fork) const {
  return store::BudgetOf(organisation(), {max_tokens, may_fork}, 1);
}

Result<uint64_t> StateStore::BudgetForSequences(const StateShape& shape,
                                                const OrganisationSpec& organisation,
                                                uint32_t sequences, uint64_t max_tokens,
                                                bool may_fork) {
  TESSERA_ASSIGN_OR_RETURN(Organisation table, DescribeOrganisation(organisation, shape));
  return store::BudgetOf(table, {max_tokens, may_fork}, sequences);
}

AdmitResult StateStore::Admit(uint64_t max_tokens, bool may_fork) {
  const store::Terms terms{max_tokens, may_fork};
  AdmitResult result;
  result.outcome = impl_->memory.CanPromise(terms, &result.reason);
  if (result.outcome != Admission::kAdmitted) return result;
  std::unique_ptr<SequenceState::State> state(new SequenceState::State{
      store::SequenceHold(&impl_->memory, terms, impl_->memory.MakePromise(terms))});
  result.sequence = SequenceState(std::move(state));
  return result;
}

StoreStats StateStore::Stats() const { return impl_->memory.Stats(); }
Status StateStore::Validate(int level) const { return impl_->memory.Validate(level); }

SequenceState::SequenceState(std::unique_ptr<State> state) : state_(std::move(state)) {}
SequenceState::SequenceState(SequenceState&& other) noexcept = default;
SequenceState& SequenceState::operator=(SequenceState&& other) noexcept = default;
SequenceState::~SequenceState() = default;

uint64_t SequenceState::position() const { return state_->hold.position(); }
uint64_t SequenceState::max_tokens() const { return state_->hold.terms().max_tokens; }
uint32_t SequenceState::first_new_group() const { return state_->hold.first_new_group(); }
uint32_t SequenceState::last_new_group() const { return state_->hold.last_new_group(); }

StateView SequenceState::BeginStep(uint32_t tokens, bool fork) {
  TESSERA_CHECK(state_ != nullptr);
  return state_->hold.BeginStep(tokens, fork);
}

void SequenceState::EndStep() {
  TESSERA_CHECK(state_ != nullptr);
  state_->hold.EndStep();
}

}  // namespace tessera
