// SPDX-License-Identifier: Apache-2.0
//
// tessera bench serve: parses its flags, shows a bar on stderr when that is a terminal (and
// NO_COLOR is not set), prints the report and writes the file. An interrupt ends the load and
// prints what there is, with exit code 130; a load of which no request completed is a failed check.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "bench/serve/result_file.h"
#include "bench/serve/serve_bench.h"
#include "bench/serve/serve_report.h"
#include "cli/bench_verbs.h"
#include "cli/command_line.h"
#include "cli/interrupt.h"
#include "cli/server_client.h"

namespace tessera::cli {
namespace {

struct ServeFlags {
  ServeBenchOptions options;
  std::vector<std::string> goodput;
  std::string prompt_format = "tokens";
  std::string save_result;
  bool json = false;
};

Status ReadFlags(ServeFlags* flags) {
  ServeBenchOptions& options = flags->options;
  if (!flags->goodput.empty()) {
    TESSERA_ASSIGN_OR_RETURN(options.figures.objectives, ParseObjectives(flags->goodput));
  }
  if (flags->prompt_format != "tokens" && flags->prompt_format != "text") {
    return InvalidArgument(
        fmt::format("--prompt-format: '{}' is neither tokens nor text", flags->prompt_format));
  }
  options.as_text = flags->prompt_format == "text";
  for (const std::string& metric : options.figures.metrics) {
    if (metric != "ttft" && metric != "tpot" && metric != "itl" && metric != "e2el") {
      return InvalidArgument(
          fmt::format("--percentile-metrics: '{}' is none of ttft, tpot, itl, e2el", metric));
    }
  }
  if (!flags->save_result.empty()) {
    const Status path = CheckResultPath(flags->save_result);
    if (!path.ok()) return {path.code(), fmt::format("--save-result: {}", path.message())};
  }
  return Status::Ok();
}

bool ShowsProgress() {
  const char* no_color = std::getenv("NO_COLOR");
  return isatty(STDERR_FILENO) != 0 && (no_color == nullptr || *no_color == '\0');
}

size_t TerminalColumns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

// kFailed when requests ran to their ends and none well.
Status CheckCompleted(const ServeBenchReport& report) {
  std::string first;
  for (const ServeRepeat& repeat : report.repeats) {
    for (const LoadRecord& record : repeat.run.records) {
      if (record.outcome == LoadOutcome::kCompleted) return Status::Ok();
      if (first.empty()) first = record.error;
    }
  }
  if (first.empty()) return Status::Ok();
  return {StatusCode::kFailed, fmt::format("bench serve: no request completed: {}", first)};
}

int PrintReport(const ServeFlags& flags, const ServeBenchReport& report) {
  const int printed = PrintResult(flags.json ? ServeBenchJson(report, /*records=*/false) + '\n'
                                             : ServeBenchText(report));
  if (!flags.save_result.empty()) {
    const Status saved =
        WriteResultFile(flags.save_result, ServeBenchJson(report, /*records=*/true) + '\n');
    if (!saved.ok()) {
      return ReportError({saved.code(), fmt::format("--save-result: {}", saved.message())});
    }
  }
  if (printed != 0) return printed;
  if (report.stopped) return kInterruptedCode;
  const Status completed = CheckCompleted(report);
  return completed.ok() ? 0 : ReportError(completed);
}

int RunServe(ServeFlags flags) {
  const Status status = ReadFlags(&flags);
  if (!status.ok()) return ReportError(status);
  const ServerAddress server = {flags.options.url, flags.options.api_key};
  flags.options.ask = [&server](const char* method, const std::string& path) {
    return AskServer(server, method, path);
  };
  const bool terminal = ShowsProgress();
  if (terminal) {
    flags.options.progress = [](const std::string& phase, const LoadProgress& progress) {
      PrintNote(fmt::format("{}{}", kClearLine, ProgressLine(phase, progress, TerminalColumns())));
    };
  }
  CatchFirstInterrupt();
  flags.options.stop = Interrupted;
  const Result<ServeBenchReport> report = RunServeBench(flags.options);
  if (terminal) PrintNote(kClearLine);
  if (!report) {
    return ReportError(
        {report.error().code(), fmt::format("bench serve: {}", report.error().message())});
  }
  return PrintReport(flags, *report);
}

// A range of the parser's lets nan through.
std::string CheckPositive(const std::string& text) {
  const double value = std::strtod(text.c_str(), nullptr);
  return value > 0 ? "" : fmt::format("expected a number above 0, found '{}'", text);
}

std::string CheckWithin(const std::string& text, double most) {
  const double value = std::strtod(text.c_str(), nullptr);
  return value >= 0 && value <= most
             ? ""
             : fmt::format("expected a number from 0 to {:g}, found '{}'", most, text);
}

void AddServerFlags(CLI::App* command, ServeFlags* flags) {
  ServeBenchOptions& options = flags->options;
  const auto add = [&](const char* name, auto& value, const char* text, const std::string& help) {
    return command->add_option(name, value, help)->option_text(text)->group("Server");
  };
  add("--url", options.url, "URL", fmt::format("The server (default {})", options.url));
  add("--endpoint", options.endpoint, "PATH",
      "/v1/completions (default) or /v1/chat/completions, which gets text");
  add("--api-key", options.api_key, "K", "The key it was started with");
  add("--model", options.model, "ID", "The model to ask (default: the first of /v1/models)");
  add("--extra-body", options.extra_body, "JSON", "Further fields of every request");
  add("--temperature", options.temperature, "T", "Sampling temperature (default 0: greedy)")
      ->check([](const std::string& text) { return CheckWithin(text, 100); });
  command->add_flag("--ignore-eos", options.ignore_eos, "Ask for answers of their full length")
      ->group("Server");
  command
      ->add_flag("--clear-cache", options.clear_cache,
                 "DELETE /cache of a Tessera server before each repeat")
      ->group("Server");
}

void AddWorkloadFlags(CLI::App* command, ServeFlags* flags) {
  WorkloadOptions& workload = flags->options.workload;
  const auto add = [&](const char* name, auto& value, const char* text, const std::string& help) {
    return command->add_option(name, value, help)->option_text(text)->group("Workload");
  };
  constexpr uint32_t kTokensMax = 1u << 24;
  add("--workload", workload.spec, "W",
      "random (default), or shared-context:contexts=8,tokens=1500,questions=64,question=24");
  add("--trace", workload.trace_path, "FILE",
      "Replay a trace: lengths, arrival times and equal prefixes");
  add("--trace-scale", workload.trace_scale, "N",
      "Divide lengths and blocks of the trace by N (default 16)")
      ->check(CLI::Range(1, 1 << 16));
  add("--time-scale", workload.time_scale, "X",
      "Stretch its arrival times: 0.1 is ten times as fast (default 1)")
      ->check([](const std::string& text) { return CheckWithin(text, 1e6); });
  add("--prompts", workload.prompts_path, "FILE",
      R"(Prompts of a JSONL file: {"prompt": text or ids, or "messages", "max_tokens"})");
  add("--num-prompts", workload.prompt_count, "N",
      "Requests (default: 100 random ones, 64 questions, all of a file)")
      ->check(CLI::Range(1, 10'000'000));
  add("--input-len", workload.input_tokens, "N", "Tokens of a random prompt (default 256)")
      ->check(CLI::Range(1u, kTokensMax));
  add("--output-len", workload.output_tokens, "N",
      "Tokens of an answer (default 64; 32 in shared-context; a trace's and a file's own)")
      ->check(CLI::Range(1u, kTokensMax));
  add("--prefix-len", workload.prefix_tokens, "N",
      "Tokens that random prompts all begin with (default 0)")
      ->check(CLI::Range(0u, kTokensMax));
  add("--range-ratio", workload.range_ratio, "R",
      "Random lengths are drawn from n·(1 − R) to n·(1 + R) (default 0)")
      ->check([](const std::string& text) { return CheckWithin(text, 0.999); });
  add("--prompt-format", flags->prompt_format, "F",
      "tokens (default), or text where the endpoint takes no ids");
  add("--vocabulary", flags->options.vocabulary, "N",
      fmt::format("Ids are drawn below N (default: what /v1/models says, or {})",
                  kVocabularyUnknown))
      ->check(CLI::Range(1, INT32_MAX));
}

void AddLoadFlags(CLI::App* command, ServeFlags* flags) {
  ServeBenchOptions& options = flags->options;
  const auto add = [&](const char* name, auto& value, const char* text, const std::string& help) {
    return command->add_option(name, value, help)->option_text(text)->group("Load");
  };
  add("--request-rate", options.request_rate, "R",
      "Requests a second, or inf: all at once (default: a trace's times, else inf)")
      ->check(CheckPositive);
  add("--burstiness", options.burstiness, "B",
      "Shape of the gamma intervals: 1 Poisson (default), less bursty, more even, inf")
      ->check(CheckPositive);
  add("--max-concurrency", options.max_concurrency, "N",
      "Requests that run at a time (default: no limit)")
      ->check(CLI::Range(1, 1 << 20));
  add("--num-warmups", options.warmups, "N", "Requests before the first repeat (default 0)")
      ->check(CLI::Range(0, 1 << 20));
  add("--repeats", options.repeats, "N",
      "Runs of the load, each with prompts of its own; their mean and spread (default 3)")
      ->check(CLI::Range(1, 1000));
  add("--cancel-fraction", options.cancel_fraction, "F",
      "Requests whose client goes away at a random token (default 0)")
      ->check([](const std::string& text) { return CheckWithin(text, 1); });
  add("--request-timeout", options.silence_seconds, "S",
      "A request without a byte for so many seconds has failed (default 300)")
      ->check(CLI::Range(1, 86400));
  add("--seed", options.seed, "S", "Of prompts, arrivals and cancellations (default 0)");
}

void AddReportFlags(CLI::App* command, ServeFlags* flags) {
  FigureOptions& figures = flags->options.figures;
  const auto add = [&](const char* name, auto& value, const char* text, const std::string& help) {
    return command->add_option(name, value, help)->option_text(text)->group("Report");
  };
  add("--goodput", flags->goodput, "LIST",
      "Objectives in ms, ttft:200 tpot:50 e2el:3000: requests that meet them all, a second")
      ->delimiter(',');
  add("--percentile-metrics", figures.metrics, "LIST",
      "Latencies to report (default ttft,tpot,itl,e2el)")
      ->delimiter(',');
  add("--metric-percentiles", figures.percentiles, "LIST", "Percentiles of them (default 99)")
      ->delimiter(',')
      ->check([](const std::string& text) { return CheckWithin(text, 100); });
  add("--save-result", flags->save_result, "FILE",
      "Write the report as JSON there, with a record of every request");
  command->add_flag("--json", flags->json, "Print the report as one JSON object")->group("Report");
}

}  // namespace

Action AddBenchServe(CLI::App& bench) {
  auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = bench.add_subcommand(
      "serve", "Load a running server, as vllm bench serve does: Tessera or any of OpenAI's API");
  AddServerFlags(command, flags.get());
  AddWorkloadFlags(command, flags.get());
  AddLoadFlags(command, flags.get());
  AddReportFlags(command, flags.get());
  return [flags] { return RunServe(*flags); };
}

}  // namespace tessera::cli
