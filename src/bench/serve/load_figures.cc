// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/load_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "bench/samples.h"
#include "port/clock.h"

namespace tessera {
namespace {

bool Completed(const LoadRecord& record) { return record.outcome == LoadOutcome::kCompleted; }

double TpotMs(const LoadRecord& record) {
  if (record.output_tokens <= 1) return 0;
  return NsToMs(record.last_ns - record.first_ns) / static_cast<double>(record.output_tokens - 1);
}

bool Meets(const LoadRecord& record, const Objectives& objectives) {
  return NsToMs(record.first_ns) <= objectives.ttft.value_or(INFINITY) &&
         TpotMs(record) <= objectives.tpot.value_or(INFINITY) &&
         NsToMs(record.last_ns) <= objectives.e2el.value_or(INFINITY);
}

std::vector<double> LatenciesMs(const LoadRun& run, std::string_view metric) {
  std::vector<double> values;
  for (const LoadRecord& record : run.records) {
    if (!Completed(record)) continue;
    const double queued = NsToMs(record.start_ns - record.arrival_ns);
    if (metric == "ttft") values.push_back(NsToMs(record.first_ns));
    if (metric == "tpot" && record.output_tokens > 1) values.push_back(TpotMs(record));
    if (metric == "itl") {
      for (const uint64_t gap : record.gaps_ns) values.push_back(NsToMs(gap));
    }
    if (metric == "e2el") values.push_back(NsToMs(record.last_ns));
    if (metric == "client_queue_time") values.push_back(queued);
    if (metric == "e2el_including_client_queue") {
      values.push_back(queued + NsToMs(record.last_ns));
    }
  }
  return values;
}

void AddLatencies(const LoadRun& run, std::string_view metric, const FigureOptions& options,
                  Figures* figures) {
  const std::vector<double> values = LatenciesMs(run, metric);
  Samples samples;
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    samples.Add(value);
    sum += value;
  }
  const double count = std::max<double>(1, static_cast<double>(values.size()));
  const double mean = sum / count;
  for (const double value : values) squares += (value - mean) * (value - mean);
  figures->Add(fmt::format("mean_{}_ms", metric), mean);
  figures->Add(fmt::format("median_{}_ms", metric), samples.Median());
  figures->Add(fmt::format("std_{}_ms", metric), std::sqrt(squares / count));
  for (const double percentile : options.percentiles) {
    figures->Add(fmt::format("{}_{}_ms", PercentileName(percentile), metric),
                 samples.Quantile(percentile / 100));
  }
}

// Pieces in the fullest second of completed answers, seconds counted from the first start.
uint64_t PeakPieces(const LoadRun& run) {
  uint64_t first_start = UINT64_MAX;
  for (const LoadRecord& record : run.records) {
    if (Completed(record)) first_start = std::min(first_start, record.start_ns);
  }
  std::map<uint64_t, uint64_t> by_second;
  for (const LoadRecord& record : run.records) {
    if (!Completed(record)) continue;
    uint64_t at = record.start_ns + record.first_ns - first_start;
    ++by_second[at / 1'000'000'000];
    for (const uint64_t gap : record.gaps_ns) {
      at += gap;
      ++by_second[at / 1'000'000'000];
    }
  }
  uint64_t peak = 0;
  for (const auto& [second, pieces] : by_second) peak = std::max(peak, pieces);
  return peak;
}

// Of completed requests, [start, start + latency) each.
uint64_t PeakConcurrency(const LoadRun& run) {
  std::vector<std::pair<uint64_t, int>> edges;
  for (const LoadRecord& record : run.records) {
    if (!Completed(record)) continue;
    edges.emplace_back(record.start_ns, 1);
    edges.emplace_back(record.start_ns + record.last_ns, -1);
  }
  std::sort(edges.begin(), edges.end());
  int64_t now = 0;
  int64_t peak = 0;
  for (const auto& [at, step] : edges) peak = std::max(peak, now += step);
  return static_cast<uint64_t>(peak);
}

struct Totals {
  uint64_t ended[4] = {};  // by LoadOutcome
  uint64_t good = 0;
  uint64_t input = 0;
  uint64_t output = 0;
  uint64_t cached = 0;
  bool cached_known = true;
  std::map<std::string, uint64_t> failures;

  uint64_t of(LoadOutcome outcome) const { return ended[static_cast<size_t>(outcome)]; }
};

Totals Count(const LoadRun& run, const Objectives& objectives) {
  Totals totals;
  for (const LoadRecord& record : run.records) {
    ++totals.ended[static_cast<size_t>(record.outcome)];
    if (record.outcome == LoadOutcome::kFailed) {
      std::string name(LoadFailureName(record.failure));
      if (record.failure == LoadFailure::kStatus) name += fmt::format("_{}", record.status);
      ++totals.failures[name];
    }
    if (!Completed(record)) continue;
    if (Meets(record, objectives)) ++totals.good;
    totals.input += record.prompt_tokens;
    totals.output += record.output_tokens;
    totals.cached += record.cached_tokens.value_or(0);
    totals.cached_known = totals.cached_known && record.cached_tokens.has_value();
  }
  return totals;
}

}  // namespace

Result<Objectives> ParseObjectives(const std::vector<std::string>& items) {
  Objectives objectives;
  for (const std::string& item : items) {
    const size_t colon = std::min(item.find(':'), item.size());
    const std::string name = item.substr(0, colon);
    std::optional<double>* objective = name == "ttft"   ? &objectives.ttft
                                       : name == "tpot" ? &objectives.tpot
                                       : name == "e2el" ? &objectives.e2el
                                                        : nullptr;
    const std::string_view digits = std::string_view(item).substr(std::min(colon + 1, item.size()));
    double ms = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), ms);
    if (objective == nullptr || objective->has_value() || error != std::errc() ||
        end != digits.data() + digits.size() || !std::isfinite(ms) || ms < 0) {
      return InvalidArgument(fmt::format(
          "--goodput: expected each of ttft:MS, tpot:MS and e2el:MS once at most, found '{}'",
          item));
    }
    *objective = ms;
  }
  return objectives;
}

