// SPDX-License-Identifier: Apache-2.0
//
// Engine runs requests on one model from one memory budget. One loop thread forms a step after
// another: prefill chunks and decodes of many sequences together, each step atomic per sequence.
//
// A request:
//
//   Submit --> Waiting --admit--> Prefill --last prompt token--> Decode --finish--> Finished
//                 ^  |               |                             |
//                 |  |               +--- preempt: pinned or to be recomputed ---+
//                 +--|-----------------------------------------------------------+
//                    +--- Cancel: takes effect at the end of the running step ---> Finished(cancelled)
//
// E1  The budget is never exceeded: a request is admitted only with a reservation, over all kinds,
//     for what of its prompt is to be computed, its live state and one block to decode into, and
//     grows by blocks; when there is none it, or one behind it, is preempted (scheduler.h). One that
//     could never fit alone is refused by Submit with kNoMemory and the bytes needed.
// E2  A request's tokens, log-probabilities and receipt do not depend on what else runs, nor on
//     whether it was preempted: what was sampled is kept and computed again, never sampled again.
// E3  Each request gets exactly one final event (finish set), after which its sink is not called.
// E4  What is reused was computed by a request with the same salt, or is public (isolate_after), and
//     the same model and state type, and is the bits the request would have computed: E2 holds with
//     and without it.
// E5  No heap allocation per decode step by the loop once a request is running, beyond what its
//     events carry (text of the sink).
//
// Failure: Create and Submit return a Status; nothing throws. When the loop stops, requests that
// have not finished end with FinishReason::kCancelled.
// Threads: all methods from any thread. Sinks run on the loop thread: they must not block, and of
// the engine they may call Cancel and Stats only.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/strong_id.h"
#include "compute/model/model_shape.h"
#include "compute/tokenizer/tokenizer.h"
#include "engine/histogram.h"
#include "memory/store/state_store.h"

