// SPDX-License-Identifier: Apache-2.0
//
// tessera bench COMMAND …: measurements, and what they need.
#include <CLI/CLI.hpp>
#include <utility>
#include <vector>

#include "cli/bench_verbs.h"
#include "cli/command_line.h"

namespace tessera::cli {

Action AddBench(CLI::App& command) {
  command.require_subcommand(1);
  std::vector<std::pair<const CLI::App*, Action>> actions;
  for (Action (*add)(CLI::App&) : {AddBenchKernels, AddBenchStep, AddBenchMemory, AddBenchServe,
                                   AddBenchReplay, AddBenchMakeModel}) {
    Action action = add(command);
    const auto all = command.get_subcommands([](const CLI::App*) { return true; });
    actions.emplace_back(all.back(), std::move(action));
  }
  return [actions] {
    for (const auto& [sub, action] : actions) {
      if (sub->parsed()) return action();
    }
    return ReportError(InvalidArgument("bench: no command is given"));
  };
}

}  // namespace tessera::cli
