// SPDX-License-Identifier: Apache-2.0
//
// tessera bench step: parses its flags and prints the report; progress goes to stderr when that is
// a terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "bench/step_bench.h"
#include "cli/bench_verbs.h"
#include "cli/command_line.h"

namespace tessera::cli {
namespace {

struct StepFlags {
  std::string model;
  std::string state = "fp32";
  std::vector<std::string> organisations;
  StepBenchOptions options;
  bool json = false;
};

Status ReadFlags(StepFlags* flags) {
  const std::optional<StateType> state = ParseStateType(flags->state);
  if (!state) {
    return InvalidArgument(fmt::format("--state: '{}' is neither fp32 nor bf16", flags->state));
  }
  flags->options.state_type = *state;
  if (flags->options.compared_sequences == 0 && !flags->organisations.empty()) {
    return InvalidArgument("--organisation: nothing is compared with --compare 0");
  }
  for (const std::string& text : flags->organisations) {
    const Result<OrganisationSpec> spec = OrganisationSpec::Parse(text);
    if (!spec) {
      return InvalidArgument(fmt::format("--organisation: {}", spec.error().message()));
    }
    flags->options.organisations.push_back(*spec);
  }
  return Status::Ok();
}

int RunStep(StepFlags flags) {
  const Status status = ReadFlags(&flags);
  if (!status.ok()) return ReportError(status);
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) {
    flags.options.progress = [](const std::string& what) {
      PrintNote(fmt::format("{}{}", kClearLine, what));
    };
  }
  const Result<StepBenchReport> report = RunStepBench(flags.model, flags.options);
  if (terminal) PrintNote(kClearLine);
  if (!report.has_value()) return ReportError(report.error());
  return PrintResult(flags.json ? StepBenchJson(*report) + '\n' : StepBenchText(*report));
}

void AddRunFlags(CLI::App* command, StepBenchOptions* options) {
  command
      ->add_option("--sequences", options->sequences,
                   "Sequences in a step, a speed for each (default 1,2,4,8,16)")
      ->option_text("LIST")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  command
      ->add_option("--compare", options->compared_sequences,
                   "Sequences in a step when organisations are compared; 0: do not (default 8)")
      ->option_text("N")
      ->check(CLI::Range(0, 1024));
  command
      ->add_option("--context", options->context_tokens,
                   "Tokens of each sequence before the first step (default 512)")
      ->option_text("N")
      ->check(CLI::Range(0, 1 << 24));
  command->add_option("--steps", options->steps, "Steps timed in each run (default 16)")
      ->option_text("N")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--rounds", options->rounds, "Runs of everything (default 5)")
      ->option_text("N")
      ->check(CLI::Range(1, 1 << 20));
}

}  // namespace

Action AddBenchStep(CLI::App& bench) {
  auto flags = std::make_shared<StepFlags>();
  CLI::App* command = bench.add_subcommand(
      "step", "Time whole decode steps of a model, and each organisation against contiguous state");
  command->add_option("MODEL", flags->model, "A GGUF file, or the first shard of a split one")
      ->required();
  AddRunFlags(command, &flags->options);
  command
      ->add_option("--organisation", flags->organisations,
                   "Organisations to compare, s3:page=64 among them (default s3 with pages of 16 "
                   "to 512 tokens, s2, s1, d0, s0)")
      ->option_text("LIST")
      ->delimiter(',');
  command->add_option("--state", flags->state, "Recurrent state type: fp32 (default) or bf16")
      ->option_text("TYPE");
  command
      ->add_option("--threads", flags->options.threads,
                   "Threads that compute (default: all usable CPUs)")
      ->option_text("N")
      ->check(CLI::Range(0, 256));
  command
      ->add_option("--isa", flags->options.isa,
                   "Kernels: scalar, avx2 or avx512 (default: the best)")
      ->option_text("NAME");
  command->add_flag("--json", flags->json, "Print the report as one JSON object");
  return [flags] { return RunStep(*flags); };
}

}  // namespace tessera::cli
