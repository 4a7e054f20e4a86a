// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "base/bytes.h"
#include "compute/gguf/gguf_file.h"
#include "compute/kernels/kernel_table.h"
#include "compute/model/model.h"
#include "engine/engine_loop.h"
#include "engine/executor.h"
#include "engine/request_check.h"
#include "engine/state_budget.h"
#include "engine/state_salt.h"
#include "port/clock.h"
#include "port/cpu.h"
#include "port/process_memory.h"
#include "port/thread_pool.h"

namespace tessera {
namespace {

constexpr int kMaxThreads = ThreadPool::kThreadsMax;
// Rows of logits held at a time: 16 × 130,048 × 4 B = 8 MB on Falcon-H1-7B.
constexpr uint32_t kHeadRows = 16;

Status CheckOptions(const EngineOptions& options) {
  if (options.max_running < 1) return InvalidArgument("max-running is 0, expected at least 1");
  if (options.chunk_tokens < options.max_running) {
    return InvalidArgument(fmt::format(
        "chunk-tokens is {}, expected at least max-running, {}: every running sequence decodes one "
        "token per step",
        options.chunk_tokens, options.max_running));
  }
  if (options.checkpoint_grid < 1) {
    return InvalidArgument("checkpoint-grid is 0, expected at least 1");
  }
  if (!(options.headroom >= 0 && options.headroom < 1)) {
    return InvalidArgument(
        fmt::format("headroom is {}, expected at least 0 and less than 1", options.headroom));
  }
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return InvalidArgument(
        fmt::format("threads is {}, expected 1 to {} (0: all CPUs)", options.threads, kMaxThreads));
  }
  return Status::Ok();
}

uint64_t TensorBytes(const GgufFile& file) {
  uint64_t bytes = 0;
  for (const GgufTensor& tensor : file.tensors()) bytes += tensor.size_bytes;
  return bytes;
}

// Tables that grow with the budget and the vocabulary: the store's ledger and index, per token of
// vocabulary its text, rank and hash entries, per running sequence its history and the offsets of
// its groups.
uint64_t MetadataBytes(const StateStore& store, const EngineOptions& options, uint32_t vocab_size,
                       uint32_t longest) {
  const uint64_t per_sequence =
      uint64_t{longest} * sizeof(TokenId) +
      DivideUp(longest, kGroupTokens) * (sizeof(uint64_t) + sizeof(PageId));
  return store.Stats().metadata_bytes + uint64_t{vocab_size} * 256 +
         options.max_running * per_sequence;
}

}  // namespace

std::string_view IsolateName(IsolateKind kind) {
  switch (kind) {
    case IsolateKind::kOff:
      return "off";
    case IsolateKind::kKey:
      return "key";
    case IsolateKind::kRequest:
      break;
  }
  return "request";
}

std::string_view RefusalName(RefusalReason reason) {
  switch (reason) {
    case RefusalReason::kInvalid:
      return "invalid";
    case RefusalReason::kContext:
      return "context";
    case RefusalReason::kBudget:
      return "budget";
    case RefusalReason::kShuttingDown:
      break;
  }
  return "shutting_down";
}

struct Engine::Impl {
  EngineOptions options;
  EngineMemory memory;
  double load_ms = 0;
  KernelChoice kernels;
  ModelShape shape;
  uint32_t longest = 0;  // tokens of one sequence that the budget and the model allow
  std::unique_ptr<Tokenizer> tokenizer;
  std::string chat_template;
  std::unique_ptr<ThreadPool> threads;
  std::unique_ptr<Model> model;
  std::unique_ptr<StateStore> store;
  std::unique_ptr<Executor> executor;
  std::array<std::atomic<uint64_t>, kRefusalReasons> refused{};
  std::unique_ptr<EngineLoop> loop;  // last: stops before what it uses goes

  Status Configure();
  // Metadata alone: shape, tokenizer, budget. Nothing large is read or mapped yet.
  Status ReadMetadata(const GgufFile& file);
  Status LoadWeights(const GgufFile& file);
  Status StartLoop();
  ForwardLimits forward_limits() const;
  // Whether it can be run at all; else why not.
  Status CheckFits(const Request& request, RefusalReason* reason) const;
  // Whose pins a client with this key has to do with.
  std::string_view PinOwner(std::string_view isolation_key) const {
    return options.isolate == IsolateKind::kKey ? isolation_key : std::string_view();
  }
  // None when reuse is off.
  KeptRows kept_rows() const { return options.reuse ? KeptRows(shape.width) : KeptRows(); }
};

Status Engine::Impl::Configure() {
  TESSERA_RETURN_IF_ERROR(CheckOptions(options));
  if (options.threads == 0) options.threads = std::min(UsableCpuCount(), kMaxThreads);
  kernels = ChooseKernels(options.isa.c_str());
  if (kernels.table == nullptr) {
    return InvalidArgument(fmt::format("TESSERA_ISA={}: {}", options.isa, kernels.reason));
  }
  return Status::Ok();
}

