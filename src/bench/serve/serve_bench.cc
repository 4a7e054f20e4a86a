// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/serve_bench.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/random.h"
#include "bench/serve/arrivals.h"
#include "bench/serve/cache_figures.h"
#include "bench/serve/repeated_prefixes.h"
#include "port/cpu.h"

namespace tessera {
namespace {

// Streams of a repeat's seed, apart from the workload's, which are below 16.
enum Stream : uint64_t { kArrivals = 16, kCancelled, kCancelAt, kWarmups };

using Ask = std::function<Result<std::string>(const char* method, const std::string& path)>;

Result<bool> IsChat(const std::string& endpoint) {
  if (endpoint.starts_with('/') && endpoint.find_first_of(" \r\n") == std::string::npos) {
    if (endpoint.ends_with("/chat/completions")) return true;
    if (endpoint.ends_with("/completions")) return false;
  }
  return InvalidArgument(fmt::format(
      "--endpoint: expected /v1/completions or /v1/chat/completions, found '{}'", endpoint));
}

// How many tokens a model of /v1/models has; 0 when it does not say.
uint32_t VocabularyOf(const nlohmann::json& model) {
  const auto meta = model.find("meta");
  if (meta == model.end() || !meta->is_object()) return 0;
  const auto count = meta->find("n_vocab");
  if (count == meta->end() || !count->is_number_unsigned()) return 0;
  return static_cast<uint32_t>(std::min<uint64_t>(count->get<uint64_t>(), INT32_MAX));
}

// The server's first model where none is wanted, and the vocabulary of the wanted one, or of the
// first when the server has it under a name that it does not list.
Status AskModel(const Ask& ask, std::string* wanted, uint32_t* vocabulary) {
  const Result<std::string> body = ask("GET", "/v1/models");
  if (!body) return wanted->empty() ? body.error() : Status::Ok();
  const auto json = nlohmann::json::parse(*body, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json* chosen = nullptr;
  if (json.is_object() && json.contains("data") && json["data"].is_array()) {
    for (const auto& model : json["data"]) {
      if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) continue;
      if (chosen == nullptr || model["id"] == *wanted) chosen = &model;
    }
  }
  if (chosen == nullptr) {
    return wanted->empty() ? IoError("GET /v1/models names no model: say which with --model")
                           : Status::Ok();
  }
  if (wanted->empty()) *wanted = (*chosen)["id"];
  if (*vocabulary == 0) *vocabulary = VocabularyOf(*chosen);
  return Status::Ok();
}

std::vector<PlannedRequest> Plan(const std::vector<LoadPrompt>& prompts,
                                 const ServeBenchOptions& options, bool timed, uint64_t seed) {
  std::vector<PlannedRequest> plan(prompts.size());
  const double rate = options.request_rate.value_or(INFINITY);
  const std::vector<double> arrivals = ArrivalTimes(prompts.size(), rate, options.burstiness,
                                                    CounterRandom(seed, Stream::kArrivals));
  const uint64_t cancelled_key = CounterRandom(seed, Stream::kCancelled);
  const uint64_t cancel_at_key = CounterRandom(seed, Stream::kCancelAt);
  for (size_t i = 0; i < prompts.size(); ++i) {
    plan[i].arrival_s = timed ? prompts[i].arrival_s : arrivals[i];
    plan[i].prompt_tokens = prompts[i].tokens.size();
    if (CounterUniform(cancelled_key, i) < options.cancel_fraction) {
      // Before the last token where there is one before it.
      const uint32_t most = std::max(prompts[i].output_tokens, 2u) - 1;
      plan[i].cancel_after_pieces =
          1 + static_cast<uint32_t>(CounterRandom(cancel_at_key, i) % most);
    }
  }
  return plan;
}

class ServeBench {
 public:
  explicit ServeBench(const ServeBenchOptions& options) { report_.options = options; }

  Status Prepare();
  Status WarmUp();
  Status Repeat(uint32_t index);
  bool stopped() const { return report_.stopped; }
  ServeBenchReport TakeReport() { return std::move(report_); }

 private:
  std::vector<LoadPrompt> WarmupPrompts() const;
  Result<LoadRun> Send(const std::vector<LoadPrompt>& prompts,
                       const std::vector<PlannedRequest>& plan, const std::string& phase) const;
  std::optional<CacheCounters> AskCache() const;
  const ServeBenchOptions& options() const { return report_.options; }