std::string PercentileName(double percentile) { return fmt::format("p{:g}", percentile); }

Figures LoadFigures(const LoadRun& run, const FigureOptions& options) {
  const Totals totals = Count(run, options.objectives);
  const double seconds = static_cast<double>(std::max<uint64_t>(run.duration_ns, 1)) / 1e9;
  const auto rate = [&](uint64_t count) { return static_cast<double>(count) / seconds; };
  const uint64_t completed = totals.of(LoadOutcome::kCompleted);
  Figures figures;
  figures.Add("duration", seconds);
  figures.AddCount("completed", completed);
  figures.AddCount("failed", totals.of(LoadOutcome::kFailed));
  figures.AddCount("cancelled", totals.of(LoadOutcome::kCancelled));
  figures.AddCount("unfinished", totals.of(LoadOutcome::kUnfinished));
  figures.AddCount("total_input_tokens", totals.input);
  figures.AddCount("total_output_tokens", totals.output);
  figures.Add("request_throughput", rate(completed));
  if (options.objectives.any()) figures.Add("request_goodput", rate(totals.good));
  figures.Add("output_throughput", rate(totals.output));
  figures.Add("total_token_throughput", rate(totals.input + totals.output));
  figures.AddCount("max_output_tokens_per_s", PeakPieces(run));
  figures.AddCount("max_concurrent_requests", PeakConcurrency(run));
  for (const LatencyMetric& metric : kLatencyMetrics) {
    if (std::find(options.metrics.begin(), options.metrics.end(), metric.key) !=
        options.metrics.end()) {
      AddLatencies(run, metric.key, options, &figures);
    }
  }
  if (completed > 0 && totals.cached_known) figures.AddCount("cached_tokens", totals.cached);
  for (const auto& [name, count] : totals.failures) figures.AddCount("failed_" + name, count);
  figures.Add("client_busy_share", run.busy_share);
  return figures;
}

}  // namespace tessera
