// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/serve_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kBusyClient = 0.5;  // of one thread: from here on it may have been what was slow
constexpr size_t kErrorLines = 10;

struct Line {
  std::string label;
  std::string key;
  int decimals = 2;
  bool unless_zero = false;  // left out when no repeat has any
};

const Line kEnds[] = {{"Successful requests:", "completed", 0},
                      {"Failed requests:", "failed", 0},
                      {"Cancelled requests:", "cancelled", 0, true},
                      {"Unfinished requests:", "unfinished", 0, true}};
const Line kTotals[] = {{"Benchmark duration (s):", "duration"},
                        {"Total input tokens:", "total_input_tokens", 0},
                        {"Total generated tokens:", "total_output_tokens", 0},
                        {"Request throughput (req/s):", "request_throughput"},
                        {"Request goodput (req/s):", "request_goodput"},
                        {"Output token throughput (tok/s):", "output_throughput"},
                        {"Peak output token throughput (tok/s):", "max_output_tokens_per_s"},
                        {"Peak concurrent requests:", "max_concurrent_requests"},
                        {"Total token throughput (tok/s):", "total_token_throughput"}};
const Line kReuse[] = {{"Cached input tokens:", "cached_tokens", 0},
                       {"Input tokens that came before:", "repeated_input_tokens", 0},
                       {"Of these computed again:", "recomputed_input_tokens", 0}};
const Line kCache[] = {{"Prompt tokens looked up:", "cache_prompt_tokens", 0},
                       {"Reused:", "cache_reused_tokens", 0},
                       {"Known as attention:", "cache_attention_tokens", 0},
                       {"Computed:", "cache_computed_tokens", 0},
                       {"  cold:", "cache_computed_tokens_cold", 0, true},
                       {"  diverged:", "cache_computed_tokens_diverged", 0, true},
                       {"  evicted:", "cache_computed_tokens_evicted", 0, true},
                       {"  no checkpoint:", "cache_computed_tokens_no_checkpoint", 0, true},
                       {"  below grid:", "cache_computed_tokens_below_grid", 0, true},
                       {"  salt:", "cache_computed_tokens_salt", 0, true},
                       {"  disabled:", "cache_computed_tokens_disabled", 0, true},
                       {"Of these recomputed:", "cache_recomputed_tokens", 0},
                       {"Checkpoints evicted:", "cache_evicted_checkpoints", 0, true}};

std::vector<Figures> AllFigures(const ServeBenchReport& report) {
  std::vector<Figures> all;
  for (const ServeRepeat& repeat : report.repeats) all.push_back(repeat.figures);
  return all;
}

std::string Header(std::string_view title, char fill = '-') {
  constexpr size_t kColumns = 50;
  const size_t room = kColumns - std::min(kColumns, title.size());
  return fmt::format("{}{}{}\n", std::string(room / 2, fill), title,
                     std::string(room - room / 2, fill));
}

std::string FigureLine(const std::vector<Figures>& runs, const Line& line) {
  const std::optional<Spread> spread = SpreadOf(runs, line.key);
  if (!spread || (line.unless_zero && spread->max == 0)) return {};
  // Repeats that agree have no spread to show.
  const bool differs = spread->min != spread->max;
  const int decimals = differs ? std::max(line.decimals, 1) : line.decimals;
  std::string text =
      fmt::format("{:<40} {:<10}", line.label, fmt::format("{:.{}f}", spread->mean, decimals));
  if (differs) {
    text += fmt::format(" ± {:<8} {} … {}", fmt::format("{:.{}f}", spread->std, decimals),
                        fmt::format("{:.{}f}", spread->min, line.decimals),
                        fmt::format("{:.{}f}", spread->max, line.decimals));
  }
  while (text.ends_with(' ')) text.pop_back();
  return text + "\n";
}

template <typename Lines>
std::string FigureLines(const std::vector<Figures>& runs, const Lines& lines) {
  std::string text;
  for (const Line& line : lines) text += FigureLine(runs, line);
  return text;
}

// A block under its title, if there is anything in it.
template <typename Lines>
std::string Block(std::string_view title, const std::vector<Figures>& runs, const Lines& lines) {
  const std::string text = FigureLines(runs, lines);
  return text.empty() ? text : Header(title) + text;
}

std::string LatencyBlocks(const std::vector<Figures>& runs, const FigureOptions& options) {
  std::string text;
  for (const LatencyMetric& metric : kLatencyMetrics) {
    const auto line = [&](const std::string& label, const std::string& key) {
      return Line{fmt::format("{} {} (ms):", label, metric.name),
                  fmt::format("{}_{}_ms", key, metric.key)};
    };
    std::vector<Line> lines = {line("Mean", "mean"), line("Median", "median")};
    for (const double percentile : options.percentiles) {
      const std::string name = PercentileName(percentile);
      lines.push_back(line(fmt::format("P{}", name.substr(1)), name));
    }
    text += Block(metric.header, runs, lines);
  }
  return text;
}

