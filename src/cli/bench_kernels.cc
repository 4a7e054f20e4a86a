// SPDX-License-Identifier: Apache-2.0
//
// tessera bench kernels: parses its flags and prints the report; progress goes to stderr when that
// is a terminal. Ctrl-C ends the rounds: what is complete is printed, and the exit code is 130.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "bench/kernel_bench.h"
#include "bench/kernel_report.h"
#include "cli/bench_verbs.h"
#include "cli/command_line.h"
#include "cli/interrupt.h"

namespace tessera::cli {
namespace {

struct KernelFlags {
  KernelBenchOptions options;
  bool json = false;
};

int RunKernels(KernelFlags flags) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) {
    flags.options.progress = [&flags](uint32_t rounds, double seconds) {
      PrintNote(fmt::format("{}round {}, {:.0f} of {:.0f} s", kClearLine, rounds, seconds,
                            flags.options.seconds));
    };
  }
  CatchFirstInterrupt();
  flags.options.stop = Interrupted;
  const Result<KernelBenchReport> report = RunKernelBench(flags.options);
  if (terminal) PrintNote(kClearLine);
  if (!report.has_value()) return ReportError(report.error());
  const int printed =
      PrintResult(flags.json ? KernelBenchJson(*report) + '\n' : KernelBenchText(*report));
  return printed == 0 && report->stopped ? kInterruptedCode : printed;
}

}  // namespace

Action AddBenchKernels(CLI::App& bench) {
  auto flags = std::make_shared<KernelFlags>();
  KernelBenchOptions& options = flags->options;
  CLI::App* command = bench.add_subcommand(
      "kernels", "Time every kernel against ceilings of this machine measured in the same run");
  command
      ->add_option("--isa", options.isa,
                   "Kernels to measure: scalar, avx2 or avx512 (default: the best)")
      ->option_text("NAME");
  command
      ->add_option("--threads", options.threads,
                   "Threads that work at once, for each number a set of lines (default 1)")
      ->option_text("LIST")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  command
      ->add_option("--only", options.only,
                   "Only these: kernels, layout, invariance, or the beginning of a line's name "
                   "(gemm.bf16.memory, layout.scan)")
      ->option_text("LIST")
      ->delimiter(',');
  command
      ->add_option("--seconds", options.seconds,
                   "Rounds begin until so much time has passed, one at least (default 60)")
      ->option_text("S")
      ->check(CLI::Range(0.0, 86400.0))
      ->check([](const std::string& text) -> std::string {  // a range does not keep it out
        return std::isnan(std::strtod(text.c_str(), nullptr)) ? "nan is no number of seconds" : "";
      });
  command->add_flag("--json", flags->json, "Print the report as one JSON object");
  return [flags] { return RunKernels(*flags); };
}

}  // namespace tessera::cli
