// SPDX-License-Identifier: Apache-2.0
//
// tessera bench make-model: writes a model file of random weights in the shape of a published one.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/bytes.h"
#include "bench/geometries.h"
#include "bench/make_model.h"
#include "cli/bench_verbs.h"
#include "cli/command_line.h"

namespace tessera::cli {
namespace {

struct MakeModelFlags {
  MakeModelOptions options;
  std::string path;
  bool json = false;
};

int PrintMade(const MakeModelFlags& flags, uint64_t bytes, double seconds) {
  if (!flags.json) {
    PrintNote(fmt::format("{}: {} {}, {}, seed {}\n", flags.path, flags.options.geometry,
                          flags.options.type, FormatBytes(bytes), flags.options.seed));
    return 0;
  }
  const nlohmann::ordered_json json = {{"path", flags.path},
                                       {"bytes", bytes},
                                       {"geometry", flags.options.geometry},
                                       {"type", flags.options.type},
                                       {"seed", flags.options.seed},
                                       {"seconds", seconds}};
  // A path need not be UTF-8.
  const std::string text =
      json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
  return PrintResult(text);
}

int RunMakeModel(const MakeModelFlags& flags) {
  MakeModelProgress progress;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  uint64_t percent = 101;
  if (terminal) {
    progress = [&](uint64_t written, uint64_t of) {
      if (written * 100 / of == percent) return;
      percent = written * 100 / of;
      PrintNote(fmt::format("{}{} of {}, {} %", kClearLine, FormatBytes(written), FormatBytes(of),
                            percent));
    };
  }
  const auto start = std::chrono::steady_clock::now();
  const Status status = MakeModelFile(flags.options, flags.path, progress);
  if (terminal) PrintNote(kClearLine);
  if (!status.ok()) return ReportError(status);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  std::error_code ignored;
  const uint64_t bytes = std::filesystem::file_size(flags.path, ignored);
  return PrintMade(flags, bytes, took.count());
}

std::string GeometryNames() {
  std::string names;
  for (const ModelGeometry& geometry : ModelGeometries()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", geometry.name);
  }
  return names;
}

void AddMakeModel(CLI::App& command, MakeModelFlags* flags) {
  CLI::App* make = command.add_subcommand(
      "make-model", "Write a model file of random weights in the shape of a published one");
  make->add_option("FILE", flags->path, "Where to write it")->required();
  make->add_option("--geometry", flags->options.geometry, "One of " + GeometryNames())
      ->option_text("NAME")
      ->required();
  make->add_option("--type", flags->options.type,
                   "f32, f16, bf16, q8_0, q4_0, q4_k, q4_k_m or q6_k (default bf16)")
      ->option_text("TYPE");
  make->add_option("--layers", flags->options.layers, "Fewer or more layers than the geometry has")
      ->option_text("N")
      ->check(CLI::Range(1, 1024));
  make->add_option("--seed", flags->options.seed, "Seed of the weights (default 1)")
      ->option_text("S");
  make->add_flag("--json", flags->json, "Print what was written as one JSON object");
}

}  // namespace

Action AddBenchMakeModel(CLI::App& bench) {
  auto flags = std::make_shared<MakeModelFlags>();
  AddMakeModel(bench, flags.get());
  return [flags] { return RunMakeModel(*flags); };
}

}  // namespace tessera::cli
