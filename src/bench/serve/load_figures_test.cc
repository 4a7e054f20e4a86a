// SPDX-License-Identifier: Apache-2.0
//
// Figures of records whose times are known, and the report of them.
#include "bench/serve/load_figures.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bench/serve/cache_figures.h"
#include "bench/serve/result_file.h"
#include "bench/serve/serve_report.h"

namespace tessera {
namespace {

constexpr uint64_t kMs = 1'000'000;

LoadRecord Completed(uint64_t start_ms, uint64_t first_ms, const std::vector<uint64_t>& gaps_ms) {
  LoadRecord record;
  record.outcome = LoadOutcome::kCompleted;
  record.started = true;
  record.start_ns = start_ms * kMs;
  record.first_ns = record.last_ns = first_ms * kMs;
  for (const uint64_t gap : gaps_ms) {
    record.gaps_ns.push_back(gap * kMs);
    record.last_ns += gap * kMs;
  }
  record.pieces = static_cast<uint32_t>(gaps_ms.size() + 1);
  record.prompt_tokens = 100;
  record.output_tokens = record.pieces;
  return record;
}

LoadRecord Failed(LoadFailure failure, int status, const std::string& error) {
  LoadRecord record = Completed(0, 1, {});
  record.outcome = LoadOutcome::kFailed;
  record.failure = failure;
  record.status = status;
  record.error = error;
  return record;
}

LoadRun SampleRun() {
  LoadRun run;
  run.duration_ns = 4'000 * kMs;
  run.records = {Completed(0, 100, {10, 30}), Completed(500, 200, {20, 20, 20}),
                 Completed(1900, 400, {}), Failed(LoadFailure::kStatus, 503, "HTTP 503: full")};
  run.records[0].cached_tokens = 64;
  run.records[1].cached_tokens = 0;
  run.records[2].cached_tokens = 32;
  run.records[1].arrival_ns = 450 * kMs;  // it waited 50 ms
  LoadRecord cancelled = Completed(100, 50, {5});
  cancelled.outcome = LoadOutcome::kCancelled;
  run.records.push_back(cancelled);
  return run;
}

double At(const Figures& figures, const char* key) {
  const std::optional<double> value = figures.Find(key);
  EXPECT_TRUE(value.has_value()) << key;
  return value.value_or(-1);
}

TEST(LoadFigures, FollowTheDefinitionsOfVllm) {
  FigureOptions options;
  options.metrics = {
      "ttft", "tpot", "itl", "e2el", "client_queue_time", "e2el_including_client_queue"};
  options.percentiles = {50, 99.9, 100};
  const Figures figures = LoadFigures(SampleRun(), options);
  EXPECT_EQ(At(figures, "duration"), 4);
  EXPECT_EQ(At(figures, "completed"), 3);
  EXPECT_EQ(At(figures, "failed"), 1);
  EXPECT_EQ(At(figures, "cancelled"), 1);
  EXPECT_EQ(At(figures, "failed_status_503"), 1);
  EXPECT_EQ(At(figures, "total_input_tokens"), 300);
  EXPECT_EQ(At(figures, "total_output_tokens"), 3 + 4 + 1);
  EXPECT_DOUBLE_EQ(At(figures, "request_throughput"), 0.75);
  EXPECT_DOUBLE_EQ(At(figures, "output_throughput"), 2);
  EXPECT_DOUBLE_EQ(At(figures, "total_token_throughput"), 77);
  EXPECT_FALSE(figures.Find("request_goodput").has_value());
  EXPECT_NEAR(At(figures, "mean_ttft_ms"), 700.0 / 3, 1e-9);
  EXPECT_DOUBLE_EQ(At(figures, "median_ttft_ms"), 200);
  // Deviations -133.3, -33.3 and 166.7 over all three, not two.
  EXPECT_NEAR(At(figures, "std_ttft_ms"), 124.7219, 1e-3);
  EXPECT_DOUBLE_EQ(At(figures, "p50_ttft_ms"), 200);
  EXPECT_DOUBLE_EQ(At(figures, "p99.9_ttft_ms"), 200 + 0.998 * 200);
  EXPECT_DOUBLE_EQ(At(figures, "p100_ttft_ms"), 400);
  EXPECT_DOUBLE_EQ(At(figures, "mean_tpot_ms"), 20);  // 40 / 2 and 60 / 3; one token has none
  EXPECT_DOUBLE_EQ(At(figures, "mean_itl_ms"), 20);
  EXPECT_DOUBLE_EQ(At(figures, "p100_itl_ms"), 30);
  EXPECT_NEAR(At(figures, "mean_e2el_ms"), (140 + 260 + 400) / 3.0, 1e-9);
  EXPECT_DOUBLE_EQ(At(figures, "p100_client_queue_time_ms"), 1900);  // due at 0, began at 1900
  EXPECT_DOUBLE_EQ(At(figures, "p50_client_queue_time_ms"), 50);
  EXPECT_DOUBLE_EQ(At(figures, "p50_e2el_including_client_queue_ms"), 310);
  EXPECT_EQ(At(figures, "cached_tokens"), 96);
}

// Pieces at 100, 110, 140, 700, 720, 740, 760 and 2300 ms; runs 0-140, 500-760 and 1900-2300 ms.
TEST(LoadFigures, PeaksAreOfOneSecondAndOfHalfOpenSpans) {
  LoadRun run = SampleRun();
  EXPECT_EQ(At(LoadFigures(run, {}), "max_output_tokens_per_s"), 7);
  EXPECT_EQ(At(LoadFigures(run, {}), "max_concurrent_requests"), 1);
  run.records.push_back(Completed(140, 1, {}));  // begins as the first one ends
  EXPECT_EQ(At(LoadFigures(run, {}), "max_concurrent_requests"), 1);
  run.records.push_back(Completed(600, 300, {}));
  EXPECT_EQ(At(LoadFigures(run, {}), "max_concurrent_requests"), 2);
}

TEST(LoadFigures, CachedTokensAreAbsentWhenOneAnswerDoesNotSay) {
  LoadRun run = SampleRun();
  run.records[1].cached_tokens.reset();
  EXPECT_FALSE(LoadFigures(run, {}).Find("cached_tokens").has_value());
}

TEST(LoadFigures, GoodputCountsRequestsThatMeetEveryObjective) {
  const auto goodput = [](const std::vector<std::string>& items) {
    const Result<Objectives> objectives = ParseObjectives(items);
    EXPECT_TRUE(objectives.has_value()) << objectives.error().message();
    FigureOptions options;
    options.objectives = *objectives;
    return At(LoadFigures(SampleRun(), options), "request_goodput") * 4;
  };
  EXPECT_DOUBLE_EQ(goodput({"ttft:400"}), 3);  // at the objective is within it
  EXPECT_DOUBLE_EQ(goodput({"ttft:399"}), 2);
  EXPECT_DOUBLE_EQ(goodput({"tpot:19"}), 1);  // one token: 0
  EXPECT_DOUBLE_EQ(goodput({"ttft:150", "e2el:140"}), 1);
  EXPECT_DOUBLE_EQ(goodput({"ttft:150", "e2el:139.5"}), 0);
  for (const char* item : {"ttft", "ttft:", "ttft:x", "ttft:-1", "ttft:nan", "itl:3", ":3"}) {
    const Result<Objectives> objectives = ParseObjectives({item});
    ASSERT_FALSE(objectives.has_value()) << item;
    EXPECT_NE(objectives.error().message().find(item), std::string::npos);
  }
  EXPECT_FALSE(ParseObjectives({"ttft:1", "ttft:2"}).has_value());
}

TEST(LoadFigures, ARunOfNothingIsAllZeros) {
  const Figures figures = LoadFigures(LoadRun{}, {});
  EXPECT_EQ(At(figures, "completed"), 0);
  EXPECT_EQ(At(figures, "mean_ttft_ms"), 0);
  EXPECT_EQ(At(figures, "request_throughput"), 0);
}

TEST(Spread, IsOfASample) {
  std::vector<Figures> runs(3);
  for (size_t i = 0; i < 3; ++i) runs[i].Add("x", double(1 + i * i));  // 1 2 5
  runs[1].Add("y", 7);
  const std::optional<Spread> x = SpreadOf(runs, "x");
  ASSERT_TRUE(x.has_value());
  EXPECT_NEAR(x->mean, 8.0 / 3, 1e-12);
  EXPECT_EQ(x->min, 1);
  EXPECT_EQ(x->max, 5);
  EXPECT_NEAR(x->std, 2.081666, 1e-6);
  EXPECT_EQ(SpreadOf(runs, "y")->std, 0);
  EXPECT_FALSE(SpreadOf(runs, "z").has_value());
}

std::string CacheBody(int lookups, int evicted, int cold) {
  return nlohmann::json{
      {"reuse",
       {{"lookups", lookups},
        {"hits", 1},
        {"prompt_tokens", lookups * 10},
        {"attention_tokens", 5},
        {"recurrent_tokens", 5},
        {"reused_tokens", 4},
        {"computed_tokens", {{"cold", cold}, {"evicted", evicted}, {"no_checkpoint", evicted}}}}},
      {"kept", {{"evicted_checkpoints", 0}, {"evicted_blocks", 0}}},
      {"totals", {{"prompt_tokens", 9}}}}
      .dump();
}

TEST(CacheFigures, AreWhatGrewDuringTheRun) {
  const auto before = ParseCacheCounters(CacheBody(3, 10, 7));
  const auto after = ParseCacheCounters(CacheBody(8, 25, 7));
  ASSERT_TRUE(before && after);
  Figures figures;
  AddCacheFigures(*before, *after, &figures);
  EXPECT_EQ(At(figures, "cache_lookups"), 5);
  EXPECT_EQ(At(figures, "cache_prompt_tokens"), 50);
  EXPECT_EQ(At(figures, "cache_computed_tokens_cold"), 0);
  EXPECT_EQ(At(figures, "cache_computed_tokens"), 30);
  EXPECT_EQ(At(figures, "cache_recomputed_tokens"), 30);
  for (const char* other : {"", "[]", "{}", R"({"reuse":3})", R"({"reuse":{"lookups":1}})"}) {
    EXPECT_FALSE(ParseCacheCounters(other).has_value()) << other;
  }
}

ServeBenchReport SampleReport(size_t repeats) {
  ServeBenchReport report;
  report.options.model = "toy";
  report.options.max_concurrency = 8;
  report.options.request_rate = 2.5;
  report.options.figures.objectives.ttft = 250;
  report.workload = "a workload";
  report.prompt_count = 5;
  for (size_t i = 0; i < repeats; ++i) {
    ServeRepeat repeat;
    repeat.seed = i;
    repeat.run = SampleRun();
    repeat.run.duration_ns += i * 1'000 * kMs;
    repeat.figures = LoadFigures(repeat.run, report.options.figures);
    report.repeats.push_back(std::move(repeat));
  }
  return report;
}

TEST(ServeReport, TextHasVllmsBannerLabelsAndColumns) {
  const std::string text = ServeBenchText(SampleReport(1));
  for (const char* line :
       {"============ Serving Benchmark Result ============\n",
        "Successful requests:                     3\n",
        "Failed requests:                         1\n",
        "Maximum request concurrency:             8\n",
        "Request rate configured (RPS):           2.50\n",
        "Benchmark duration (s):                  4.00\n",
        "Total input tokens:                      300\n",
        "Total generated tokens:                  8\n",
        "Request throughput (req/s):              0.75\n",
        "Request goodput (req/s):                 0.50\n",
        "Output token throughput (tok/s):         2.00\n",
        "Peak output token throughput (tok/s):    7.00\n",
        "Peak concurrent requests:                1.00\n",
        "Total token throughput (tok/s):          77.00\n",
        "---------------Time to First Token----------------\n",
        "-----Time per Output Token (excl. 1st token)------\n",
        "P99 ITL (ms):                            29.60\n", "     1 x status: HTTP 503: full\n",
        "==================================================\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_EQ(text.find("±"), std::string::npos);  // one run has no spread
}

TEST(ServeReport, RepeatsHaveTheirMeanAndSpread) {
  ServeBenchReport report = SampleReport(3);
  const std::string text = ServeBenchText(report);
  EXPECT_NE(
      text.find("Benchmark duration (s):                  5.00       ± 1.00     4.00 … 6.00\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("Successful requests:                     3\n"), std::string::npos);
  EXPECT_NE(text.find("3 repeats, seeds 0 to 2"), std::string::npos);
  report.repeats[1].figures.Add("client_busy_share", 0);
  report.repeats[1].run.busy_share = 0.8;
  report.repeats[1].figures = LoadFigures(report.repeats[1].run, report.options.figures);
  EXPECT_NE(ServeBenchText(report).find("The client worked 80 % of the time"), std::string::npos);
}

TEST(ServeReport, JsonHasVllmsKeysAndOneEntryForEachRequestInItsLists) {
  const ServeBenchReport report = SampleReport(2);
  const auto json = nlohmann::json::parse(ServeBenchJson(report, /*records=*/true));
  for (const char* key : {"date",
                          "endpoint_type",
                          "model_id",
                          "num_prompts",
                          "request_rate",
                          "burstiness",
                          "max_concurrency",
                          "duration",
                          "completed",
                          "failed",
                          "total_input_tokens",
                          "total_output_tokens",
                          "request_throughput",
                          "request_goodput",
                          "output_throughput",
                          "total_token_throughput",
                          "max_output_tokens_per_s",
                          "max_concurrent_requests",
                          "mean_ttft_ms",
                          "median_ttft_ms",
                          "std_ttft_ms",
                          "p99_ttft_ms",
                          "mean_tpot_ms",
                          "mean_itl_ms",
                          "mean_e2el_ms",
                          "p99_e2el_ms"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  for (const char* key : {"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times",
                          "queue_times", "generated_texts", "errors", "outcomes", "receipts"}) {
    ASSERT_TRUE(json.contains(key)) << key;
    EXPECT_EQ(json[key].size(), 10u) << key;
  }
  EXPECT_EQ(json["request_repeats"][5], 1);
  EXPECT_EQ(json["duration"], 4.5);
  EXPECT_EQ(json["repeats"][1]["duration"], 5);
  EXPECT_EQ(json["spread"]["duration"]["max"], 5);
  EXPECT_EQ(json["errors"][3], "HTTP 503: full");
  EXPECT_EQ(json["errors"][0], "");
  EXPECT_EQ(json["itls"][0], nlohmann::json({0.01, 0.03}));
  EXPECT_FALSE(nlohmann::json::parse(ServeBenchJson(report, false)).contains("ttfts"));
}

TEST(ServeReport, ATextThatIsNotUtf8IsWrittenAllTheSame) {
  ServeBenchReport report = SampleReport(1);
  report.repeats[0].run.records[0].text = "\xff";
  EXPECT_FALSE(nlohmann::json::parse(ServeBenchJson(report, true), nullptr, false).is_discarded());
}

TEST(ProgressLine, FitsTheTerminal) {
  LoadProgress progress;
  progress.ended = 30;
  progress.total = 120;
  progress.running = 4;
  progress.pieces = 900;
  progress.seconds = 3;
  EXPECT_EQ(ProgressLine("requests", progress, 80),
            "requests [#########..............................] 30/120  4 running  300 tok/s");
  for (size_t columns = 0; columns < 120; ++columns) {
    EXPECT_TRUE(ProgressLine("requests", progress, columns).size() < std::max<size_t>(columns, 1));
  }
}

class ResultFileTest : public ::testing::Test {
 protected:
  ResultFileTest() { std::filesystem::create_directories(folder_); }
  ~ResultFileTest() override { std::filesystem::remove_all(folder_); }
  size_t Files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("tessera-result-file-" + std::to_string(getpid()));
};

TEST_F(ResultFileTest, ReplacesAFileWhole) {
  const std::string path = folder_ / "r.json";
  EXPECT_TRUE(CheckResultPath(path).ok());
  EXPECT_EQ(Files(), 0u);
  EXPECT_TRUE(WriteResultFile(path, "one").ok());
  EXPECT_TRUE(WriteResultFile(path, "two").ok());
  std::ifstream in(path);
  std::string text;
  in >> text;
  EXPECT_EQ(text, "two");
  EXPECT_EQ(Files(), 1u);
}

TEST_F(ResultFileTest, AFullDiskKeepsTheOldFileAndNoOther) {
  const std::string path = folder_ / "r.json";
  ASSERT_TRUE(WriteResultFile(path, "old").ok());
  // A limit on file sizes fails as a full disk does, in the middle of the write.
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = WriteResultFile(path, std::string(10'000, 'x'));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), StatusCode::kIo);
  EXPECT_EQ(status.message().find(path), 0u) << status.message();
  EXPECT_EQ(std::filesystem::file_size(path), 3u);
  EXPECT_EQ(Files(), 1u);
  EXPECT_EQ(WriteResultFile("/dev/full", "x").code(), StatusCode::kIo);
}

}  // namespace
}  // namespace tessera
