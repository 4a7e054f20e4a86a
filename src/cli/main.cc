// SPDX-License-Identifier: Apache-2.0
//
// tessera VERB …: picks the verb and hands over. Messages for people go to stderr, results to
// stdout.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command_line.h"
#include "cli/verbs.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kIntroduction =
    "tessera serves hybrid-attention language models from a fixed memory budget, exactly.\n";

std::string Help() {
  std::string text = std::string(kIntroduction) + "\nUsage: tessera VERB [flags]\n\nVerbs:\n";
  for (const Verb& verb : kVerbs) {
    std::string usage = fmt::format("  {} {}", verb.name, verb.usage);
    usage.resize(std::max(usage.size() + 2, size_t{46}), ' ');
    text += fmt::format("{}{}\n", usage, verb.summary);
  }
  return text +
         "\n  --help     Print this; tessera VERB --help lists a verb's flags\n"
         "  --version  Print the version\n"
         "\nFor example:\n"
         "  tessera run models/harbour-2.8m-q8_0.gguf --prompt \"Log of day 3.\" -n 40\n";
}

int UnknownVerb(std::string_view word) {
  std::vector<std::string> names;
  std::string all;
  for (const Verb& verb : kVerbs) {
    names.emplace_back(verb.name);
    all += (all.empty() ? "" : ", ") + names.back();
  }
  for (const char* flag : {"--help", "--version"}) names.emplace_back(flag);
  const std::string nearest = NearestWord(word, names);
  return ReportError(
      InvalidArgument(fmt::format("unknown {} '{}'; {}{}", word.starts_with('-') ? "flag" : "verb",
                                  word, nearest.empty() ? "the verbs are: " : "did you mean ",
                                  nearest.empty() ? all : nearest + "?")));
}

int Main(int argc, const char* const* argv) {
  // A closed stdout and a file over its limit are errors that writing reports, not signals that end
  // the process.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  spdlog::set_default_logger(std::make_shared<spdlog::logger>(
      "tessera", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  spdlog::set_pattern("tessera: %v");

  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word.empty()) {
    return ReportError(InvalidArgument("which verb? tessera --help lists them"));
  }
  if (word == "--help" || word == "-h" || word == "help") {
    return PrintResult(Help());
  }
  if (word == "--version" || word == "-V") {
    return PrintResult("tessera " TESSERA_VERSION "\n");
  }
  for (const Verb& verb : kVerbs) {
    if (verb.name == word) return RunVerb(verb, argc - 2, argv + 2);
  }
  return UnknownVerb(word);
}

}  // namespace
}  // namespace tessera::cli

int main(int argc, char** argv) { return tessera::cli::Main(argc, argv); }
