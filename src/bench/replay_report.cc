// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "bench/replay_bench.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr ComputeReason kReasonsShown[] = {ComputeReason::kCold, ComputeReason::kDiverged,
                                           ComputeReason::kEvicted, ComputeReason::kNoCheckpoint,
                                           ComputeReason::kBelowGrid};

std::string TraceLine(const ReplayResult& run) {
  const std::string order =
      run.at_once == 0 ? "in file order" : fmt::format("{} sessions at once", run.at_once);
  return fmt::format("\n{}: {} requests, {} input tokens, {}\n", run.trace, run.requests,
                     run.input_tokens, order);
}

std::string RunsText(const ReplayReport& report) {
  std::string text;
  for (const ReplayResult& run : report.runs) {
    if (&run == &report.runs.front() || run.trace != (&run)[-1].trace) {
      text += TraceLine(run);
      text += fmt::format("{:>10} {:<22} {:>7}", "capacity", "policy", "hit");
      for (ComputeReason reason : kReasonsShown) {
        text += fmt::format(" {:>13}", ComputeReasonName(reason));
      }
      text += fmt::format(" {:>7} {:>8} {:>8} {:>8} {:>9} {:>10} {:>10}\n", "refused", "placed",
                          "skipped", "evicted", "peak", "of entries", "us/request");
    }
    text += fmt::format("{:>10} {:<22} {:>7.4f}", TokenCapacityText(run.capacity_tokens),
                        run.policy.ToString(), run.hit_rate());
    for (ComputeReason reason : kReasonsShown) {
      text += fmt::format(" {:>13.4f}", run.rate(run.computed_tokens[static_cast<size_t>(reason)]));
    }
    text += fmt::format(" {:>7} {:>8} {:>8} {:>8} {:>9} {:>10} {:>10.1f}\n", run.refused,
                        run.placed_checkpoints, run.skipped_checkpoints, run.evicted_checkpoints,
                        run.peak_checkpoints, run.peak_entries, run.request_us.Median());
  }
  return text;
}

// One line for each capacity, a column for each policy.
std::string ComparisonText(const ReplayReport& report) {
  std::string text, line, header;
  const ReplayResult* first = nullptr;  // of the line
  bool headed = false;
  const auto end_line = [&] {
    if (first == nullptr) return;
    if (!headed) text += TraceLine(*first) + fmt::format("{:>10}{}\n", "capacity", header);
    headed = true;
    text += fmt::format("{:>10}{}\n", TokenCapacityText(first->capacity_tokens), line);
    line.clear();
  };
  for (const ReplayResult& run : report.runs) {
    const bool new_trace = first == nullptr || first->trace != run.trace;
    if (new_trace || first->capacity_tokens != run.capacity_tokens) {
      end_line();
      first = &run;
      header.clear();
      headed = headed && !new_trace;
    }
    const std::string name = run.policy.ToString();
    header += fmt::format(" {}", name);
    line += fmt::format(" {:>{}.4f}", run.hit_rate(), name.size());
  }
  end_line();
  return text;
}

Json RunJson(const ReplayResult& run) {
  Json computed;
  for (int i = 0; i < kComputeReasons; ++i) {
    computed[std::string(ComputeReasonName(static_cast<ComputeReason>(i)))] =
        run.computed_tokens[i];
  }
  return {{"trace", run.trace},
          {"at_once", run.at_once},
          {"capacity_tokens", run.capacity_tokens ? Json(*run.capacity_tokens) : Json()},
          {"placement", run.policy.placement.ToString()},
          {"eviction", EvictionPolicyName(run.policy.eviction)},
          {"checkpoint_grid", run.policy.grid},
          {"requests", run.requests},
          {"input_tokens", run.input_tokens},
          {"hits", run.hits},
          {"hit_rate", run.hit_rate()},
          {"reused_tokens", run.reused_tokens},
          {"computed_tokens", computed},
          {"refused_requests", run.refused},
          {"refused_tokens", run.refused_tokens},
          {"placed_checkpoints", run.placed_checkpoints},
          {"skipped_checkpoints", run.skipped_checkpoints},
          {"evicted_checkpoints", run.evicted_checkpoints},
          {"evicted_blocks", run.evicted_blocks},
          {"peak_checkpoints", run.peak_checkpoints},
          {"peak_entries", run.peak_entries},
          {"metadata_bytes", run.metadata_bytes},
          {"request_us", run.request_us.Median()},
          {"request_us_p99", run.request_us.Quantile(0.99)}};
}

}  // namespace

std::string ReplayText(const ReplayReport& report) {
  return fmt::format("{}: a checkpoint takes as much as {} tokens; {}; shares of input tokens\n",
                     report.model.name, report.model.price_tokens(), report.organisation) +
         (report.compared ? ComparisonText(report) : RunsText(report));
}

std::string ReplayJson(const ReplayReport& report) {
  Json runs = Json::array();
  for (const ReplayResult& run : report.runs) runs.push_back(RunJson(run));
  const Json json = {{"model", report.model.name},
                     {"price_tokens", report.model.price_tokens()},
                     {"organisation", report.organisation},
                     {"seed", report.seed},
                     {"runs", runs}};
  return json.dump(2);
}

}  // namespace tessera