namespace tessera {

// Whose states a request may reuse. kOff: those of all requests with its cache_salt. kKey: of those
// with its isolation_key and cache_salt. kRequest: each request has a salt of its own, so nobody's.
// Under each of them a request may declare a beginning that all share (Request::isolate_after).
enum class IsolateKind : uint8_t { kOff, kKey, kRequest };
std::string_view IsolateName(IsolateKind kind);  // off, key, request

struct FinishedRequest;
using FinishedObserver = std::function<void(const FinishedRequest&)>;

struct EngineOptions {
  std::string model_path;
  uint64_t budget_bytes = 0;  // 0: the default rule of DESIGN §8, see Engine::memory()
  OrganisationSpec organisation;
  StateType state_type = StateType::kF32;  // of the recurrent state; changes results
  uint32_t max_running = 16;               // sequences in one step
  uint32_t chunk_tokens = 256;             // new tokens in one step; at least max_running
  // Of every pool this share, in whole pages, stays free or cached when a request is admitted beside
  // others: room for those that run to grow. From 0 to below 1.
  double headroom = 0;
  int threads = 0;  // 0: the CPUs this process may use
  std::string isa;  // TESSERA_ISA; empty: best
  // Reuse of prefixes. It changes when things are computed, never what comes out.
  bool reuse = true;             // false: nothing is kept and nothing looked up
  uint32_t checkpoint_grid = 1;  // checkpoints at multiples of it only
  PlacementSpec placement;
  EvictionPolicy eviction = EvictionPolicy::kValue;
  RetentionSpec retention;
  IsolateKind isolate = IsolateKind::kOff;
  // Called when a request has ended, on the loop thread and before its final event, or was refused,
  // on the thread that submitted it: from any number of threads. Must not block.
  FinishedObserver on_finished;
  // For tests: freed state memory is filled with NaN, pages are handed out in a random order.
  bool poison = false;
  uint64_t shuffle_seed = 0;
};

// Added to a token's logit.
struct LogitBias {
  TokenId id = -1;
  float bias = 0;
};

// All optional; the defaults are greedy decoding.
struct SamplingOptions {
  float temperature = 0;  // 0: greedy
  uint32_t top_k = 0;     // 0: off
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;  // draws depend on (seed, absolute position) only
  // Of logits, before sampling; logit_adjuster.h says how.
  float presence_penalty = 0;              // on tokens of the answer so far
  float frequency_penalty = 0;             // on them for each time
  float repetition_penalty = 1;            // above 0; on tokens of prompt and answer
  std::vector<LogitBias> logit_bias = {};  // at most 1024
};

struct Request {
  std::vector<TokenId> prompt;  // at least one id, all in the vocabulary
  uint32_t max_tokens = 16;     // 0: prompt only (for prompt_logprobs)
  SamplingOptions sampling;
  std::vector<std::string> stop;  // generation ends before the first of these in the text
  std::vector<TokenId> stop_ids;  // generation ends with any of these, which is not in the text
  bool ignore_eos = false;
  // Special tokens whose text is part of the answer's text; of others there is none.
  std::vector<TokenId> shown_special;
  // Until so many tokens are generated no token that would end the text is sampled, and stop
  // strings are text. At most max_tokens.
  uint32_t min_tokens = 0;
  int logprobs = -1;  // per generated token: this many alternatives, at most 100; -1 none
  // Per prompt position, likewise: entry i is the distribution after prompt token i, its `chosen`
  // the token that follows (after the last one: the one sampled, or the most probable when
  // max_tokens is 0).
  int prompt_logprobs = -1;
  // Isolation: what is kept of this request is found only by requests with the same salt, and it
  // finds only theirs. At most 256 bytes; "" is the state that all requests without one share.
  std::string cache_salt;
  // Of a request that is isolated, by its salt or by EngineOptions::isolate: its first so many
  // tokens, rounded down to a multiple of 16, are shared all the same, with requests that are not
  // isolated and with those that say so too. At most the prompt's length.
  uint32_t isolate_after = 0;
  // Whose request it is, with IsolateKind::kKey: what the server calls the API key it came with. At
  // most 256 bytes, any; "" is a key like any other.
  std::string isolation_key;
  // Lower ones are admitted first and preempted last; equal ones in order of arrival. Whatever its
  // priority, no request waits for ever (scheduler.h, P7).
  int32_t priority = 0;
  // Positions of the prompt at which a checkpoint is worth its bytes: where text that other requests
  // begin with ends. At most 64, each from 1 to the prompt's length.
  std::vector<uint32_t> checkpoint_at;
  // Positions at which messages of the prompt end, where it is known to have any: ascending, each
  // from 1 to the prompt's length. Under the default placement the first and the last of them are
  // boundaries too (memory/prefix/placement.h).
  std::vector<uint32_t> message_ends;
  // False: the whole prompt is computed, whatever is known of it. So it is with prompt_logprobs,
  // which need the row of every position.
  bool reuse = true;
  bool report_progress = false;  // events while the prompt is computed, too
};

struct TokenLogprob {
  TokenId id = -1;
  float logprob = 0;
};
// The chosen (or given) token first, then the `logprobs` most probable, best first.
struct PositionLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};

// kRefused is of requests that Submit did not take, in books alone: they have no events.
enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError, kRefused };
inline constexpr size_t kFinishReasons = 6;

// Why a request was not taken: something in it is wrong, it is longer than the model's context, it
// could never fit the budget, the engine is shutting down.
enum class RefusalReason : uint8_t { kInvalid, kContext, kBudget, kShuttingDown };
inline constexpr size_t kRefusalReasons = 4;
std::string_view RefusalName(RefusalReason reason);  // invalid, context, budget, shutting_down

struct RequestTimings {  // milliseconds
  double queue_ms = 0;
  double prompt_ms = 0;     // first step began → first token
  double predicted_ms = 0;  // first token → last token

  double total_ms() const { return queue_ms + prompt_ms + predicted_ms; }
};

