// SPDX-License-Identifier: Apache-2.0
//
// tessera run: one prompt, its continuation on stdout as it is generated, or the whole result as
// JSON. Greedy unless told otherwise. An interrupt ends generation cleanly: what there is is
// printed, and the exit code is 130; a second one ends the process. When stdout goes away the
// request is cancelled and the exit code is 5.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>

#include "base/bytes.h"
#include "cli/command_line.h"
#include "cli/common_options.h"
#include "cli/interrupt.h"
#include "cli/memory_report.h"
#include "cli/prompt_source.h"
#include "cli/run_result.h"
#include "cli/verbs.h"
#include "port/process_memory.h"

namespace tessera::cli {
namespace {

constexpr uint32_t kDefaultTokens = 128;
// How soon an interrupt is seen: a signal handler cannot notify a condition variable.
constexpr auto kPollInterval = std::chrono::milliseconds(50);

struct RunOptions {
  CommonOptions common;
  PromptSource prompt;
  std::optional<uint32_t> max_tokens;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  std::optional<int> logprobs;
  std::optional<int> prompt_logprobs;
  bool ignore_eos = false;
  bool json = false;
};

// Events cross from the loop thread, which must not wait for a slow terminal, to the main thread.
class EventQueue {
 public:
  // `engine`, when given, is asked for its memory at the first token, while the request holds some.
  RequestSink sink(const Engine* engine) {
    return [this, engine](const RequestEvent& event) {
      std::optional<StoreStats> store;
      if (engine != nullptr && !store_ && !event.tokens.empty()) store = engine->Stats().store;
      std::lock_guard lock(mutex_);
      if (store) store_ = std::move(store);
      result_.Add(event);
      changed_.notify_one();
    };
  }

  // New text since the last call; waits a little when there is none and it has not finished.
  std::string TakeText() {
    std::unique_lock lock(mutex_);
    const auto ready = [this] { return taken_ < result_.text.size() || Finished(); };
    changed_.wait_for(lock, kPollInterval, ready);
    std::string text = result_.text.substr(taken_);
    taken_ = result_.text.size();
    return text;
  }
  // All text taken and the final event seen.
  bool Done() {
    std::lock_guard lock(mutex_);
    return Finished() && taken_ == result_.text.size();
  }
  // After Done.
  const RunResult& result() const { return result_; }
  const std::optional<StoreStats>& store() const { return store_; }

 private:
  bool Finished() const { return result_.finish != FinishReason::kNone; }

