// SPDX-License-Identifier: Apache-2.0
#include "cli/common_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>

#include "base/bytes.h"

namespace tessera::cli {
namespace {

// The same status with the flag's name in front.
Status Named(const char* flag, const Status& status) {
  return {status.code(), fmt::format("{}: {}", flag, status.message())};
}

void AddReuseOptions(CLI::App& command, CommonOptions* options) {
  const auto add = [&](const char* name, auto& value, const char* text, const std::string& help) {
    command.add_option(name, value, fmt::format("{} (default {})", help, value))
        ->option_text(text)
        ->group("Prefix reuse");
  };
  add("--checkpoint-grid", options->checkpoint_grid, "N",
      "Keep and reuse state at multiples of N tokens only");
  add("--placement", options->placement, "NAME",
      "Where prompts are worth a checkpoint: default (tails, branches, message ends, positions "
      "that clients name, and a grid while memory is plentiful), tail, tail+branch or dense:N");
  add("--eviction", options->eviction, "NAME",
      "What goes first when memory is short: value (least worth per page), lru or flop");
  add("--retention", options->retention, "NAME",
      "What stays longer: off, producer[:n] (wanted by n requests, while its producer runs), "
      "after[:n,share] (and after it, in a share of the budget) or strict");
  add("--isolate", options->isolate, "WHO",
      "Who shares what is kept: off (all, but for cache_salt), key (requests of an API key, and of "
      "those by cache_salt) or request (nobody)");
  command.add_flag("--no-reuse", options->no_reuse, "Keep nothing and look nothing up")
      ->group("Prefix reuse");
}

Status SetReuse(const CommonOptions& options, EngineOptions* engine) {
  engine->reuse = !options.no_reuse;
  if (options.checkpoint_grid == 0) {
    return InvalidArgument("--checkpoint-grid: 0 is not a number of tokens; 1 means every token");
  }
  engine->checkpoint_grid = options.checkpoint_grid;
  const Result<PlacementSpec> placement = PlacementSpec::Parse(options.placement);
  if (!placement) return Named("--placement", placement.error());
  engine->placement = *placement;
  const Result<EvictionPolicy> eviction = ParseEvictionPolicy(options.eviction);
  if (!eviction) return Named("--eviction", eviction.error());
  engine->eviction = *eviction;
  const Result<RetentionSpec> retention = RetentionSpec::Parse(options.retention);
  if (!retention) return Named("--retention", retention.error());
  engine->retention = *retention;
  for (IsolateKind kind : {IsolateKind::kOff, IsolateKind::kKey, IsolateKind::kRequest}) {
    if (options.isolate != IsolateName(kind)) continue;
    engine->isolate = kind;
    return Status::Ok();
  }
  return InvalidArgument(
      fmt::format("--isolate: '{}' is none of off, key and request", options.isolate));
}

}  // namespace

void AddCommonOptions(CLI::App& command, CommonOptions* options) {
  command.add_option("MODEL", options->model, "A GGUF file, or the first shard of a split one")
      ->required();
  const auto add = [&](const char* name, auto& value, const char* text, const std::string& help) {
    command.add_option(name, value, help)->option_text(text)->group("Memory and speed");
  };
  add("--budget", options->budget, "BYTES",
      "Bytes of state that are never exceeded (4GiB, 512MiB; default: the smaller of half the "
      "memory left after weights and --max-running sequences at full context)");
  add("--organisation", options->organisation, "NAME",
      fmt::format(
          "How state memory is cut up: s3[:page=16], s2, s1, s0[:block=512] or d0[:split=0.5] "
          "(default {})",
          options->organisation));
  add("--state", options->state, "TYPE",
      fmt::format(
          "Recurrent state: fp32, or bf16 (half the bytes; rounded after every token, which "
          "changes results a little) (default {})",
          options->state));
  add("--threads", options->threads, "N", "Threads that compute (default: all usable CPUs)");
  add("--chunk-tokens", options->chunk_tokens, "N",
      fmt::format("New tokens in one step at most (default {})", options->chunk_tokens));
  add("--max-running", options->max_running, "N",
      fmt::format("Sequences in one step at most (default {})", options->max_running));
  add("--headroom", options->headroom, "F",
      fmt::format(
          "Share of the state memory that must stay free or cached when a request is admitted "
          "beside others, from 0 to below 1: fewer run, and fewer are preempted (default {})",
          options->headroom));
  AddReuseOptions(command, options);
  command.add_flag("--stats", options->stats, "Print memory and speed on stderr")->group("Other");
}

Result<EngineOptions> ToEngineOptions(const CommonOptions& options) {
  EngineOptions engine;
  engine.model_path = options.model;
  if (!options.budget.empty()) {
    const Result<uint64_t> bytes = ParseBytes(options.budget);
    if (!bytes) return Named("--budget", bytes.error());
    if (*bytes == 0) return InvalidArgument("--budget: 0 bytes hold no state");
    engine.budget_bytes = *bytes;
  }
  Result<OrganisationSpec> organisation = OrganisationSpec::Parse(options.organisation);
  if (!organisation) return Named("--organisation", organisation.error());
  engine.organisation = *organisation;
  const std::optional<StateType> state = ParseStateType(options.state);
  if (!state) {
    return InvalidArgument(fmt::format("--state: '{}' is neither fp32 nor bf16", options.state));
  }
  engine.state_type = *state;
  if (options.threads < 0) {
    return InvalidArgument(
        fmt::format("--threads: {} is not a number of threads; 0 means all CPUs", options.threads));
  }
  engine.threads = options.threads;
  engine.chunk_tokens = options.chunk_tokens;
  engine.max_running = options.max_running;
  if (!(options.headroom >= 0 && options.headroom < 1)) {
    return InvalidArgument(fmt::format(
        "--headroom: {} is not a share from 0 to below 1: 0.1 is a tenth", options.headroom));
  }
  engine.headroom = options.headroom;
  TESSERA_RETURN_IF_ERROR(SetReuse(options, &engine));
  if (const char* isa = std::getenv("TESSERA_ISA"); isa != nullptr) engine.isa = isa;
  return engine;
}

}  // namespace tessera::cli