struct PromptProgress {
  uint32_t total = 0;
  uint32_t cached = 0;     // not computed again
  uint32_t processed = 0;  // cached ones included
  double elapsed_ms = 0;   // since its first step began
};

// What a request's sink receives: after a step that produced something for it.
struct RequestEvent {
  std::span<const TokenId>
      tokens;        // new tokens; the stopping one (EOS, stop_ids) is not among them
  std::string text;  // text that became certain: valid UTF-8, stop strings held back
  std::span<const PositionLogprobs> logprobs;         // of `tokens`, when asked for
  std::span<const PositionLogprobs> prompt_logprobs;  // once, with the first event
  // After a step that computed part of the prompt, when asked for.
  std::optional<PromptProgress> progress;
  FinishReason finish = FinishReason::kNone;
  Status error;  // with kError
  // With the final event:
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;      // of the prompt: not computed again
  uint32_t completion_tokens = 0;  // sampled, the stopping one included
  uint64_t receipt = 0;            // DESIGN §8
  RequestTimings timings;
  MatchReport match;  // what was found of the prompt, and why the rest was computed
};
using RequestSink = std::function<void(const RequestEvent&)>;

using RequestId = StrongId<struct RequestIdTag, uint64_t>;

// A request that has ended, for whoever keeps books.
struct FinishedRequest {
  RequestId id;
  FinishReason finish = FinishReason::kNone;
  Status error;  // with kError and kRefused
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;
  uint32_t completion_tokens = 0;
  bool salted = false;
  bool admitted = false;  // else there was no look-up: `match` says nothing
  MatchReport match;
  uint64_t receipt = 0;
  RequestTimings timings;
};

// A request that was not taken, as far as it was known.
struct RefusedRequest {
  RefusalReason reason = RefusalReason::kInvalid;
  Status error;
  uint32_t prompt_tokens = 0;
  uint32_t max_tokens = 0;
  bool salted = false;  // it has a cache_salt; what --isolate does is the engine's to say
};

// A request as far as it is. `summary.finish` is kNone until it has ended; it waits until
// `summary.admitted`, and its prompt is done with the first of `summary.completion_tokens`.
struct RequestProgress {
  FinishedRequest summary;
  uint32_t computed = 0;      // tokens that have state, those reused included
  uint64_t submitted_ns = 0;  // port/clock.h
};

// What waits or runs, in the order it came, and what ended last, newest first (request_board.h).
struct RequestList {
  uint64_t now_ns = 0;
  std::vector<RequestProgress> live;
  std::vector<RequestProgress> ended;
};

// Memory fixed at start, for printing: the budget is state only, the rest is outside it.
struct EngineMemory {
  uint64_t weight_bytes = 0;
  uint64_t budget_bytes = 0;
  uint64_t arena_bytes = 0;
  uint64_t activation_bytes = 0;
  uint64_t metadata_bytes = 0;  // tables of ledger, sequences, tokenizer (estimate)
  std::string budget_rule;      // how the budget was chosen, one line
};

struct EngineStats {
  StoreStats store;
  uint32_t running = 0;
  uint32_t waiting = 0;        // all that do not run: the queue, preempted and pinned ones among it
  uint32_t pinned = 0;         // of these: preempted, and their state is kept
  uint64_t steps = 0;          // passes of the model
  uint64_t prompt_tokens = 0;  // computed, each once
  uint64_t recomputed_tokens = 0;  // computed again after a preemption, sampled ones among them
  uint64_t joins = 0;              // times a request waited for another's prefill
  uint64_t completion_tokens = 0;
  uint64_t preemptions_pinned = 0;
  uint64_t preemptions_recomputed = 0;
  uint64_t pins_given_up = 0;  // pinned, and then to be recomputed after all
  uint64_t resumptions = 0;    // of preempted requests
  // Times that memory was asked for and not there: to be admitted or resumed; to grow.
  uint64_t admissions_refused = 0;
  uint64_t growths_refused = 0;
  uint64_t plans = 0;    // steps planned
  uint64_t plan_ns = 0;  // spent on planning them, look-ups and evictions among it
  uint64_t plan_ns_max = 0;
  uint64_t requests_finished = 0;
  uint64_t requests_cancelled = 0;
};

