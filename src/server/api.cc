// SPDX-License-Identifier: Apache-2.0
#include "server/api.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "server/activity_pages.h"
#include "server/cache_pages.h"
#include "server/cache_pins.h"
#include "server/capacity.h"
#include "server/chat.h"
#include "server/completions.h"
#include "server/prometheus_text.h"
#include "server/tokenize.h"
#include "server/web_page.h"

namespace tessera {
namespace {

constexpr std::string_view kModelPrefix = "/v1/models/";

struct Route {
  std::string_view path;
  std::string_view method;
  std::string_view other_method = "";

  bool Takes(std::string_view asked) const {
    return asked == method || (!other_method.empty() && asked == other_method);
  }
  std::string Methods() const {
    return other_method.empty() ? std::string(method) : fmt::format("{}, {}", method, other_method);
  }
};

constexpr Route kRoutes[] = {
    {"/health", "GET"},
    {"/v1/health", "GET"},
    {"/version", "GET"},
    {"/v1/models", "GET"},
    {"/cache", "GET", "DELETE"},
    {"/cache/entries", "GET"},
    {"/cache/pins", "GET"},
    {"/cache/pin", "POST"},
    {"/cache/release", "POST"},
    {"/cache/pages", "GET"},
    {"/requests", "GET"},
    {"/metrics", "GET"},
    {"/v1/completions", "POST"},
    {"/v1/chat/completions", "POST"},
    {"/v1/chat/completions/input_tokens", "POST"},
    {"/apply-template", "POST"},
    {"/tokenize", "POST"},
    {"/detokenize", "POST"},
};

const Route* FindRoute(std::string_view path) {
  static constexpr Route kModel = {kModelPrefix, "GET"};
  for (const Route& route : kRoutes) {
    if (route.path == path) return &route;
  }
  static constexpr Route kPage = {"/", "GET"};
  if (FindWebFile(path) != nullptr) return &kPage;
  return path.size() > kModelPrefix.size() && path.starts_with(kModelPrefix) ? &kModel : nullptr;
}

bool IsHealth(std::string_view path) { return path == "/health" || path == "/v1/health"; }

// The page has no data in it: it asks for the key that what it shows wants.
bool IsOpen(std::string_view path) { return IsHealth(path) || FindWebFile(path) != nullptr; }

HttpReply Unauthorized() {
  ApiError error = InvalidField("", "invalid_api_key",
                                "this server wants one of its API keys: Authorization: Bearer KEY");
  error.http_status = 401;
  HttpReply reply = HttpReply::Error(error);
  reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

HttpReply NotFound(std::string_view path) {
  ApiError error =
      InvalidField("", "not_found", fmt::format("no such path: {}", path.substr(0, 200)));
  error.http_status = 404;
  return HttpReply::Error(error);
}

HttpReply WrongMethod(const HttpRequest& request, const Route& route) {
  ApiError error = InvalidField(
      "", "method_not_allowed",
      fmt::format("{}: expected {}, got {}", request.path, route.Methods(), request.method));
  error.http_status = 405;
  HttpReply reply = HttpReply::Error(error);
  reply.headers.emplace_back("Allow", route.Methods());
  return reply;
}

ModelCard MakeCard(const Engine& engine) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  ModelCard card;
  card.id = engine.shape().name;
  card.created = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  card.shape = engine.shape();
  card.max_model_len = TokensThatFit(engine.organisation(), card.shape.context_length);
  card.weight_bytes = engine.memory().weight_bytes;
  return card;
}

AnswerContext MakeContext(Engine* engine, const ModelCard& card, const ApiOptions& options,
                          const std::atomic<bool>* cancel_all) {
  AnswerContext context;
  context.engine = engine;
  context.model_id = card.id;
  context.limits = ModelLimits::Of(engine->shape(), engine->tokenizer());
  context.max_model_len = static_cast<uint32_t>(card.max_model_len);
  context.keep_alive = options.keep_alive;
  context.cancel_all = cancel_all;
  return context;
}

}  // namespace

Api::Api(Engine* engine, ApiOptions options)
    : engine_(engine),
      options_(std::move(options)),
      card_(MakeCard(*engine)),
      metrics_subject_(MetricsSubject::Of(*engine)),
      context_(MakeContext(engine, card_, options_, &cancel_all_)),
      prompter_(engine->chat_template(), &engine->tokenizer(), context_.limits),
      census_(options_.reading_rest, [engine] { return engine->Census(); }),
      pages_(options_.reading_rest,
             [engine] { return PagesBody(engine->PageMap(), engine->Census()); }),
      // One more, to know whether there is.
      first_entries_(options_.reading_rest,
                     [engine] { return engine->CacheEntries(kEntriesDefault + 1, kEntryTokens); }),
      all_entries_(options_.reading_rest,
                   [engine] { return engine->CacheEntries(kEntriesMax + 1, kEntryTokens); }) {}

std::optional<HttpReply> Api::Refuse(const HttpRequest& head) const {
  // The key comes first: who does not have it learns nothing about paths.
  const bool open = options_.keys.open() || IsOpen(head.path);
  if (!open && !options_.keys.Find(head.authorization)) return Unauthorized();
  const Route* route = FindRoute(head.path);
  if (route == nullptr) return NotFound(head.path);
  const std::string_view method = head.method == "HEAD" ? "GET" : std::string_view(head.method);
  if (!route->Takes(method)) return WrongMethod(head, *route);
  return std::nullopt;
}

HttpReply Api::Handle(const HttpRequest& request, Peer& peer) {
  if (std::optional<HttpReply> refused = Refuse(request)) return std::move(*refused);
  Caller caller{&peer, {}};
  if (const std::optional<size_t> key = options_.keys.Find(request.authorization)) {
    caller.isolation_key = options_.keys.isolation_key(*key);
  }
  if (request.method == "POST") return HandlePost(request, caller);
  if (request.method == "DELETE") return HandleClear();
  return HandleGet(request, caller);
}

HttpReply Api::HandlePost(const HttpRequest& request, const Caller& caller) const {
  const std::string& path = request.path;
  if (path == "/v1/completions") return HandleCompletion(context_, request, caller);
  if (path == "/v1/chat/completions") return HandleChat(context_, prompter_, request, caller);
  if (path == "/v1/chat/completions/input_tokens") {
    return HandleInputTokens(context_, prompter_, request);
  }
  if (path == "/apply-template") return HandleApplyTemplate(context_, prompter_, request);
  if (path == "/cache/pin") return HandlePin(context_, prompter_, request, caller);
  if (path == "/cache/release") return HandleRelease(context_, request, caller);
  if (path == "/tokenize") return HandleTokenize(context_, prompter_, request);
  return HandleDetokenize(context_, request);
}

HttpReply Api::HandleGet(const HttpRequest& request, const Caller& caller) {
  const std::string& path = request.path;
  if (IsHealth(path)) return HttpReply::Json(HealthBody());
  if (path == "/version") return HttpReply::Json(VersionBody());
  if (path == "/v1/models") return HttpReply::Json(ModelListBody(card_));
  if (path == "/cache") {
    return HttpReply::Json(
        CacheBody(engine_->Stats(), engine_->organisation(), engine_->options()));
  }
  if (path == "/cache/pins") return HandlePins(context_, caller);
  if (path == "/cache/entries") return HandleCacheEntries(request.query);
  if (path == "/metrics") return HandleMetrics();
  if (path == "/cache/pages") return HttpReply::Json(*pages_.Get());
  if (path == "/requests") return HttpReply::Json(RequestsBody(engine_->RecentRequests()));
  if (const WebFile* file = FindWebFile(path)) return WebReply(*file, request.if_none_match);
  const std::string asked = path.substr(kModelPrefix.size());
  if (asked != card_.id) return HttpReply::Error(ModelNotFound(asked, card_.id));
  return HttpReply::Json(ModelBody(card_));
}

HttpReply Api::HandleMetrics() {
  HttpReply reply;
  reply.content_type = kPrometheusContentType;
  reply.body =
      MetricsBody(metrics_subject_, ReadMetrics(*engine_, *census_.Get(), options_.request_log),
                  options_.vllm_metrics);
  return reply;
}

// What is left is soon looked at, and who cleared it wants to see it.
HttpReply Api::HandleClear() {
  const uint64_t entries = engine_->ClearCache();
  census_.Forget();
  pages_.Forget();
  first_entries_.Forget();
  all_entries_.Forget();
  return HttpReply::Json(CacheClearedBody(entries));
}

HttpReply Api::HandleCacheEntries(const HttpQuery& query) {
  const ApiResult<size_t> parsed = ParseEntriesLimit(query);
  if (const ApiError* error = std::get_if<ApiError>(&parsed)) return HttpReply::Error(*error);
  const size_t limit = std::get<size_t>(parsed);
  const auto entries = limit <= kEntriesDefault ? first_entries_.Get() : all_entries_.Get();
  return HttpReply::Json(CacheEntriesBody(*entries, limit, engine_->tokenizer()));
}

}  // namespace tessera