  ServeBenchReport report_;
  HttpTarget target_;
  std::unique_ptr<Workload> workload_;
  std::optional<RequestBodies> bodies_;
};

Status ServeBench::Prepare() {
  ServeBenchOptions& used = report_.options;
  TESSERA_ASSIGN_OR_RETURN(target_, ParseHttpTarget(used.url));
  TESSERA_ASSIGN_OR_RETURN(used.workload.chat, IsChat(used.endpoint));
  TESSERA_ASSIGN_OR_RETURN(workload_, Workload::Open(used.workload));
  TESSERA_RETURN_IF_ERROR(AskModel(used.ask, &used.model, &used.vocabulary));
  if (used.vocabulary == 0) used.vocabulary = kVocabularyUnknown;
  TESSERA_ASSIGN_OR_RETURN(
      bodies_, RequestBodies::Create({used.model, used.workload.chat, used.as_text,
                                      used.temperature, used.ignore_eos, used.extra_body}));
  report_.date = fmt::format("{:%Y%m%d-%H%M%S}", fmt::gmtime(std::time(nullptr)));
  report_.workload = workload_->Describe();
  report_.workload_hash = workload_->file_hash();
  report_.timed = workload_->timed() && !used.request_rate;
  report_.client_cpu = CpuModelName();
  report_.client_cpus = UsableCpuCount();
  if (used.max_concurrency > 0) {
    used.figures.metrics.emplace_back("client_queue_time");
    // An infinite rate makes them wait for as long as the run goes on: no latency of the server's.
    if (report_.timed || used.request_rate) {
      used.figures.metrics.emplace_back("e2el_including_client_queue");
    }
  }
  return Status::Ok();
}

Result<LoadRun> ServeBench::Send(const std::vector<LoadPrompt>& prompts,
                                 const std::vector<PlannedRequest>& plan,
                                 const std::string& phase) const {
  LoadClientOptions client;
  client.target = target_;
  client.path = options().endpoint;
  client.api_key = options().api_key;
  client.max_concurrency = options().max_concurrency;
  client.silence_ns = options().silence_seconds * 1'000'000'000;
  client.stop = options().stop;
  if (options().progress) {
    client.progress = [&](const LoadProgress& progress) { options().progress(phase, progress); };
  }
  return RunLoad(
      plan, [&](size_t i) { return bodies_->Body(prompts[i]); }, client);
}

std::vector<LoadPrompt> ServeBench::WarmupPrompts() const {
  const std::vector<LoadPrompt> prompts =
      workload_->Prompts(CounterRandom(options().seed, Stream::kWarmups), options().vocabulary);
  std::vector<LoadPrompt> warmups;
  for (uint32_t i = 0; i < options().warmups; ++i) {
    warmups.push_back(prompts[i % prompts.size()]);
  }
  return warmups;
}

Status ServeBench::WarmUp() {
  if (options().warmups == 0) return Status::Ok();
  const std::vector<LoadPrompt> prompts = WarmupPrompts();
  std::vector<PlannedRequest> plan(prompts.size());
  TESSERA_ASSIGN_OR_RETURN(const LoadRun run, Send(prompts, plan, "warm-up"));
  report_.stopped = run.stopped;
  if (run.stopped) return Status::Ok();
  for (const LoadRecord& record : run.records) {
    if (record.outcome == LoadOutcome::kCompleted) return Status::Ok();
  }
  return {StatusCode::kFailed,
          fmt::format("no warm-up of {} completed: {}", plan.size(), run.records[0].error)};
}

std::optional<CacheCounters> ServeBench::AskCache() const {
  const Result<std::string> body = options().ask("GET", "/cache");
  return body ? ParseCacheCounters(*body) : std::nullopt;
}

Status ServeBench::Repeat(uint32_t index) {
  const uint64_t seed = options().seed + index;
  const std::vector<LoadPrompt> prompts = workload_->Prompts(seed, options().vocabulary);
  report_.prompt_count = prompts.size();
  const std::vector<PlannedRequest> plan = Plan(prompts, options(), report_.timed, seed);
  if (options().clear_cache) {
    const Result<std::string> cleared = options().ask("DELETE", "/cache");
    if (!cleared) return cleared.error();
  }
  const std::optional<CacheCounters> before = AskCache();
  TESSERA_ASSIGN_OR_RETURN(
      LoadRun run,
      Send(prompts, plan,
           options().repeats > 1 ? fmt::format("repeat {} of {}", index + 1, options().repeats)
                                 : "requests"));
  const std::optional<CacheCounters> after = before ? AskCache() : std::nullopt;
  Figures figures = LoadFigures(run, options().figures);
  if (const auto repeated = CountRepeatedPrefixes(prompts, run.records)) {
    figures.AddCount("repeated_input_tokens", repeated->repeated_tokens);
    figures.AddCount("recomputed_input_tokens", repeated->recomputed_tokens);
  }
  if (after) AddCacheFigures(*before, *after, &figures);
  report_.stopped = run.stopped;
  report_.repeats.push_back({seed, std::move(run), std::move(figures)});
  return Status::Ok();
}

}  // namespace

Result<ServeBenchReport> RunServeBench(const ServeBenchOptions& options) {
  ServeBench bench(options);
  TESSERA_RETURN_IF_ERROR(bench.Prepare());
  TESSERA_RETURN_IF_ERROR(bench.WarmUp());
  for (uint32_t i = 0; i < options.repeats && !bench.stopped(); ++i) {
    TESSERA_RETURN_IF_ERROR(bench.Repeat(i));
  }
  return bench.TakeReport();
}

}  // namespace tessera
