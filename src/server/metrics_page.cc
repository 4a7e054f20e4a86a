// SPDX-License-Identifier: Apache-2.0
#include "server/metrics_page.h"

#include <algorithm>
#include <string_view>

#include "server/prometheus_text.h"

namespace tessera {
namespace {

constexpr MetricType kCounter = MetricType::kCounter;
constexpr MetricType kGauge = MetricType::kGauge;

double Double(uint64_t value) { return static_cast<double>(value); }
double Share(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : Double(part) / Double(whole);
}

uint64_t Finished(const RequestMetrics& requests, FinishReason reason) {
  return requests.finished[static_cast<size_t>(reason)];
}

constexpr FinishReason kReasons[] = {FinishReason::kStop, FinishReason::kLength,
                                     FinishReason::kCancelled, FinishReason::kError};

// ---- What runs.

void WriteInfo(const MetricsSubject& subject, PrometheusText* text) {
  text->Family("tessera_info", kGauge, "What runs here; always 1.");
  text->Sample({{"version", subject.version},
                {"model", subject.model},
                {"organisation", subject.organisation},
                {"state_type", subject.state_type}},
               1);
}

void WriteRequests(const MetricsReading& now, PrometheusText* text) {
  text->Gauge("tessera_requests_running", "Requests that hold memory and take part in steps.",
              now.engine.running);
  text->Gauge("tessera_requests_waiting", "Requests in the queue.", now.engine.waiting);
  text->Family("tessera_requests_finished_total", kCounter, "Requests that ended, by how.");
  for (const FinishReason reason : kReasons) {
    text->Sample({{"finished_reason", FinishName(reason)}}, Double(Finished(now.requests, reason)));
  }
  text->Family("tessera_requests_refused_total", kCounter, "Requests that were not taken, by why.");
  for (size_t i = 0; i < kRefusalReasons; ++i) {
    text->Sample({{"reason", RefusalName(static_cast<RefusalReason>(i))}},
                 Double(now.requests.refused[i]));
  }
  text->Counter("tessera_prefill_joins_total",
                "Times a request waited for another's prefill instead of computing it itself.",
                Double(now.engine.joins));
  text->Counter("tessera_steps_total", "Passes of the model.", Double(now.engine.steps));
}

// Who had to wait for memory, and what it cost.
void WritePressure(const EngineStats& engine, PrometheusText* text) {
  text->Gauge("tessera_requests_pinned", "Of those that wait: preempted, their state kept.",
              engine.pinned);
  text->Family("tessera_preemptions_total", kCounter, "Requests that gave their place back.");
  text->Sample({{"way", "pin"}}, Double(engine.preemptions_pinned));
  text->Sample({{"way", "recompute"}}, Double(engine.preemptions_recomputed));
  text->Counter("tessera_pins_given_up_total",
                "Pinned requests that had to be recomputed after all.",
                Double(engine.pins_given_up));
  text->Counter("tessera_resumptions_total", "Preempted requests that came back.",
                Double(engine.resumptions));
  text->Counter("tessera_recomputed_tokens_total", "Tokens computed again after a preemption.",
                Double(engine.recomputed_tokens));
  text->Family("tessera_reservations_refused_total", kCounter,
               "Times memory was asked for and not there.");
  text->Sample({{"for", "admission"}}, Double(engine.admissions_refused));
  text->Sample({{"for", "growth"}}, Double(engine.growths_refused));
  text->Counter("tessera_plans_total", "Steps planned.", Double(engine.plans));
  text->Counter("tessera_planning_seconds_total",
                "Spent on planning them, look-ups and evictions among it.",
                Double(engine.plan_ns) * 1e-9);
}

void WriteTokens(const MetricsReading& now, PrometheusText* text) {
  text->Counter("tessera_prompt_tokens_total",
                "Prompt tokens served, computed or reused, of requests whose prompt is done.",
                Double(now.requests.served_prompt_tokens));
  text->Counter("tessera_prompt_tokens_cached_total", "Of these, tokens that were reused.",
                Double(now.requests.cached_prompt_tokens));
  text->Counter("tessera_prompt_tokens_computed_total",
                "Prompt tokens that went through the model, also of requests that did not end.",
                Double(now.engine.prompt_tokens));
  text->Counter("tessera_generation_tokens_total", "Tokens sampled.",
                Double(now.engine.completion_tokens));
}

void WriteWaits(const RequestMetrics& requests, PrometheusText* text) {
  text->Histogram("tessera_time_to_first_token_seconds",
                  "From the arrival of a request to its first token.", requests.first_token_s);
  text->Histogram("tessera_inter_token_latency_seconds", "From one token of a request to the next.",
                  requests.between_tokens_s);
  text->Histogram("tessera_time_per_output_token_seconds",
                  "Mean time between the tokens of a request, once for each request.",
                  requests.per_token_s);
  text->Histogram("tessera_request_queue_time_seconds", "In the queue.", requests.queue_s);
  text->Histogram("tessera_request_prefill_time_seconds", "From the first step to the first token.",
                  requests.prefill_s);
  text->Histogram("tessera_request_decode_time_seconds", "From the first token to the last.",
                  requests.decode_s);
  text->Histogram("tessera_request_inference_time_seconds",
                  "From the first step to the last token.", requests.run_s);
  text->Histogram("tessera_e2e_request_latency_seconds", "From the arrival to the last token.",
                  requests.whole_s);
  text->Histogram("tessera_request_prompt_tokens", "Prompt tokens of a request.",
                  requests.prompt_tokens);
  text->Histogram("tessera_request_generation_tokens", "Tokens sampled for a request.",
                  requests.generated_tokens);
  text->Histogram("tessera_step_tokens", "Tokens computed in a pass of the model.",
                  requests.step_tokens);
}

// ---- Where the bytes are.

void WritePools(const StoreStats& store, PrometheusText* text) {
  text->Gauge("tessera_budget_bytes", "Bytes of state that are never exceeded.",
              Double(store.budget_bytes));
  text->Gauge("tessera_arena_bytes", "Of these, bytes that pools and kept rows are made of.",
              Double(store.arena_bytes));
  text->Gauge("tessera_metadata_bytes", "Ledger and index, outside the budget.",
              Double(store.metadata_bytes));
  text->Family("tessera_pool_bytes", kGauge, "Pages of each pool by what they are; all of them.");
  for (const PoolStats& pool : store.pools) {
    const std::pair<std::string_view, uint32_t> states[] = {
        {"free", pool.free_pages},
        {"reserved", pool.reserved_pages},
        {"held_attention", pool.held_attention_pages},
        {"held_state", pool.held_state_pages},
        {"cached_attention", pool.cached_attention_pages},
        {"cached_state", pool.cached_state_pages},
        {"draining", pool.draining_pages}};
    for (const auto& [state, pages] : states) {
      text->Sample({{"pool", pool.name}, {"state", state}}, Double(pages * pool.unit_bytes));
    }
  }
  uint64_t held = 0;
  for (const PoolStats& pool : store.pools) {
    held += (uint64_t{pool.held_attention_pages} + pool.held_state_pages) * pool.unit_bytes;
  }
  text->Gauge("tessera_protected_bytes", "Pages that no eviction may take: in use or pinned.",
              Double(held));
  text->Gauge("tessera_state_run_bytes",
              "Mean length of contiguous runs of live images in one plane.", store.mean_run_bytes);
}

struct KindRow {
  std::string_view name;
  const HoldCounts* counts;
  uint64_t bytes;  // of one
};

void WriteKinds(const StoreCensus& census, PrometheusText* text) {
  const KindRow kinds[] = {{"attention", &census.blocks, census.block_bytes},
                           {"ssm", &census.images, census.ssm_bytes},
                           {"conv", &census.images, census.conv_bytes},
                           {"row", &census.rows, census.row_bytes}};
  const auto write = [&](std::string_view name, std::string_view help, bool in_bytes) {
    text->Family(name, kGauge, help);
    for (const KindRow& kind : kinds) {
      if (kind.bytes == 0) continue;  // the model has no such kind
      const uint64_t unit = in_bytes ? kind.bytes : 1;
      const std::pair<std::string_view, uint64_t> states[] = {{"live", kind.counts->live},
                                                              {"held", kind.counts->held},
                                                              {"pinned", kind.counts->pinned},
                                                              {"retained", kind.counts->retained},
                                                              {"cached", kind.counts->cached}};
      for (const auto& [state, count] : states) {
        text->Sample({{"kind", kind.name}, {"state", state}}, Double(count * unit));
      }
    }
  };
  write("tessera_state_objects", "Objects of each kind by who holds them.", false);
  write("tessera_state_bytes",
        "Their bytes: whole pages of attention, the others without rounding.", true);
}

// How much of what is kept somebody can start from.
void WriteCapacity(const StoreStats& store, const StoreCensus& census, PrometheusText* text) {
  const uint64_t image_bytes = census.ssm_bytes + census.conv_bytes;
  const uint64_t reusable =
      census.reusable_blocks * census.block_bytes + census.reusable_images * image_bytes;
  text->Gauge("tessera_reusable_bytes", "Kept state that somebody can start from, all kinds there.",
              Double(reusable));
  text->Gauge("tessera_effective_capacity_ratio", "Reusable bytes over the budget.",
              Share(reusable, store.budget_bytes));
  text->Family("tessera_orphaned_bytes", kGauge,
               "Kept state that nobody can start from, by the kind that is missing.");
  text->Sample({{"missing", "recurrent"}},
               Double((census.blocks.findable() - census.reusable_blocks) * census.block_bytes));
  text->Sample({{"missing", "attention"}},
               Double((census.images.findable() - census.reusable_images) * image_bytes));
}

// The study's state set, and what paging checkpoints (S1) gains on it over coarse pages (S0).
void WriteStateSet(const MetricsSubject& subject, const StoreCensus& census, PrometheusText* text) {
  const uint64_t tokens = census.blocks.total() * census.block_tokens;
  const double blocks = Double(tokens) / subject.block_tokens;
  const double checkpoints = Double(census.images.total());
  text->Gauge("tessera_attention_blocks",
              "Attention state there is, in blocks of the organisation (x_A).", blocks);
  text->Gauge("tessera_checkpoints", "States at one position there are (x_R).", checkpoints);
  if (!subject.has_both_kinds) return;
  text->Gauge("tessera_paging_gain_bytes",
              "What S1 would take less than S0 for these (delta 01); below 0: more.",
              blocks * static_cast<double>(subject.paging_gain_per_block) -
                  checkpoints * static_cast<double>(subject.paging_loss_per_checkpoint));
}

void WriteSlabs(const StoreStats& store, PrometheusText* text) {
  uint32_t pages = 0, least = 0, used = 0, total = 0;
  for (const PoolStats& pool : store.pools) {
    if (pool.slab_pages == 0) continue;
    const uint32_t per_page = pool.total_slots / pool.slab_pages;
    pages += pool.slab_pages;
    used += pool.used_slots;
    total += pool.total_slots;
    least += (pool.used_slots + per_page - 1) / per_page;
  }
  text->Gauge("tessera_slab_pages", "Pages cut into slots (m).", pages);
  text->Gauge("tessera_slab_pages_least", "The fewest that would hold the slots in use.", least);
  text->Family("tessera_slab_slots", kGauge, "Slots of these pages.");
  text->Sample({{"state", "used"}}, used);
  text->Sample({{"state", "free"}}, total - used);
}

// ---- Reuse.

void WriteLookups(const ReuseStats& reuse, PrometheusText* text) {
  text->Family("tessera_lookups_total", kCounter,
               "Admitted requests by how much of the prompt was there, and why not more.");
  for (int result = 0; result < kLookupResults; ++result) {
    const std::string_view name = LookupResultName(static_cast<LookupResult>(result));
    for (int reason = 0; reason < kComputeReasons; ++reason) {
      const bool full = static_cast<LookupResult>(result) == LookupResult::kFull;
      if (full && reason > 0) continue;
      const std::string_view why =
          full ? "none" : ComputeReasonName(static_cast<ComputeReason>(reason));
      text->Sample({{"result", name}, {"reason", why}}, Double(reuse.outcomes[result][reason]));
    }
  }
  text->Counter("tessera_lookup_prompt_tokens_total", "Prompt tokens looked up.",
                Double(reuse.prompt_tokens));
  text->Counter("tessera_lookup_attention_tokens_total",
                "Of these, tokens whose attention state was there (A_max).",
                Double(reuse.attention_tokens));
  text->Counter("tessera_lookup_recurrent_tokens_total",
                "Of these, tokens up to the deepest checkpoint (R_max).",
                Double(reuse.recurrent_tokens));
  text->Counter("tessera_lookup_usable_tokens_total",
                "Of these, tokens for which every kind was there (J_adopt).",
                Double(reuse.reused_tokens));
  text->Family("tessera_lookup_missed_tokens_total", kCounter,
               "Of these, tokens to be computed, by why.");
  for (int reason = 0; reason < kComputeReasons; ++reason) {
    text->Sample({{"reason", ComputeReasonName(static_cast<ComputeReason>(reason))}},
                 Double(reuse.computed_tokens[reason]));
  }
}

void WriteEntries(const ReuseStats& reuse, PrometheusText* text) {
  text->Family("tessera_entries_published_total", kCounter, "What became findable.");
  text->Sample({{"entry", "block"}}, Double(reuse.published_blocks));
  text->Sample({{"entry", "checkpoint"}}, Double(reuse.published_checkpoints));
  text->Sample({{"entry", "row"}}, Double(reuse.published_rows));
  text->Family("tessera_entries_evicted_total", kCounter, "What was taken back.");
  text->Sample({{"entry", "block"}}, Double(reuse.evicted_blocks));
  text->Sample({{"entry", "checkpoint"}}, Double(reuse.evicted_checkpoints));
  text->Sample({{"entry", "row"}}, Double(reuse.evicted_rows));
  text->Family("tessera_entries_skipped_total", kCounter,
               "What was not kept: there was no room that was worth less.");
  text->Sample({{"entry", "checkpoint"}}, Double(reuse.skipped_checkpoints));
  text->Sample({{"entry", "row"}}, Double(reuse.skipped_rows));
  text->Counter("tessera_entries_invalidated_total", "Entries that can no longer be found.",
                Double(reuse.entries_invalidated));
  text->Counter("tessera_reclaims_total", "Victims taken because memory was needed.",
                Double(reuse.reclaims));
  text->Counter("tessera_reclaimed_entries_total", "Entries invalidated with these victims.",
                Double(reuse.reclaimed_entries));
  text->Counter("tessera_retention_drops_total", "Retained checkpoints that were evicted.",
                Double(reuse.retention_drops));
  text->Counter("tessera_copied_groups_total",
                "Groups of 16 tokens copied because a shared block was appended to.",
                Double(reuse.copied_groups));
  text->Gauge("tessera_index_nodes", "Nodes of the prefix index in use.", reuse.nodes);
  text->Gauge("tessera_index_nodes_limit", "Nodes of the prefix index there are.",
              reuse.node_capacity);
}

void WriteLog(const RequestLogCounts& log, PrometheusText* text) {
  text->Family("tessera_request_log_records_total", kCounter, "Records of ended requests.");
  text->Sample({{"result", "written"}}, Double(log.written));
  text->Sample({{"result", "dropped"}}, Double(log.dropped));
}

// ---- vLLM's names.

// As there, what is cached and can be had counts as free.
double PoolUse(const StoreStats& store) {
  uint64_t total = 0, used = 0;
  for (const PoolStats& pool : store.pools) {
    total += pool.total_pages * pool.unit_bytes;
    used += (uint64_t{pool.total_pages} - pool.free_pages - pool.cached_attention_pages -
             pool.cached_state_pages) *
            pool.unit_bytes;
  }
  return Share(used, total);
}

void WriteVllmCounters(const MetricsReading& now, PrometheusText* text) {
  text->Gauge("vllm:num_requests_running", "tessera_requests_running", now.engine.running);
  text->Gauge("vllm:num_requests_waiting", "tessera_requests_waiting", now.engine.waiting);
  text->Gauge("vllm:kv_cache_usage_perc", "Share of the pools in use; cached pages are free.",
              PoolUse(now.engine.store));
  text->Counter("vllm:prefix_cache_queries_total", "tessera_lookup_prompt_tokens_total",
                Double(now.engine.store.reuse.prompt_tokens));
  text->Counter("vllm:prefix_cache_hits_total", "tessera_lookup_usable_tokens_total",
                Double(now.engine.store.reuse.reused_tokens));
  text->Counter("vllm:num_preemptions_total", "tessera_preemptions_total",
                Double(now.engine.preemptions_pinned + now.engine.preemptions_recomputed));
  text->Counter("vllm:prompt_tokens_total", "tessera_prompt_tokens_total",
                Double(now.requests.served_prompt_tokens));
  text->Counter("vllm:generation_tokens_total", "tessera_generation_tokens_total",
                Double(now.engine.completion_tokens));
}

void WriteVllm(const MetricsSubject& subject, const MetricsReading& now, PrometheusText* text) {
  text->SetCommonLabels({{"model_name", subject.model}, {"engine", "0"}});
  WriteVllmCounters(now, text);
  text->Family("vllm:request_success_total", kCounter, "tessera_requests_finished_total");
  for (const FinishReason reason : kReasons) {
    text->Sample({{"finished_reason", FinishName(reason)}}, Double(Finished(now.requests, reason)));
  }
  const std::pair<std::string_view, const HistogramCounts*> histograms[] = {
      {"time_to_first_token_seconds", &now.requests.first_token_s},
      {"inter_token_latency_seconds", &now.requests.between_tokens_s},
      {"request_time_per_output_token_seconds", &now.requests.per_token_s},
      {"e2e_request_latency_seconds", &now.requests.whole_s},
      {"request_queue_time_seconds", &now.requests.queue_s},
      {"request_prefill_time_seconds", &now.requests.prefill_s},
      {"request_decode_time_seconds", &now.requests.decode_s},
      {"request_inference_time_seconds", &now.requests.run_s},
      {"request_prompt_tokens", &now.requests.prompt_tokens},
      {"request_generation_tokens", &now.requests.generated_tokens},
      {"iteration_tokens_total", &now.requests.step_tokens}};
  for (const auto& [name, counts] : histograms) {
    text->Histogram("vllm:" + std::string(name), "See tessera's own name.", *counts);
  }
}

}  // namespace

MetricsReading ReadMetrics(const Engine& engine, const StoreCensus& census, const RequestLog* log) {
  MetricsReading reading;
  reading.engine = engine.Stats();
  reading.requests = engine.Requests();
  reading.census = census;
  if (log != nullptr) reading.log = log->Counts();
  return reading;
}

MetricsSubject MetricsSubject::Of(const Engine& engine) {
  MetricsSubject subject;
  const Organisation& organisation = engine.organisation();
  subject.model = engine.shape().name;
  subject.organisation = organisation.spec.ToString();
  subject.state_type = StateTypeName(engine.options().state_type);
  subject.version = TESSERA_VERSION;
  subject.block_tokens = organisation.spec.block_tokens;
  const StateShape shape = engine.shape().state_shape(engine.options().state_type);
  OrganisationSpec coarse_spec, paged_spec;
  coarse_spec.kind = OrganisationSpec::Kind::kS0;
  paged_spec.kind = OrganisationSpec::Kind::kS1;
  coarse_spec.block_tokens = paged_spec.block_tokens = subject.block_tokens;
  const Result<Organisation> coarse = DescribeOrganisation(coarse_spec, shape);
  const Result<Organisation> paged = DescribeOrganisation(paged_spec, shape);
  if (!coarse || !paged || shape.attention_layers == 0 || shape.recurrent_layers == 0) {
    return subject;
  }
  const auto bytes = [&](const Organisation& table, uint64_t blocks, uint64_t checkpoints) {
    return static_cast<int64_t>(StateSetBytes(table, blocks, subject.block_tokens, checkpoints));
  };
  subject.has_both_kinds = true;
  subject.paging_gain_per_block = bytes(*coarse, 1, 0) - bytes(*paged, 1, 0);
  subject.paging_loss_per_checkpoint = bytes(*paged, 0, 1) - bytes(*coarse, 0, 1);
  return subject;
}

std::string MetricsBody(const MetricsSubject& subject, const MetricsReading& reading, bool vllm) {
  PrometheusText text;
  const StoreStats& store = reading.engine.store;
  WriteInfo(subject, &text);
  WriteRequests(reading, &text);
  WritePressure(reading.engine, &text);
  WriteTokens(reading, &text);
  WriteWaits(reading.requests, &text);
  WritePools(store, &text);
  WriteKinds(reading.census, &text);
  WriteCapacity(store, reading.census, &text);
  WriteStateSet(subject, reading.census, &text);
  WriteSlabs(store, &text);
  WriteLookups(store.reuse, &text);
  WriteEntries(store.reuse, &text);
  WriteLog(reading.log, &text);
  if (vllm) WriteVllm(subject, reading, &text);
  return text.Take();
}

}  // namespace tessera
