// SPDX-License-Identifier: Apache-2.0
//
// tessera verify: the exactness matrix on this machine and a model, with negative controls. The
// report goes to stdout, progress to stderr when that is a terminal. Exit code 0 when all that ran
// was equal, every value of every dimension was among it, and every control was detected; else 1.
// The last line says how many of the planned cells ran.
#include "verify/verify.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command_line.h"
#include "cli/verbs.h"
#include "verify/report.h"

namespace tessera::cli {
namespace {

struct VerifyFlags {
  std::string model;
  VerifyOptions options;
  bool json = false;
};

int RunVerify(VerifyFlags flags) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  if (terminal) {
    flags.options.progress = [](const std::string& name, uint32_t run, uint32_t of) {
      PrintNote(fmt::format("{}{}: cell {} of {}", kClearLine, name, run, of));
    };
  }
  const Result<VerifyReport> report = Verify(flags.model, flags.options);
  if (terminal) PrintNote(kClearLine);
  if (!report.has_value()) return ReportError(report.error());
  const int printed = PrintResult(flags.json ? VerifyJson(*report) + '\n' : VerifyText(*report));
  if (printed != 0) return printed;
  return report->passed() ? 0 : static_cast<int>(StatusCode::kFailed);
}

}  // namespace

Action AddVerify(CLI::App& command) {
  auto flags = std::make_shared<VerifyFlags>();
  command.add_option("MODEL", flags->model, "A GGUF file, or the first shard of a split one")
      ->required();
  command.add_flag("--quick", flags->options.quick, "Fewer cells and tokens: under a minute")
      ->group("Matrix");
  command
      .add_option("--threads", flags->options.threads,
                  "Thread counts to compare, 1 always among them (default 1,2,3)")
      ->option_text("LIST")
      ->delimiter(',')
      ->check(CLI::Range(1, 256))
      ->group("Matrix");
  command.add_option("--seed", flags->options.seed, "Seed of tokens, cuts and cells (default 1)")
      ->option_text("S")
      ->group("Matrix");
  command.add_flag("--json", flags->json, "Print the report as one JSON object")->group("Other");
  return [flags] { return RunVerify(*flags); };
}

}  // namespace tessera::cli
