// SPDX-License-Identifier: Apache-2.0
//
// Api is the table of routes: which method of which path is answered by what. Everything a client
// can see but sockets is below it.
//
//   GET    /health /v1/health /version /v1/models /v1/models/{id} /cache /cache/entries
//          /cache/pins /metrics /cache/pages /requests, and the page at / with its files in /web/
//   POST   /v1/completions /v1/chat/completions /v1/chat/completions/input_tokens
//          /apply-template /tokenize /detokenize /cache/pin /cache/release
//   DELETE /cache
//
// An unknown path is 404, a known one with another method 405 with Allow; HEAD goes where GET goes.
// With API keys, every path but the two of /health and the page's wants
// `Authorization: Bearer KEY`.
//
// Threads: any number.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "server/answer_context.h"
#include "server/api_keys.h"
#include "server/chat_prompt.h"
#include "server/http_reply.h"
#include "server/metrics_page.h"
#include "server/shared_reading.h"
#include "server/status_pages.h"

namespace tessera {

struct ApiOptions {
  ApiKeys keys;  // none: open to whoever reaches the port
  // Proxies drop streams that are silent for 30 to 60 s.
  std::chrono::milliseconds keep_alive{15'000};
  bool vllm_metrics = false;                // vLLM's names for metrics as well
  const RequestLog* request_log = nullptr;  // whose counts /metrics has; outlives the Api
  // What looks at every entry of the cache, under its lock, is read once for all who ask, and then
  // rests so many times as long as it took (server/shared_reading.h): each takes 2 % of the time.
  uint32_t reading_rest = 49;
};

class Api {
 public:
  // The engine must outlive it.
  Api(Engine* engine, ApiOptions options);

  // What can be refused before the body is read: path, method, key.
  std::optional<HttpReply> Refuse(const HttpRequest& head) const;
  HttpReply Handle(const HttpRequest& request, Peer& peer);
  // Ends every answer that runs, now and from here on, with 503 "shutting_down".
  void CancelAll() { cancel_all_ = true; }

  // A longer body cannot be a request the model has room for.
  size_t body_bytes_max() const { return BodyBytesMax(context_.limits); }
  const ModelCard& model() const { return card_; }
  // Why chats are refused, when the model file has a template and it does not compile.
  const std::string& chat_template_error() const { return prompter_.error(); }

 private:
  HttpReply HandlePost(const HttpRequest& request, const Caller& caller) const;
  HttpReply HandleGet(const HttpRequest& request, const Caller& caller);
  HttpReply HandleCacheEntries(const HttpQuery& query);
  HttpReply HandleMetrics();
  HttpReply HandleClear();

  Engine* const engine_;
  const ApiOptions options_;
  const ModelCard card_;
  const MetricsSubject metrics_subject_;
  std::atomic<bool> cancel_all_{false};
  const AnswerContext context_;
  const ChatPrompter prompter_;
  SharedReading<StoreCensus> census_;
  SharedReading<std::string> pages_;  // the body of /cache/pages
  // The short list is most often asked for and costs a hundredth of the long one.
  SharedReading<std::vector<BoundaryInfo>> first_entries_;
  SharedReading<std::vector<BoundaryInfo>> all_entries_;
};

}  // namespace tessera