// What went wrong, the most frequent first.
std::string ErrorLines(const ServeBenchReport& report) {
  std::map<std::string, size_t> counts;
  for (const ServeRepeat& repeat : report.repeats) {
    for (const LoadRecord& record : repeat.run.records) {
      if (record.outcome != LoadOutcome::kFailed) continue;
      ++counts[fmt::format("{}: {}", LoadFailureName(record.failure), record.error)];
    }
  }
  if (counts.empty()) return {};
  std::vector<std::pair<std::string, size_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text = Header("Failures");
  for (size_t i = 0; i < std::min(sorted.size(), kErrorLines); ++i) {
    text += fmt::format("{:>6} x {}\n", sorted[i].second, sorted[i].first);
  }
  if (sorted.size() > kErrorLines) {
    text += fmt::format("       and {} other messages\n", sorted.size() - kErrorLines);
  }
  return text;
}

std::string SeedsText(const ServeBenchReport& report) {
  const uint64_t first = report.options.seed;
  return report.repeats.size() == 1
             ? fmt::format("seed {}", first)
             : fmt::format("{} repeats, seeds {} to {}", report.repeats.size(), first,
                           first + report.repeats.size() - 1);
}

std::string Notes(const ServeBenchReport& report, const std::vector<Figures>& runs) {
  std::string text;
  if (report.repeats.size() > 1) {
    text += "Mean of the repeats ± their standard deviation, lowest … highest.\n";
  }
  if (report.stopped) text += "Interrupted: the last repeat is a part of one.\n";
  const std::optional<Spread> busy = SpreadOf(runs, "client_busy_share");
  if (busy && busy->max > kBusyClient) {
    text += fmt::format(
        "The client worked {:.0f} % of the time: it may be what limited these figures.\n",
        100 * busy->max);
  }
  return text;
}

Json FigureJson(const Figure& figure) {
  if (figure.count) return static_cast<uint64_t>(figure.value);
  return figure.value;
}

// The keys of all repeats, in the order of their first appearance.
std::vector<std::string> AllKeys(const std::vector<Figures>& runs) {
  std::vector<std::string> keys;
  for (const Figures& run : runs) {
    for (const Figure& figure : run.list()) {
      if (std::find(keys.begin(), keys.end(), figure.key) == keys.end()) {
        keys.push_back(figure.key);
      }
    }
  }
  return keys;
}

Json MeanJson(double mean) {
  constexpr double kExact = 9007199254740992;  // 2^53
  if (mean == std::floor(mean) && mean < kExact) return static_cast<uint64_t>(mean);
  return mean;
}

Json SettingsJson(const ServeBenchReport& report) {
  const ServeBenchOptions& options = report.options;
  Json rate = options.request_rate ? Json(*options.request_rate) : Json("inf");
  if (options.request_rate && std::isinf(*options.request_rate)) rate = "inf";
  if (report.timed) rate = "trace";
  return {
      {"date", report.date},
      {"endpoint_type", options.workload.chat ? "openai-chat" : "openai"},
      {"url", options.url},
      {"endpoint", options.endpoint},
      {"model_id", options.model},
      {"num_prompts", report.prompt_count},
      {"request_rate", std::move(rate)},
      {"burstiness", options.burstiness},
      {"max_concurrency",
       options.max_concurrency > 0 ? Json(options.max_concurrency) : Json(nullptr)},
      {"workload", report.workload},
      {"workload_hash", report.workload_hash.empty() ? Json(nullptr) : Json(report.workload_hash)},
      {"vocabulary", options.vocabulary},
      {"seed", options.seed},
      {"num_warmups", options.warmups},
      {"cancel_fraction", options.cancel_fraction},
      {"client", {{"cpu", report.client_cpu}, {"cpus", report.client_cpus}}},
      {"interrupted", report.stopped}};
}

std::string_view OutcomeName(LoadOutcome outcome) {
  constexpr std::string_view kNames[] = {"completed", "failed", "cancelled", "unfinished"};
  return kNames[static_cast<size_t>(outcome)];
}

double Seconds(uint64_t ns) { return static_cast<double>(ns) / 1e9; }

