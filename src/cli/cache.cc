// SPDX-License-Identifier: Apache-2.0
//
// tessera cache COMMAND: what a running server keeps for reuse.
//
//   ls     what is kept, an entry a line
//   show   the ledger and the supply, as --stats prints them
//   clear  drops what no running request uses
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>

#include "cli/cache_report.h"
#include "cli/command_line.h"
#include "cli/server_client.h"
#include "cli/verbs.h"

namespace tessera::cli {
namespace {

struct CacheCommand {
  const char* name;
  const char* summary;
  const char* method;
  const char* path;
  Result<std::string> (*describe)(std::string_view body);
  bool takes_limit;
};

constexpr CacheCommand kCommands[] = {
    {"ls", "What is kept for reuse", "GET", "/cache/entries", DescribeEntries, true},
    {"show", "Where every page is, and how much of prompts was reused", "GET", "/cache",
     DescribeLedger, false},
    {"clear", "Drop what no running request uses", "DELETE", "/cache", DescribeClearing, false},
};

struct CacheOptions {
  ServerAddress server;
  std::optional<uint32_t> limit;
  bool json = false;
};

int RunCommand(const CacheCommand& command, const CacheOptions& options) {
  std::string path = command.path;
  if (options.limit) path += fmt::format("?limit={}", *options.limit);
  const Result<std::string> body = AskServer(options.server, command.method, path);
  const Result<std::string> text = !body || options.json ? body : command.describe(*body);
  if (!text) {
    return ReportError(
        {text.error().code(), fmt::format("cache {}: {}", command.name, text.error().message())});
  }
  return PrintResult(options.json ? *text + "\n" : *text);
}

void AddFlags(CLI::App& app, const CacheCommand& command, CacheOptions* options) {
  app.add_option("--url", options->server.url,
                 fmt::format("The server (default {})", options->server.url))
      ->option_text("URL");
  app.add_option("--api-key", options->server.api_key, "The key it was started with")
      ->option_text("K");
  if (command.takes_limit) {
    app.add_option("--limit", options->limit, "Entries at most, up to 10000 (default 100)")
        ->option_text("N");
  }
  app.add_flag("--json", options->json, "Print the server's answer as it is");
}

}  // namespace

Action AddCache(CLI::App& command) {
  command.require_subcommand(1);
  auto options = std::make_shared<CacheOptions>();
  for (const CacheCommand& each : kCommands) {
    AddFlags(*command.add_subcommand(each.name, each.summary), each, options.get());
  }
  return [options, &command] {
    for (const CacheCommand& each : kCommands) {
      if (command.got_subcommand(each.name)) return RunCommand(each, *options);
    }
    return ReportError(InvalidArgument("cache: no command is given"));
  };
}

}  // namespace tessera::cli
