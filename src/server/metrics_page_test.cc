// SPDX-License-Identifier: Apache-2.0
//
// /metrics against requests counted by hand, against the other pages, and against its document.
#include "server/metrics_page.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/bytes.h"
#include "server/server_fixture.h"

namespace tessera::testing {
namespace {

// name{labels} -> value
using Samples = std::map<std::string, double>;

Samples Parse(const std::string& text) {
  Samples samples;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    EXPECT_TRUE(samples.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second)
        << "twice: " << line;
  }
  return samples;
}

// Names of families, in order.
std::vector<std::string> Families(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream lines(text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with("# TYPE ")) names.push_back(line.substr(7, line.find(' ', 7) - 7));
  }
  return names;
}

// An engine of its own for each test, so that counters start at 0.
class MetricsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.model_path = std::string(TESSERA_SOURCE_DIR) + "/models/harbour-2.8m-q8_0.gguf";
    options.budget_bytes = 64 * kMiB;
    options.threads = 2;
    Result<std::unique_ptr<Engine>> created = Engine::Create(options);
    ASSERT_TRUE(created.has_value()) << created.error().message();
    engine_ = std::move(*created);
  }
  static std::string Page(const RunningServer& server) {
    const httplib::Result reply = server.Client().Get("/metrics");
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(reply->get_header_value("Content-Type"), kContentType);
    return reply->body;
  }
  static constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

  std::unique_ptr<Engine> engine_;
};

Json Body(const std::string& prompt, int max_tokens) {
  return {{"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", 0}, {"ignore_eos", true}};
}

TEST_F(MetricsTest, ThePageOfAServerThatNobodyAskedSaysSo) {
  const RunningServer server(engine_.get());
  const Samples samples = Parse(Page(server));
  EXPECT_EQ(samples.at("tessera_requests_running"), 0);
  EXPECT_EQ(samples.at("tessera_prompt_tokens_total"), 0);
  EXPECT_EQ(samples.at("tessera_time_to_first_token_seconds_count"), 0);
  EXPECT_EQ(samples.at("tessera_budget_bytes"), 64.0 * kMiB);
  EXPECT_EQ(samples.at("tessera_effective_capacity_ratio"), 0);
  EXPECT_EQ(samples.at("tessera_lookups_total{result=\"full\",reason=\"none\"}"), 0);
}

TEST_F(MetricsTest, CountsWhatWasAskedAndAnswered) {
  const RunningServer server(engine_.get());
  const Json first = server.Complete(Body(kPrompt, 6)).json;
  const Json again = server.Complete(Body(kPrompt, 4)).json;
  const StreamedAnswer streamed = Stream(server, Body(std::string(kPrompt) + " In", 3));
  EXPECT_EQ(server.Complete(Body("", -1)).status, 400) << "no request of the engine";
  const double prompt = first["usage"]["prompt_tokens"].get<double>();
  const double longer =
      static_cast<double>(engine_->tokenizer().Encode(std::string(kPrompt) + " In").size());
  ASSERT_TRUE(streamed.done);

  const Samples samples = Parse(Page(server));
  EXPECT_EQ(samples.at("tessera_requests_finished_total{finished_reason=\"length\"}"), 3);
  EXPECT_EQ(samples.at("tessera_requests_finished_total{finished_reason=\"abort\"}"), 0);
  EXPECT_EQ(samples.at("tessera_prompt_tokens_total"), 2 * prompt + longer);
  EXPECT_EQ(samples.at("tessera_generation_tokens_total"), 6 + 4 + 3);
  EXPECT_EQ(samples.at("tessera_request_generation_tokens_sum"), 13);
  EXPECT_EQ(samples.at("tessera_time_to_first_token_seconds_count"), 3);
  EXPECT_EQ(samples.at("tessera_inter_token_latency_seconds_count"), 5 + 3 + 2);
  EXPECT_EQ(samples.at("tessera_time_per_output_token_seconds_count"), 3);
  EXPECT_EQ(samples.at("tessera_e2e_request_latency_seconds_count"), 3);

  // The first computed everything, the second nothing but the head.
  EXPECT_EQ(again["usage"]["prompt_tokens_details"]["cached_tokens"], prompt);
  EXPECT_EQ(samples.at("tessera_lookups_total{result=\"none\",reason=\"cold\"}"), 1);
  EXPECT_EQ(samples.at("tessera_lookups_total{result=\"full\",reason=\"none\"}"), 1);
  const double cached = samples.at("tessera_prompt_tokens_cached_total");
  EXPECT_EQ(cached, samples.at("tessera_lookup_usable_tokens_total"));
  EXPECT_GE(cached, prompt);
  EXPECT_EQ(samples.at("tessera_prompt_tokens_computed_total") + cached, 2 * prompt + longer);
  double lookups = 0, missed = 0;
  for (const auto& [name, value] : samples) {
    if (name.starts_with("tessera_lookups_total")) lookups += value;
    if (name.starts_with("tessera_lookup_missed_tokens_total")) missed += value;
  }
  EXPECT_EQ(lookups, 3);
  EXPECT_EQ(missed + cached, 2 * prompt + longer);
}