void AddRecords(const ServeBenchReport& report, Json* json) {
  const auto add = [&](const char* key, auto value_of) {
    Json list = Json::array();
    for (size_t i = 0; i < report.repeats.size(); ++i) {
      for (const LoadRecord& record : report.repeats[i].run.records) {
        list.push_back(value_of(record, i));
      }
    }
    (*json)[key] = std::move(list);
  };
  using Record = const LoadRecord&;
  add("input_lens", [](Record r, size_t) { return Json(r.prompt_tokens); });
  add("output_lens", [](Record r, size_t) { return Json(r.output_tokens); });
  add("ttfts", [](Record r, size_t) { return Json(Seconds(r.first_ns)); });
  add("itls", [](Record r, size_t) {
    Json gaps = Json::array();
    for (const uint64_t gap : r.gaps_ns) gaps.push_back(Seconds(gap));
    return gaps;
  });
  add("latencies", [](Record r, size_t) { return Json(Seconds(r.last_ns)); });
  add("start_times", [](Record r, size_t) { return Json(Seconds(r.start_ns)); });
  add("queue_times", [](Record r, size_t) {
    return r.started ? Json(Seconds(r.start_ns - r.arrival_ns)) : Json(nullptr);
  });
  add("generated_texts", [](Record r, size_t) { return Json(r.text); });
  add("errors", [](Record r, size_t) { return Json(r.error); });
  add("outcomes", [](Record r, size_t) { return Json(OutcomeName(r.outcome)); });
  add("cached_tokens_by_request",
      [](Record r, size_t) { return r.cached_tokens ? Json(*r.cached_tokens) : Json(nullptr); });
  add("finish_reasons", [](Record r, size_t) { return Json(r.finish_reason); });
  add("receipts", [](Record r, size_t) { return Json(r.receipt); });
  add("request_repeats", [](Record, size_t repeat) { return Json(repeat); });
}

}  // namespace

std::string ServeBenchText(const ServeBenchReport& report) {
  const ServeBenchOptions& options = report.options;
  std::string text = report.workload + "\n";
  if (report.repeats.empty()) return text + "Interrupted before the first request.\n";
  text += fmt::format("{}{}, model {}, {}\n", options.url, options.endpoint, options.model,
                      SeedsText(report));
  const std::vector<Figures> runs = AllFigures(report);
  text += Header(" Serving Benchmark Result ", '=');
  text += FigureLines(runs, kEnds);
  if (options.max_concurrency > 0) {
    text += fmt::format("{:<40} {}\n", "Maximum request concurrency:", options.max_concurrency);
  }
  if (options.request_rate && !std::isinf(*options.request_rate)) {
    text += fmt::format("{:<40} {:.2f}\n", "Request rate configured (RPS):", *options.request_rate);
  }
  text += FigureLines(runs, kTotals);
  text += LatencyBlocks(runs, options.figures);
  text += Block("Prompts Seen Before", runs, kReuse);
  text += Block("Server's Cache", runs, kCache);
  text += ErrorLines(report);
  return text + Header("", '=') + Notes(report, runs);
}

std::string ServeBenchJson(const ServeBenchReport& report, bool records) {
  const std::vector<Figures> runs = AllFigures(report);
  Json json = SettingsJson(report);
  Json spreads = Json::object();
  for (const std::string& key : AllKeys(runs)) {
    const Spread spread = *SpreadOf(runs, key);
    json[key] = MeanJson(spread.mean);
    spreads[key] = {
        {"mean", spread.mean}, {"min", spread.min}, {"max", spread.max}, {"std", spread.std}};
  }
  json["spread"] = std::move(spreads);
  json["repeats"] = Json::array();
  for (const ServeRepeat& repeat : report.repeats) {
    Json one = {{"seed", repeat.seed}};
    for (const Figure& figure : repeat.figures.list()) one[figure.key] = FigureJson(figure);
    json["repeats"].push_back(std::move(one));
  }
  if (records) AddRecords(report, &json);
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string ProgressLine(const std::string& phase, const LoadProgress& progress, size_t columns) {
  const double share = progress.total == 0 ? 0
                                           : static_cast<double>(progress.ended) /
                                                 static_cast<double>(progress.total);
  const double rate =
      progress.seconds > 0 ? static_cast<double>(progress.pieces) / progress.seconds : 0;
  std::string after = fmt::format(" {}/{}  {} running  {:.0f} tok/s", progress.ended,
                                  progress.total, progress.running, rate);
  if (progress.failed > 0) after += fmt::format("  {} failed", progress.failed);
  const size_t used = phase.size() + after.size() + 4;
  const size_t room = columns > used ? std::min<size_t>(columns - used, 40) : 0;
  const auto full = static_cast<size_t>(share * static_cast<double>(room));
  std::string line = phase;
  if (room >= 5) {
    line += fmt::format(" [{}{}]", std::string(full, '#'), std::string(room - full, '.'));
  }
  line += after;
  return line.substr(0, columns > 0 ? columns - 1 : 0);
}

}  // namespace tessera