ForwardLimits Engine::Impl::forward_limits() const {
  ForwardLimits limits;
  limits.rows = options.chunk_tokens;
  limits.sequences = options.max_running;
  limits.head_rows = std::min(kHeadRows, options.chunk_tokens);
  limits.context_length = longest;
  return limits;
}

Status Engine::Impl::ReadMetadata(const GgufFile& file) {
  TESSERA_ASSIGN_OR_RETURN(shape, ReadModelShape(file));
  TESSERA_ASSIGN_OR_RETURN(Tokenizer loaded, Tokenizer::FromGguf(file));
  tokenizer = std::make_unique<Tokenizer>(std::move(loaded));
  TESSERA_ASSIGN_OR_RETURN(const std::string_view chat,
                           file.GetString("tokenizer.chat_template", ""));
  chat_template = chat;

  const StateShape state_shape = shape.state_shape(options.state_type);
  const uint64_t available = AvailableMemoryBytes();
  // No sequence outgrows what all memory could hold: that bounds the activations of a model whose
  // file allows a very long context.
  const uint64_t at_most = options.budget_bytes > 0 ? options.budget_bytes : available;
  TESSERA_ASSIGN_OR_RETURN(
      longest, LongestSequence(state_shape, options.organisation, at_most, shape.context_length));
  longest = std::max(longest, std::min(kGroupTokens, shape.context_length));

  BudgetRequest request;
  request.organisation = options.organisation;
  request.shape = state_shape;
  request.rows = kept_rows();
  request.asked_bytes = options.budget_bytes;
  request.available_bytes = available;
  request.fixed_bytes =
      TensorBytes(file) + Executor::ActivationBytes(shape, forward_limits(), options.threads);
  request.max_running = options.max_running;
  request.context_length = shape.context_length;
  TESSERA_ASSIGN_OR_RETURN(Budget budget, ChooseBudget(request));
  options.budget_bytes = memory.budget_bytes = budget.bytes;
  memory.budget_rule = std::move(budget.rule);
  TESSERA_ASSIGN_OR_RETURN(
      longest, LongestSequence(state_shape, options.organisation,
                               kept_rows().PoolBytes(budget.bytes), shape.context_length));
  return Status::Ok();
}

Status Engine::Impl::LoadWeights(const GgufFile& file) {
  const uint64_t begin = NowNs();
  TESSERA_ASSIGN_OR_RETURN(threads, ThreadPool::Create(options.threads));
  TESSERA_ASSIGN_OR_RETURN(model, Model::Load(file, *threads));
  load_ms = NsToMs(NowNs() - begin);
  memory.weight_bytes = model->weight_bytes();
  return Status::Ok();
}

Status Engine::Impl::StartLoop() {
  StoreOptions store_options;
  store_options.shape = shape.state_shape(options.state_type);
  store_options.organisation = options.organisation;
  store_options.budget_bytes = options.budget_bytes;
  store_options.reuse.enabled = options.reuse;
  store_options.reuse.contract_id = model->contract_id(options.state_type);
  store_options.reuse.row_width = shape.width;
  store_options.reuse.checkpoint_grid = options.checkpoint_grid;
  store_options.reuse.placement = options.placement;
  store_options.reuse.eviction = options.eviction;
  store_options.reuse.retention = options.retention;
  store_options.poison = options.poison;
  store_options.shuffle_seed = options.shuffle_seed;
  TESSERA_ASSIGN_OR_RETURN(store, StateStore::Create(store_options));

  const ForwardLimits limits = forward_limits();
  TESSERA_ASSIGN_OR_RETURN(
      executor, Executor::Create(*model, options.state_type, *kernels.table, *threads, limits));
  memory.arena_bytes = store->Stats().arena_bytes;
  memory.activation_bytes = executor->activation_bytes();
  memory.metadata_bytes = MetadataBytes(*store, options, shape.vocab_size, longest);
  LoopOptions loop_options;
  loop_options.limits.max_running = options.max_running;
  loop_options.limits.chunk_tokens = options.chunk_tokens;
  loop_options.headroom = options.headroom;
  loop_options.reuse = options.reuse;
  loop_options.keeps_rows = kept_rows().Units(options.budget_bytes) > 0;
  loop_options.checkpoint_grid = options.checkpoint_grid;
  loop_options.isolate = options.isolate;
  loop_options.on_finished = options.on_finished;
  loop = std::make_unique<EngineLoop>(store.get(), executor.get(), loop_options);
  return loop->Start();
}

Result<std::unique_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  TESSERA_RETURN_IF_ERROR(impl->Configure());
  {
    TESSERA_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(options.model_path));
    TESSERA_RETURN_IF_ERROR(impl->ReadMetadata(file));
    TESSERA_RETURN_IF_ERROR(impl->LoadWeights(file));
  }  // unmapped: the weights are packed
  TESSERA_RETURN_IF_ERROR(impl->StartLoop());
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() { impl_->loop->Stop(); }

