// SPDX-License-Identifier: Apache-2.0
//
// tessera bench memory: parses its flags and prints the report; progress goes to stderr when that
// is a terminal.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/memory_ops_bench.h"
#include "cli/bench_verbs.h"
#include "cli/command_line.h"

namespace tessera::cli {
namespace {

struct MemoryFlags {
  MemoryBenchOptions options;
  bool json = false;
};

int RunMemory(MemoryFlags flags) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) {
    flags.options.progress = [](const std::string& what) {
      PrintNote(fmt::format("{}{}", kClearLine, what));
    };
  }
  const Result<MemoryBenchReport> report = RunMemoryBench(flags.options);
  if (terminal) PrintNote(kClearLine);
  if (!report.has_value()) return ReportError(report.error());
  return PrintResult(flags.json ? MemoryBenchJson(*report) + '\n' : MemoryBenchText(*report));
}

}  // namespace

Action AddBenchMemory(CLI::App& bench) {
  auto flags = std::make_shared<MemoryFlags>();
  MemoryBenchOptions& options = flags->options;
  CLI::App* command = bench.add_subcommand(
      "memory", "Time finding, sharing, publishing and taking back state; no model is needed");
  command
      ->add_option("--entries", options.entries,
                   "Blocks of 16 tokens in the index, a set of lines for each (default "
                   "1000,10000,100000,1000000,10000000; what memory does not allow is left out)")
      ->option_text("LIST")
      ->delimiter(',')
      ->check(CLI::Range(uint64_t{1'000}, uint64_t{100'000'000}));
  command
      ->add_option("--threads", options.threads,
                   "Threads that ask at once, for each number a set of lines (default 1,2)")
      ->option_text("LIST")
      ->delimiter(',')
      ->check(CLI::Range(1, 256));
  command->add_option("--samples", options.samples, "Requests timed for each line (default 300)")
      ->option_text("N")
      ->check(CLI::Range(1, 1 << 20));
  command
      ->add_option("--geometry", options.geometry,
                   "A hybrid model whose checkpoints are taken (default falcon-h1-7b)")
      ->option_text("NAME");
  command->add_flag("--json", flags->json, "Print the report as one JSON object");
  return [flags] { return RunMemory(*flags); };
}

}  // namespace tessera::cli
