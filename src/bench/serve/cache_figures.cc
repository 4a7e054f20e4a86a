// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/cache_figures.h"

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

bool Read(const Json& json, const char* group, const char* name, double* value) {
  if (!json.contains(group) || !json[group].is_object()) return false;
  const auto found = json[group].find(name);
  if (found == json[group].end() || !found->is_number()) return false;
  *value = found->get<double>();
  return true;
}

bool IsRecomputed(const std::string& reason) {
  return reason == "evicted" || reason == "no_checkpoint" || reason == "below_grid";
}

uint64_t Grown(double before, double after) {
  return after > before ? static_cast<uint64_t>(after - before) : 0;
}

}  // namespace

std::optional<CacheCounters> ParseCacheCounters(const std::string& body) {
  const Json json = Json::parse(body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  CacheCounters counters;
  const bool whole = Read(json, "reuse", "lookups", &counters.lookups) &&
                     Read(json, "reuse", "hits", &counters.hits) &&
                     Read(json, "reuse", "prompt_tokens", &counters.prompt_tokens) &&
                     Read(json, "reuse", "attention_tokens", &counters.attention_tokens) &&
                     Read(json, "reuse", "recurrent_tokens", &counters.recurrent_tokens) &&
                     Read(json, "reuse", "reused_tokens", &counters.reused_tokens) &&
                     Read(json, "kept", "evicted_checkpoints", &counters.evicted_checkpoints) &&
                     Read(json, "kept", "evicted_blocks", &counters.evicted_blocks) &&
                     Read(json, "totals", "prompt_tokens", &counters.forward_tokens);
  const auto computed = whole ? json["reuse"].find("computed_tokens") : json.end();
  if (!whole || computed == json["reuse"].end() || !computed->is_object()) return std::nullopt;
  for (const auto& [reason, tokens] : computed->items()) {
    if (!tokens.is_number()) return std::nullopt;
    counters.computed_tokens.emplace_back(reason, tokens.get<double>());
  }
  return counters;
}

void AddCacheFigures(const CacheCounters& before, const CacheCounters& after, Figures* figures) {
  const auto add = [&](const char* key, double CacheCounters::*counter) {
    figures->AddCount(key, Grown(before.*counter, after.*counter));
  };
  add("cache_lookups", &CacheCounters::lookups);
  add("cache_hits", &CacheCounters::hits);
  add("cache_prompt_tokens", &CacheCounters::prompt_tokens);
  add("cache_attention_tokens", &CacheCounters::attention_tokens);
  add("cache_recurrent_tokens", &CacheCounters::recurrent_tokens);
  add("cache_reused_tokens", &CacheCounters::reused_tokens);
  uint64_t computed = 0;
  uint64_t recomputed = 0;
  std::vector<std::pair<std::string, uint64_t>> by_reason;
  for (const auto& [reason, tokens] : after.computed_tokens) {
    double was = 0;
    for (const auto& [name, earlier] : before.computed_tokens) {
      if (name == reason) was = earlier;
    }
    const uint64_t grown = Grown(was, tokens);
    computed += grown;
    if (IsRecomputed(reason)) recomputed += grown;
    by_reason.emplace_back("cache_computed_tokens_" + reason, grown);
  }
  figures->AddCount("cache_computed_tokens", computed);
  figures->AddCount("cache_recomputed_tokens", recomputed);
  for (auto& [key, tokens] : by_reason) figures->AddCount(std::move(key), tokens);
  add("cache_forward_tokens", &CacheCounters::forward_tokens);
  add("cache_evicted_blocks", &CacheCounters::evicted_blocks);
  add("cache_evicted_checkpoints", &CacheCounters::evicted_checkpoints);
}

}  // namespace tessera