const ModelShape& Engine::shape() const { return impl_->shape; }
const Tokenizer& Engine::tokenizer() const { return *impl_->tokenizer; }
const std::string& Engine::chat_template() const { return impl_->chat_template; }
const Organisation& Engine::organisation() const { return impl_->store->organisation(); }
const EngineOptions& Engine::options() const { return impl_->options; }
const EngineMemory& Engine::memory() const { return impl_->memory; }
double Engine::load_ms() const { return impl_->load_ms; }

std::string Engine::kernel_description() const {
  return impl_->kernels.reason;  // begins with the table's name
}

Status Engine::Impl::CheckFits(const Request& request, RefusalReason* reason) const {
  const uint64_t positions = request.prompt.size() + uint64_t{request.max_tokens};
  *reason = positions > shape.context_length ? RefusalReason::kContext : RefusalReason::kInvalid;
  TESSERA_RETURN_IF_ERROR(CheckRequest(request, shape, tokenizer->end_tokens()));
  if (positions <= longest) return Status::Ok();
  *reason = RefusalReason::kBudget;
  const uint64_t needed = store->BudgetFor(positions);
  return NoMemory(fmt::format(
      "prompt of {} tokens + max_tokens {} needs a budget of {} bytes ({}) with organisation {}; "
      "the budget is {} bytes",
      request.prompt.size(), request.max_tokens, needed, FormatBytes(needed),
      options.organisation.ToString(), options.budget_bytes));
}

Result<RequestId> Engine::Submit(Request request, RequestSink sink) {
  RefusedRequest refused;
  refused.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  refused.max_tokens = request.max_tokens;
  refused.salted = !request.cache_salt.empty();
  refused.error = impl_->CheckFits(request, &refused.reason);
  if (refused.error.ok()) {
    Result<RequestId> id = impl_->loop->Submit(std::make_unique<Sequence>(
        std::move(request), std::move(sink), impl_->tokenizer.get(), NowNs()));
    if (id) return id;
    refused.reason = RefusalReason::kShuttingDown;
    refused.error = id.error();
  }
  NoteRefused(refused);
  return refused.error;
}

void Engine::NoteRefused(const RefusedRequest& request) {
  impl_->refused[static_cast<size_t>(request.reason)].fetch_add(1, std::memory_order_relaxed);
  if (!impl_->options.on_finished) return;
  FinishedRequest finished;
  finished.id = impl_->loop->TakeId();
  finished.finish = FinishReason::kRefused;
  finished.error = request.error;
  finished.prompt_tokens = request.prompt_tokens;
  finished.max_tokens = request.max_tokens;
  finished.salted = request.salted || impl_->options.isolate != IsolateKind::kOff;
  impl_->options.on_finished(finished);
}

void Engine::Cancel(RequestId id) { impl_->loop->Cancel(id); }
EngineStats Engine::Stats() const { return impl_->loop->Stats(); }
RequestMetrics Engine::Requests() const {
  RequestMetrics metrics = impl_->loop->Requests();
  for (size_t i = 0; i < kRefusalReasons; ++i) {
    metrics.refused[i] = impl_->refused[i].load(std::memory_order_relaxed);
  }
  return metrics;
}
RequestList Engine::RecentRequests() const { return impl_->loop->RecentRequests(); }
std::vector<PoolPageMap> Engine::PageMap() const { return impl_->store->PageMap(); }
StoreCensus Engine::Census() const { return impl_->store->Census(); }
std::vector<BoundaryInfo> Engine::CacheEntries(size_t limit, size_t prefix_tokens) const {
  return impl_->store->Boundaries(limit, prefix_tokens);
}
PinResult Engine::Pin(const PinRequest& request) {
  PinResult result;
  result.report =
      ComputedReport(static_cast<uint32_t>(request.prompt.size()), ComputeReason::kDisabled);
  if (!impl_->options.reuse) return result;
  constexpr uint64_t kSecondNs = 1'000'000'000;
  const uint64_t expires_at = request.ttl_s > 0 ? NowNs() + request.ttl_s * kSecondNs : 0;
  const std::string salt =
      StateSalt(impl_->options.isolate, {request.isolation_key, request.cache_salt, RequestId()});
  return impl_->store->Pin(
      {.max_tokens = request.prompt.size(),
       .prompt = request.prompt,
       .salt = salt,
       .isolate_after = request.isolate_after},
      {.expires_at = expires_at, .owner = impl_->PinOwner(request.isolation_key)});
}
bool Engine::Unpin(uint64_t id, std::string_view isolation_key) {
  return impl_->store->Unpin(id, impl_->PinOwner(isolation_key));
}
std::vector<PinInfo> Engine::Pins(std::string_view isolation_key) const {
  impl_->store->ExpirePins(NowNs());
  return impl_->store->Pins(impl_->PinOwner(isolation_key));
}
uint64_t Engine::ClearCache() { return impl_->store->Clear(); }

}  // namespace tessera