TEST_F(MetricsTest, EveryPageOfAPoolHasOneStateAndEveryKindItsObjects) {
  const RunningServer server(engine_.get());
  server.Complete(Body(kPrompt, 6));
  ASSERT_TRUE(Eventually([&] { return Idle(*engine_); }));
  const std::string page = Page(server);
  const Samples samples = Parse(page);
  const EngineStats stats = engine_->Stats();
  double pools = 0, expected = 0;
  for (const auto& [name, value] : samples) {
    if (name.starts_with("tessera_pool_bytes")) pools += value;
  }
  for (const PoolStats& pool : stats.store.pools) {
    expected += static_cast<double>(pool.total_pages * pool.unit_bytes);
  }
  EXPECT_EQ(pools, expected);
  const double checkpoints = stats.store.reuse.checkpoints;
  EXPECT_GT(checkpoints, 0);
  EXPECT_EQ(samples.at("tessera_state_objects{kind=\"ssm\",state=\"cached\"}"), checkpoints);
  EXPECT_EQ(samples.at("tessera_state_objects{kind=\"conv\",state=\"cached\"}"), checkpoints);
  EXPECT_EQ(samples.at("tessera_state_objects{kind=\"attention\",state=\"cached\"}"),
            stats.store.reuse.blocks);
  EXPECT_EQ(samples.at("tessera_state_objects{kind=\"row\",state=\"cached\"}"),
            stats.store.reuse.rows);
  EXPECT_EQ(samples.at("tessera_protected_bytes"), 0) << "nothing runs";
  EXPECT_EQ(samples.at("tessera_checkpoints"), checkpoints);
  // With nothing evicted, all of it can be started from but what follows the last boundary.
  EXPECT_EQ(samples.at("tessera_orphaned_bytes{missing=\"attention\"}"), 0);
  EXPECT_NEAR(samples.at("tessera_effective_capacity_ratio"),
              samples.at("tessera_reusable_bytes") / (64.0 * kMiB), 1e-12);
  EXPECT_GT(samples.at("tessera_reusable_bytes"), 0);
}

TEST_F(MetricsTest, NamesHaveNoColonUntilVllmsAreAskedFor) {
  const RunningServer own(engine_.get());
  for (const std::string& name : Families(Page(own))) {
    EXPECT_TRUE(name.starts_with("tessera_")) << name;
    EXPECT_EQ(name.find(':'), name.npos) << name;
  }
  ApiOptions options;
  options.vllm_metrics = true;
  const RunningServer both(engine_.get(), {}, options);
  both.Complete(Body(kPrompt, 5));
  const Samples samples = Parse(Page(both));
  const std::string labels = "{model_name=\"" + engine_->shape().name + "\",engine=\"0\"}";
  EXPECT_EQ(samples.at("vllm:num_requests_waiting" + labels), 0);
  EXPECT_EQ(samples.at("vllm:generation_tokens_total" + labels), 5);
  EXPECT_EQ(samples.at("vllm:prefix_cache_queries_total" + labels),
            samples.at("tessera_lookup_prompt_tokens_total"));
  EXPECT_EQ(samples.at("vllm:time_to_first_token_seconds_count" + labels), 1);
  const double use = samples.at("vllm:kv_cache_usage_perc" + labels);
  EXPECT_GE(use, 0);
  EXPECT_LT(use, 1);
}

TEST_F(MetricsTest, TheDocumentNamesEveryMetricAndNoOther) {
  std::ifstream file(std::string(TESSERA_SOURCE_DIR) + "/docs/metrics.md");
  std::stringstream document;
  document << file.rdbuf();
  ApiOptions options;
  options.vllm_metrics = true;
  const RunningServer server(engine_.get(), {}, options);
  const std::vector<std::string> families = Families(Page(server));
  const std::set<std::string> written(families.begin(), families.end());
  EXPECT_EQ(written.size(), families.size()) << "a family is there twice";
  std::set<std::string> documented;
  const std::string text = document.str();
  for (const char* prefix : {"`tessera_", "`vllm:"}) {
    for (size_t at = text.find(prefix); at != text.npos; at = text.find(prefix, at + 1)) {
      const size_t end = text.find_first_of("`{", at + 1);
      documented.insert(text.substr(at + 1, end - at - 1));
    }
  }
  for (const std::string& name : written) {
    EXPECT_TRUE(documented.contains(name)) << name << " is not in docs/metrics.md";
  }
  for (const std::string& name : documented) {
    EXPECT_TRUE(written.contains(name)) << "docs/metrics.md has " << name;
  }
}

TEST(MetricsPage, CountsPressureByWayAndCause) {
  MetricsReading reading;
  reading.engine.pinned = 1;
  reading.engine.preemptions_pinned = 2;
  reading.engine.preemptions_recomputed = 3;
  reading.engine.admissions_refused = 4;
  reading.engine.growths_refused = 5;
  reading.engine.recomputed_tokens = 6;
  reading.engine.plan_ns = 2'500'000'000;
  const Samples samples = Parse(MetricsBody({}, reading, true));
  EXPECT_EQ(samples.at("tessera_requests_pinned"), 1);
  EXPECT_EQ(samples.at("tessera_preemptions_total{way=\"pin\"}"), 2);
  EXPECT_EQ(samples.at("tessera_preemptions_total{way=\"recompute\"}"), 3);
  EXPECT_EQ(samples.at("tessera_reservations_refused_total{for=\"admission\"}"), 4);
  EXPECT_EQ(samples.at("tessera_reservations_refused_total{for=\"growth\"}"), 5);
  EXPECT_EQ(samples.at("tessera_recomputed_tokens_total"), 6);
  EXPECT_EQ(samples.at("tessera_planning_seconds_total"), 2.5);
  EXPECT_EQ(samples.at("vllm:num_preemptions_total{model_name=\"\",engine=\"0\"}"), 5);
}

TEST_F(MetricsTest, WantsTheKeyThatOtherPathsWant) {
  ApiOptions options;
  options.keys = *ApiKeys::Create({"secret"});
  const RunningServer server(engine_.get(), {}, options);
  EXPECT_EQ(server.Client().Get("/metrics")->status, 401);
  EXPECT_EQ(server.Client().Get("/metrics", {{"Authorization", "Bearer secret"}})->status, 200);
}

}  // namespace
}  // namespace tessera::testing