// What of the cache a client wants kept longer than the rest.
struct PinRequest {
  std::vector<TokenId> prompt;
  std::string cache_salt;
  uint32_t isolate_after = 0;
  std::string isolation_key;
  uint32_t ttl_s = 0;  // 0: until it is released
};

// What requests took and how they ended, since the start (request_meter.h). Of each request:
struct RequestMetrics {
  std::array<uint64_t, kFinishReasons> finished{};  // by FinishReason; none of them refused
  std::array<uint64_t, kRefusalReasons> refused{};  // by RefusalReason
  HistogramCounts first_token_s;                    // submitted → first token
  HistogramCounts between_tokens_s;                 // each token after the first
  HistogramCounts per_token_s;                      // mean of those, once per request
  HistogramCounts queue_s;                          // RequestTimings, each, and sums of them
  HistogramCounts prefill_s;
  HistogramCounts decode_s;
  HistogramCounts run_s;    // prefill and decode
  HistogramCounts whole_s;  // all of them
  HistogramCounts prompt_tokens;
  HistogramCounts generated_tokens;
  HistogramCounts step_tokens;  // of each pass of the model
  // Of requests whose prompt is done: all, and those of it that were not computed.
  uint64_t served_prompt_tokens = 0;
  uint64_t cached_prompt_tokens = 0;
};

class Engine {
 public:
  // Loads the model, maps the arena, starts the loop.
  static Result<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  // Cancels what runs and joins the loop.
  ~Engine();

  const ModelShape& shape() const;
  const Tokenizer& tokenizer() const;
  // tokenizer.chat_template of the model file; empty when it has none.
  const std::string& chat_template() const;
  const Organisation& organisation() const;
  const EngineOptions& options() const;  // with defaults filled in
  const EngineMemory& memory() const;
  double load_ms() const;                  // reading and packing the weights
  std::string kernel_description() const;  // "avx512: vdpbf16ps verified on 65536 lanes"

  // kInvalidArgument: an id outside the vocabulary, an empty prompt, prompt + max_tokens over the
  // context length (the message has both numbers), a sampling value out of range. kNoMemory: it can
  // never fit the budget. kUnavailable: shutting down.
  Result<RequestId> Submit(Request request, RequestSink sink);
  // Counts and reports what its caller refused before Submit saw it, as Submit does its own.
  void NoteRefused(const RefusedRequest& request);
  // Does nothing when it has finished already.
  void Cancel(RequestId id);

  EngineStats Stats() const;
  RequestMetrics Requests() const;
  RequestList RecentRequests() const;
  // Of every page of the state memory whose it is; owners of what cannot be found yet are the
  // numbers of requests. Looks at every page (StateStore::PageMap).
  std::vector<PoolPageMap> PageMap() const;
  // Of the state memory; looks at every entry (StateStore::Census).
  StoreCensus Census() const;
  // What requests can start from, most recently used first: at most `limit`, each with at most
  // `prefix_tokens` of the tokens it begins with.
  std::vector<BoundaryInfo> CacheEntries(size_t limit, size_t prefix_tokens) const;
  // Pins the deepest checkpoint that a request with this prompt could start from
  // (StateStore::Pin). PinInfo::expires_at is in nanoseconds of NowNs.
  PinResult Pin(const PinRequest& request);
  // With IsolateKind::kKey each isolation key has pins of its own, and neither sees nor releases
  // another's; otherwise they are everybody's. False: there is no such pin.
  bool Unpin(uint64_t id, std::string_view isolation_key);
  std::vector<PinInfo> Pins(std::string_view isolation_key) const;
  // Gives up all of it that nothing uses, and the rest when it is released. Returns how many
  // entries that invalidated.
  uint64_t ClearCache();

  struct Impl;

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera
