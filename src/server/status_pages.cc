// SPDX-License-Identifier: Apache-2.0
#include "server/status_pages.h"

#include <nlohmann/json.hpp>

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json ModelJson(const ModelCard& card) {
  return {{"id", card.id},
          {"object", "model"},
          {"created", card.created},
          {"owned_by", "tessera"},
          {"max_model_len", card.max_model_len},
          {"meta",
           {{"n_vocab", card.shape.vocab_size},
            {"n_ctx_train", card.shape.context_length},
            {"n_embd", card.shape.width},
            {"n_layer", card.shape.layers},
            {"size", card.weight_bytes}}}};
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
            {"slab", pool.slab_pages}}},
          {"slots", {{"total", pool.total_slots}, {"used", pool.used_slots}}}};
}

}  // namespace

std::string HealthBody() { return R"({"status":"ok"})"; }

std::string VersionBody() { return Dump({{"version", TESSERA_VERSION}}); }

std::string ModelBody(const ModelCard& card) { return Dump(ModelJson(card)); }

std::string ModelListBody(const ModelCard& card) {
  return Dump({{"object", "list"}, {"data", Json::array({ModelJson(card)})}});
}

std::string CacheBody(const EngineStats& stats, const Organisation& organisation) {
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
       {"totals",
        {{"steps", stats.steps},
         {"prompt_tokens", stats.prompt_tokens},
         {"completion_tokens", stats.completion_tokens},
         {"requests_finished", stats.requests_finished},
         {"requests_cancelled", stats.requests_cancelled}}}});
}

}  // namespace tessera