  std::mutex mutex_;
  std::condition_variable changed_;
  RunResult result_;
  std::optional<StoreStats> store_;
  size_t taken_ = 0;
};

Request MakeRequest(const RunOptions& options, const Prompt& prompt, const Engine& engine) {
  Request request;
  // Who types a prompt here may spell control tokens in it.
  request.prompt = prompt.tokens ? *prompt.tokens
                                 : engine.tokenizer().Encode(prompt.text, {.parse_special = true});
  const uint64_t context = engine.shape().context_length;
  const uint64_t left = context - std::min<uint64_t>(context, request.prompt.size());
  request.max_tokens =
      options.max_tokens.value_or(static_cast<uint32_t>(std::min<uint64_t>(kDefaultTokens, left)));
  request.sampling = options.sampling;
  request.stop = options.stop;
  request.ignore_eos = options.ignore_eos;
  request.logprobs = options.logprobs.value_or(-1);
  request.prompt_logprobs = options.prompt_logprobs.value_or(-1);
  return request;
}

std::string DescribeSpeed(const RunResult& result) {
  const Speeds speeds = SpeedsOf(result);
  std::string text = fmt::format(
      "prompt       {} tokens ({} reused) in {:.1f} ms, {:.1f} tokens/s\n", result.prompt_tokens,
      result.cached_tokens, result.timings.prompt_ms, speeds.prompt_per_second);
  text += fmt::format("generation   {} tokens in {:.1f} ms, {:.1f} tokens/s\n",
                      result.completion_tokens, result.timings.predicted_ms,
                      speeds.predicted_per_second);
  return text + fmt::format("resident     {}, at most {}\n", FormatBytes(ResidentBytes()),
                            FormatBytes(PeakResidentBytes()));
}

// Streams text until the request has finished; a write error cancels it and is returned.
Status Follow(Engine& engine, RequestId id, EventQueue& queue, const RunOptions& options) {
  Status written;
  bool cancelled = false;
  while (!queue.Done()) {
    const std::string text = queue.TakeText();
    if (written.ok() && !options.json && !text.empty()) written = WriteResult(text);
    if (!cancelled && (Interrupted() || !written.ok())) {
      engine.Cancel(id);
      cancelled = true;
    }
  }
  return written;
}

int Finish(const RunOptions& options, const JsonRequest& json, const Engine& engine,
           const RunResult& result) {
  if (result.finish == FinishReason::kError) return ReportError(result.error);
  Status written;
  if (options.json) {
    written = WriteResult(ToJson(result, json, engine) + "\n");
  } else if (isatty(STDOUT_FILENO) != 0 && !result.text.ends_with('\n')) {
    written = WriteResult("\n");  // for the shell's next line; a pipe gets the text alone
  }
  if (!written.ok()) return ReportError(written);
  return result.finish == FinishReason::kCancelled ? kInterruptedCode : 0;
}

int Run(const RunOptions& options) {
  if (!options.json && (options.logprobs || options.prompt_logprobs)) {
    return ReportError(
        InvalidArgument("run: --logprobs and --prompt-logprobs are printed by --json alone"));
  }
  const Result<Prompt> prompt = ReadPrompt(options.prompt);
  if (!prompt) return ReportError(prompt.error());
  const Result<EngineOptions> engine_options = ToEngineOptions(options.common);
  if (!engine_options) return ReportError(engine_options.error());
  EventQueue queue;  // outlives the engine, whose loop calls its sink
  Result<std::unique_ptr<Engine>> created = Engine::Create(*engine_options);
  if (!created) return ReportError(created.error());
  Engine& engine = **created;
  if (options.common.stats) PrintNote(DescribeStart(engine));

  Request request = MakeRequest(options, *prompt, engine);
  const JsonRequest json = {.prompt = request.prompt,
                            .logprobs = options.logprobs.has_value(),
                            .prompt_logprobs = options.prompt_logprobs.has_value()};
  CatchFirstInterrupt();
  const Result<RequestId> id =
      engine.Submit(std::move(request), queue.sink(options.common.stats ? &engine : nullptr));
  if (!id) return ReportError(id.error());
  const Status written = Follow(engine, *id, queue, options);
  if (!written.ok()) return ReportError(written);
  const int code = Finish(options, json, engine, queue.result());
  if (options.common.stats) {
    if (!options.json && !queue.result().text.ends_with('\n')) PrintNote("\n");
    if (queue.store()) PrintNote(DescribeStore(*queue.store()));
    PrintNote(DescribeSpeed(queue.result()));
  }
  return code;
}

void AddPromptFlags(CLI::App& command, RunOptions* options) {
  const auto add = [&](const char* name, auto& value, const char* text, const char* help) {
    command.add_option(name, value, help)->option_text(text)->group("Prompt");
  };
  add("--prompt", options->prompt.text, "TEXT", "The text to continue");
  add("--prompt-file", options->prompt.file, "FILE",
      "Read it from a file, byte for byte; - is stdin");
  add("--prompt-tokens", options->prompt.tokens, "IDS", "Give it as token ids: 1,2,3");
}

void AddGenerationFlags(CLI::App& command, RunOptions* options) {
  const auto add = [&](const char* name, auto& value, const char* text, const char* help) {
    return command.add_option(name, value, help)->option_text(text)->group("Generation");
  };
  add("-n,--max-tokens", options->max_tokens, "N",
      "Tokens to generate at most (default 128, or what the context leaves); 0: prompt only");
  add("--temp", options->sampling.temperature, "T", "Temperature; 0 (default): always the best");
  add("--top-k", options->sampling.top_k, "K", "Sample from the K best (default 0: all)");
  add("--min-p", options->sampling.min_p, "P",
      "… from those at least P times as probable as the best (default 0)");
  add("--top-p", options->sampling.top_p, "P",
      "… from the best that together have probability P (default 1)");
  add("--seed", options->sampling.seed, "N", "Seed of the draws (default 0)");
  add("--stop", options->stop, "TEXT", "End before this text; may be given several times")
      ->expected(1)
      ->allow_extra_args(false)
      ->take_all();
  command.add_flag("--ignore-eos", options->ignore_eos, "Go on after the end-of-text token")
      ->group("Generation");
}

void AddOutputFlags(CLI::App& command, RunOptions* options) {
  const auto add = [&](const char* name, auto& value, const char* help) {
    command.add_option(name, value, help)->option_text("K")->group("Output");
  };
  command.add_flag("--json", options->json, "Print one JSON object instead of the text")
      ->group("Output");
  add("--logprobs", options->logprobs,
      "With --json: per token, its log-probability and the K best");
  add("--prompt-logprobs", options->prompt_logprobs,
      "With --json: per prompt position, the log-probability of what follows and the K best");
}

}  // namespace

Action AddRun(CLI::App& command) {
  auto options = std::make_shared<RunOptions>();
  options->common.max_running = 1;
  AddPromptFlags(command, options.get());
  AddGenerationFlags(command, options.get());
  AddOutputFlags(command, options.get());
  AddCommonOptions(command, &options->common);
  return [options] { return Run(*options); };
}

}  // namespace tessera::cli
