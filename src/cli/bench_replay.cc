// SPDX-License-Identifier: Apache-2.0
//
// tessera bench replay: parses its flags, reads the traces and prints the report; progress goes to
// stderr when that is a terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "bench/replay_bench.h"
#include "cli/bench_verbs.h"
#include "cli/command_line.h"

namespace tessera::cli {
namespace {

struct ReplayFlags {
  std::vector<std::string> files;
  std::vector<std::string> capacities = {"unlimited"};
  std::string geometry;
  std::string state = "fp32";
  std::string organisation = "s3";
  std::string placement = "default";
  std::string eviction = "value";
  uint32_t price = 1557;
  uint32_t grid = 1;
  uint32_t at_once = 0;
  uint64_t seed = 1;
  bool compare = false;
  bool json = false;
};

Status Named(const char* flag, const Status& status) {
  return {status.code(), fmt::format("bench replay: {}: {}", flag, status.message())};
}

Result<ReplayModel> ReadModel(const ReplayFlags& flags) {
  if (flags.geometry.empty()) return ReplayModel::OfPrice(flags.price);
  const std::optional<StateType> state = ParseStateType(flags.state);
  if (!state) {
    return InvalidArgument(fmt::format("--state: '{}' is neither fp32 nor bf16", flags.state));
  }
  Result<ReplayModel> model = ReplayModel::OfGeometry(flags.geometry, *state);
  if (!model) return Named("--geometry", model.error());
  return model;
}

Result<ReplayPolicy> ReadPolicy(const ReplayFlags& flags) {
  ReplayPolicy policy{.placement = {}, .grid = flags.grid};
  const Result<PlacementSpec> placement = PlacementSpec::Parse(flags.placement);
  if (!placement) return Named("--placement", placement.error());
  policy.placement = *placement;
  const Result<EvictionPolicy> eviction = ParseEvictionPolicy(flags.eviction);
  if (!eviction) return Named("--eviction", eviction.error());
  policy.eviction = *eviction;
  return policy;
}

Result<ReplaySet> ReadSet(const ReplayFlags& flags) {
  ReplaySet set;
  TESSERA_ASSIGN_OR_RETURN(set.options.model, ReadModel(flags));
  const Result<OrganisationSpec> organisation = OrganisationSpec::Parse(flags.organisation);
  if (!organisation) return Named("--organisation", organisation.error());
  set.options.organisation = *organisation;
  set.options.at_once = flags.at_once;
  set.options.seed = flags.seed;
  for (const std::string& text : flags.capacities) {
    const Result<std::optional<uint64_t>> capacity = ParseTokenCapacity(text);
    if (!capacity) return Named("--capacity", capacity.error());
    set.capacities.push_back(*capacity);
  }
  set.compared = flags.compare;
  if (flags.compare) {
    set.policies = ComparedPolicies();
  } else {
    TESSERA_ASSIGN_OR_RETURN(const ReplayPolicy policy, ReadPolicy(flags));
    set.policies.push_back(policy);
  }
  return set;
}

Result<ReplayReport> ReadAndRun(const ReplayFlags& flags) {
  TESSERA_ASSIGN_OR_RETURN(ReplaySet set, ReadSet(flags));
  std::vector<RequestTrace> traces;
  for (const std::string& file : flags.files) {
    TESSERA_ASSIGN_OR_RETURN(RequestTrace trace, ReadRequestTrace(file));
    traces.push_back(std::move(trace));
  }
  if (isatty(STDERR_FILENO) != 0) {
    set.progress = [](const std::string& what) {
      PrintNote(fmt::format("{}{}", kClearLine, what));
    };
  }
  Result<ReplayReport> report = RunReplays(traces, set);
  if (set.progress) PrintNote(kClearLine);
  return report;
}

int RunReplay(const ReplayFlags& flags) {
  const Result<ReplayReport> report = ReadAndRun(flags);
  if (!report.has_value()) return ReportError(report.error());
  return PrintResult(flags.json ? ReplayJson(*report) + '\n' : ReplayText(*report));
}

void AddMemoryFlags(CLI::App* command, ReplayFlags* flags) {
  command
      ->add_option("--capacity", flags->capacities,
                   "State memory in tokens of attention state, lines for each: 96000, 512K, 4M "
                   "(K = 1024) or unlimited (default unlimited)")
      ->option_text("LIST")
      ->delimiter(',');
  auto* price =
      command
          ->add_option("--price", flags->price,
                       fmt::format("Tokens of attention state that take as much memory as a "
                                   "checkpoint; 0: a model without (default {})",
                                   flags->price))
          ->option_text("TOKENS")
          ->check(CLI::Range(uint64_t{0}, kMaxTraceTokens));
  auto* geometry =
      command->add_option("--geometry", flags->geometry, "A named model instead of a price")
          ->option_text("NAME")
          ->excludes(price);
  command->add_option("--state", flags->state, "Its recurrent state: fp32 or bf16 (default fp32)")
      ->option_text("TYPE")
      ->needs(geometry);
  command
      ->add_option("--organisation", flags->organisation,
                   "How state memory is cut up: s3[:page=16], s2, s1, s0[:block=512] or "
                   "d0[:split=0.5] (default s3)")
      ->option_text("NAME");
}

void AddPolicyFlags(CLI::App* command, ReplayFlags* flags) {
  std::vector<CLI::Option*> chosen = {
      command
          ->add_option("--placement", flags->placement,
                       "default, tail, tail+branch or dense:N (default default)")
          ->option_text("NAME"),
      command->add_option("--eviction", flags->eviction, "value, lru or flop (default value)")
          ->option_text("NAME"),
      command
          ->add_option("--checkpoint-grid", flags->grid,
                       "Checkpoints at multiples of N tokens only (default 1)")
          ->option_text("N")
          ->check(CLI::Range(uint32_t{1}, static_cast<uint32_t>(kMaxTraceTokens)))};
  auto* compare = command->add_flag(
      "--compare", flags->compare,
      "Beside the default: dense, tail, tail+branch and FLOP-aware, on grids of 512 and 1792");
  for (CLI::Option* option : chosen) compare->excludes(option);
}

}  // namespace

Action AddBenchReplay(CLI::App& bench) {
  auto flags = std::make_shared<ReplayFlags>();
  CLI::App* command = bench.add_subcommand(
      "replay", "Say how much of recorded prompts would be reused; no model is needed");
  command->add_option("FILE", flags->files, "Request traces (bench/traces/README.md has formats)")
      ->required();
  AddMemoryFlags(command, flags.get());
  AddPolicyFlags(command, flags.get());
  command
      ->add_option("--interleave", flags->at_once,
                   "Sessions at once, each request of one that is drawn at random; 0: in the "
                   "order of the file (default 0)")
      ->option_text("N")
      ->check(CLI::Range(0, 1 << 20));
  command->add_option("--seed", flags->seed, "Of that draw (default 1)")->option_text("N");
  command->add_flag("--json", flags->json, "Print the report as one JSON object");
  return [flags] { return RunReplay(*flags); };
}

}  // namespace tessera::cli
