// SPDX-License-Identifier: Apache-2.0
#include "server/cache_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// The first tokens of an entry may end within a character.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json PoolJson(const PoolStats& pool) {
  return {{"name", pool.name},
          {"page_bytes", pool.unit_bytes},
          {"bytes", pool.unit_bytes * pool.total_pages},
          {"pages",
           {{"total", pool.total_pages},
            {"free", pool.free_pages},
            {"reserved", pool.reserved_pages},
            {"held_attention", pool.held_attention_pages},
            {"held_state", pool.held_state_pages},
            {"cached_attention", pool.cached_attention_pages},
            {"cached_state", pool.cached_state_pages},
            {"draining", pool.draining_pages},
            {"slab", pool.slab_pages}}},
          {"slots", {{"total", pool.total_slots}, {"used", pool.used_slots}}}};
}

Json PolicyJson(const EngineOptions& options) {
  return {{"reuse", options.reuse},
          {"checkpoint_grid", options.checkpoint_grid},
          {"placement", options.placement.ToString()},
          {"eviction", EvictionPolicyName(options.eviction)},
          {"retention", options.retention.ToString()},
          {"isolate", IsolateName(options.isolate)}};
}

Json ReuseJson(const ReuseStats& reuse) {
  Json computed = Json::object();
  for (int reason = 0; reason < kComputeReasons; ++reason) {
    computed[std::string(ComputeReasonName(static_cast<ComputeReason>(reason)))] =
        reuse.computed_tokens[reason];
  }
  return {{"lookups", reuse.lookups},
          {"hits", reuse.hits},
          {"prompt_tokens", reuse.prompt_tokens},
          {"attention_tokens", reuse.attention_tokens},
          {"recurrent_tokens", reuse.recurrent_tokens},
          {"reused_tokens", reuse.reused_tokens},
          {"computed_tokens", std::move(computed)}};
}

Json KeptJson(const ReuseStats& reuse) {
  return {{"blocks", reuse.blocks},
          {"checkpoints", reuse.checkpoints},
          {"retained_checkpoints", reuse.retained_checkpoints},
          {"rows", reuse.rows},
          {"row_capacity", reuse.row_capacity},
          {"nodes", reuse.nodes},
          {"node_capacity", reuse.node_capacity},
          {"published_blocks", reuse.published_blocks},
          {"published_checkpoints", reuse.published_checkpoints},
          {"published_rows", reuse.published_rows},
          {"skipped_checkpoints", reuse.skipped_checkpoints},
          {"skipped_rows", reuse.skipped_rows},
          {"evicted_blocks", reuse.evicted_blocks},
          {"evicted_checkpoints", reuse.evicted_checkpoints},
          {"evicted_rows", reuse.evicted_rows},
          {"entries_invalidated", reuse.entries_invalidated},
          {"retention_drops", reuse.retention_drops},
          {"copied_groups", reuse.copied_groups}};
}

Json EntryJson(const BoundaryInfo& entry, const Tokenizer& tokenizer) {
  Json json = {{"id", entry.checkpoint ? Json(entry.id) : Json(nullptr)},
               {"tokens", entry.tokens},
               {"bytes", entry.bytes},
               {"hits", entry.hits},
               {"lookups_since_use", entry.lookups_since_use},
               {"checkpoint", entry.checkpoint},
               {"row", entry.row},
               {"held", entry.held},
               {"pinned", entry.pinned},
               {"retained", entry.retained},
               {"spare", entry.spare},
               {"salted", entry.salted}};
  json["first_tokens"] = entry.salted ? Json(nullptr) : Json(entry.prefix);
  json["text"] = entry.salted ? Json(nullptr) : Json(tokenizer.Decode(entry.prefix, true));
  return json;
}

}  // namespace

std::string CacheBody(const EngineStats& stats, const Organisation& organisation,
                      const EngineOptions& options) {
  const StoreStats& store = stats.store;
  Json pools = Json::array();
  uint64_t attention_pages = 0;
  uint64_t state_pages = 0;
  for (const PoolStats& pool : store.pools) {
    pools.push_back(PoolJson(pool));
    attention_pages += pool.held_attention_pages;
    state_pages += pool.held_state_pages;
  }
  return Dump(
      {{"organisation", organisation.spec.ToString()},
       {"planes", organisation.planes},
       {"budget_bytes", store.budget_bytes},
       {"arena_bytes", store.arena_bytes},
       {"row_bytes", store.row_bytes},
       {"metadata_bytes", store.metadata_bytes},
       {"sequences", store.sequences},
       {"running", stats.running},
       {"waiting", stats.waiting},
       {"kinds",
        {{"attention", {{"bytes", store.attention_bytes}, {"pages", attention_pages}}},
         {"ssm", {{"bytes", store.ssm_bytes}}},
         {"conv", {{"bytes", store.conv_bytes}}},
         {"state", {{"bytes", store.ssm_bytes + store.conv_bytes}, {"pages", state_pages}}}}},
       {"pools", std::move(pools)},
       {"mean_run_bytes", store.mean_run_bytes},
       {"policy", PolicyJson(options)},
       {"kept", KeptJson(store.reuse)},
       {"reuse", ReuseJson(store.reuse)},
       {"totals",
        {{"steps", stats.steps},
         {"joins", stats.joins},
         {"prompt_tokens", stats.prompt_tokens},
         {"completion_tokens", stats.completion_tokens},
         {"requests_finished", stats.requests_finished},
         {"requests_cancelled", stats.requests_cancelled}}}});
}

ApiResult<size_t> ParseEntriesLimit(const HttpQuery& query) {
  size_t limit = kEntriesDefault;
  for (const auto& [name, value] : query) {
    if (name != "limit") {
      const std::string shown = name.substr(0, 64);
      return InvalidField(
          shown, "unknown_parameter",
          fmt::format("{}: not a parameter of this path, which reads limit", shown));
    }
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), limit);
    if (error != std::errc() || end != value.data() + value.size() || limit < 1 ||
        limit > kEntriesMax) {
      return InvalidField("limit", "invalid_value",
                          fmt::format("limit: expected an integer from 1 to {}, got '{}'",
                                      kEntriesMax, value.substr(0, 64)));
    }
  }
  return limit;
}

std::string CacheEntriesBody(std::span<const BoundaryInfo> entries, size_t limit,
                             const Tokenizer& tokenizer) {
  Json list = Json::array();
  for (const BoundaryInfo& entry : entries.first(std::min(entries.size(), limit))) {
    list.push_back(EntryJson(entry, tokenizer));
  }
  return Dump({{"entries", std::move(list)}, {"more", entries.size() > limit}});
}

std::string CacheClearedBody(uint64_t entries_invalidated) {
  return Dump({{"entries_invalidated", entries_invalidated}});
}

}  // namespace tessera
