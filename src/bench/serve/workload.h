// SPDX-License-Identifier: Apache-2.0
//
// A Workload is a list of prompts with the lengths of their answers, made anew for every seed:
//
//   random          prompts of token ids that share nothing, or a prefix of --prefix-len tokens
//   shared-context  contexts=C texts of tokens=L ids; each of questions=N prompts is one of them,
//                   drawn evenly, and question=Q ids of its own
//   a trace         src/trace's formats: lengths divided by --trace-scale, equal blocks equal, the
//                   arrival times of the file (an agentic trace's sessions all begin at 0)
//   a file          JSONL: {"prompt": text or ids, or "messages": […], "max_tokens": n}
//
// Same seed and vocabulary, same prompts, on every machine. Two seeds share no token sequence but
// by chance, so that a repeat of a load does not find its own prompts in the server's cache; a
// file's prompts are the same for every seed.
//
// Failure: kInvalidArgument naming the flag; kBadFile path:line; kIo.
// Threads: const after Open.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace tessera {

// One of tokens, text and messages.
struct LoadPrompt {
  std::vector<int32_t> tokens;
  std::string text;
  std::string messages;  // a JSON array
  uint32_t output_tokens = 0;
  double arrival_s = 0;  // of a trace
};

struct WorkloadOptions {
  std::string spec;          // random or shared-context[:key=value,…]; empty: random
  std::string trace_path;    // instead
  std::string prompts_path;  // instead
  uint32_t trace_scale = 16;
  double time_scale = 1;  // seconds of the run for one of the trace
  std::optional<uint32_t> prompt_count;
  std::optional<uint32_t> input_tokens;   // of random
  std::optional<uint32_t> output_tokens;  // of every workload
  std::optional<uint32_t> prefix_tokens;  // of random
  std::optional<double> range_ratio;      // of random: lengths within n·(1 ± r)
  bool chat = false;                      // prompts are for /v1/chat/completions
};

class Workload {
 public:
  static Result<std::unique_ptr<Workload>> Open(const WorkloadOptions& options);
  virtual ~Workload() = default;

  // In the order of their arrival.
  virtual std::vector<LoadPrompt> Prompts(uint64_t seed, uint32_t vocabulary) const = 0;
  // Its prompts know when they come.
  virtual bool timed() const { return false; }
  // What a report says of it, as one line.
  virtual std::string Describe() const = 0;
  // XXH3 of the file it was read from, 16 hex digits; empty when there is none.
  virtual std::string file_hash() const { return {}; }
};

}  // namespace tessera
