// SPDX-License-Identifier: Apache-2.0
//
// `bench serve`: a load against a running server, Tessera or another that speaks OpenAI's API, with
// the figures of `vllm bench serve`.
//
//   ask the server (model, vocabulary) --> warm up --> repeat 1 --> … --> repeat N --> report
//
// Repeat k has the seed `seed` + k: prompts of its own, other arrivals, other cancellations, so
// that none meets its own prompts in the server's cache. Warm-ups have one of their own too. A file
// of prompts is the same for all.
//
// Open loop: requests come at `request_rate` or as the trace has them, whatever the server does.
// Closed loop: an infinite rate and `max_concurrency`. With both, those over the limit wait, and
// that wait is a figure.
//
// Failure: kInvalidArgument naming the flag; what opening the workload and asking the server give;
// kFailed when every warm-up fails. Requests that fail are counted by kind and are no error.
// Threads: one call at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/serve/figures.h"
#include "bench/serve/load_client.h"
#include "bench/serve/load_figures.h"
#include "bench/serve/request_body.h"
#include "bench/serve/workload.h"

namespace tessera {

struct ServeBenchOptions {
  std::string url = "http://127.0.0.1:8080";
  std::string endpoint = "/v1/completions";
  std::string api_key;
  std::string model;        // empty: the first of /v1/models
  uint32_t vocabulary = 0;  // 0: what the server says, else kVocabularyUnknown
  WorkloadOptions workload;
  std::optional<double> request_rate;  // absent: the trace's times, or infinite
  double burstiness = 1;
  uint32_t max_concurrency = 0;  // 0: no limit
  bool as_text = false;
  double temperature = 0;
  bool ignore_eos = false;
  std::string extra_body;
  double cancel_fraction = 0;
  uint64_t silence_seconds = 300;
  uint32_t warmups = 0;
  uint32_t repeats = 3;
  uint64_t seed = 0;
  bool clear_cache = false;  // DELETE /cache before each repeat
  FigureOptions figures;
  // The body of the server's answer to a GET or DELETE.
  std::function<Result<std::string>(const char* method, const std::string& path)> ask;
  std::function<bool()> stop;
  std::function<void(const std::string& phase, const LoadProgress&)> progress;
};

// Ids that every vocabulary of a language model has.
inline constexpr uint32_t kVocabularyUnknown = 1000;

struct ServeRepeat {
  uint64_t seed = 0;
  LoadRun run;
  Figures figures;
};

struct ServeBenchReport {
  ServeBenchOptions options;  // model, vocabulary and metrics as they were used
  std::string date;           // 20261130-093000, UTC
  std::string workload;
  std::string workload_hash;
  bool timed = false;  // arrivals are the trace's
  size_t prompt_count = 0;
  std::string client_cpu;
  int client_cpus = 1;
  bool stopped = false;  // by an interrupt: the last repeat is a part of one
  std::vector<ServeRepeat> repeats;
};

Result<ServeBenchReport> RunServeBench(const ServeBenchOptions& options);

}  // namespace tessera
