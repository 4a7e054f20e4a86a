// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "bench/memory_ops_bench.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::string OperationsText(const MemoryBenchReport& report) {
  std::string text =
      fmt::format("\n{:>9} {:>9} {:>11} {:<19} {:<15} {:<5} {:>9} {:>9} {:>7}\n", "entries",
                  "blocks", "checkpoints", "operation", "per", "cache", "ns", "lowest", "spread");
  for (const OperationTime& line : report.operations) {
    text += fmt::format("{:>9} {:>9} {:>11} {:<19} {:<15} {:<5} {:>9.1f} {:>9.1f} {:>6.0f}%\n",
                        line.entries, line.blocks, line.checkpoints, line.name, line.unit,
                        line.cold ? "cold" : "warm", line.ns.Median(), line.ns.Low(),
                        100 * line.ns.Spread());
  }
  return text;
}

std::string RatesText(const MemoryBenchReport& report) {
  if (report.rates.empty()) return {};
  std::string text = fmt::format(
      "\nwhole requests, find to release, of all threads together under the one lock\n"
      "{:>9} {:>7} {:>17} {:>12} {:>12}\n",
      "entries", "threads", "requests a lock", "ns a block", "requests/s");
  for (const RequestRate& rate : report.rates) {
    text += fmt::format("{:>9} {:>7} {:>17} {:>12.1f} {:>12.0f}\n", rate.entries, rate.threads,
                        rate.requests_per_step, rate.ns_per_block, rate.requests_per_second);
  }
  return text;
}

std::string ReclaimsText(const MemoryBenchReport& report) {
  std::string text = fmt::format(
      "\nreclaiming one page\n{:<12} {:<9} {:>9} {:>6} {:<6} {:>11} {:>8} {:>11} {:>9} {:>8}\n",
      "organisation", "page", "groups", "slots", "owners", "invalidated", "contexts", "pages freed",
      "ns", "ns/entry");
  for (const ReclaimTime& line : report.reclaims) {
    const std::string slots =
        line.slots == 0 ? "-" : fmt::format("{}/{}", line.slots_used, line.slots);
    text += fmt::format(
        "{:<12} {:<9} {:>9} {:>6} {:<6} {:>11.1f} {:>8.1f} {:>11.1f} {:>9.0f} {:>8.0f}\n",
        line.organisation, line.page, line.entries, slots, line.slots == 0 ? "-" : line.owners,
        line.invalidated, line.contexts, line.pages_freed, line.ns.Median(),
        line.ns.Median() / line.invalidated);
  }
  return text;
}

std::string LeftOutText(const MemoryBenchReport& report) {
  std::string text;
  for (const MemoryBenchReport::LeftOut& size : report.left_out) {
    text +=
        fmt::format("left out: {} entries take {} of metadata, {} are available\n", size.entries,
                    FormatBytes(size.needed_bytes), FormatBytes(size.available_bytes));
  }
  return text;
}

Json TimesJson(const Samples& ns) {
  return {{"ns", ns.Median()},
          {"ns_low", ns.Low()},
          {"ns_high", ns.High()},
          {"spread", ns.Spread()},
          {"samples", ns.size()}};
}

Json OperationJson(const OperationTime& line) {
  Json json = {
      {"entries", line.entries}, {"blocks", line.blocks}, {"checkpoints", line.checkpoints},
      {"operation", line.name},  {"per", line.unit},      {"cache", line.cold ? "cold" : "warm"}};
  json.update(TimesJson(line.ns));
  return json;
}

Json ReclaimJson(const ReclaimTime& line) {
  const bool slab = line.slots > 0;
  Json json = {{"organisation", line.organisation},
               {"page", line.page},
               {"groups", line.entries},
               {"slots_used", slab ? Json(line.slots_used) : Json()},
               {"slots", slab ? Json(line.slots) : Json()},
               {"owners", slab ? Json(line.owners) : Json()},
               {"invalidated", line.invalidated},
               {"contexts", line.contexts},
               {"pages_freed", line.pages_freed}};
  json.update(TimesJson(line.ns));
  return json;
}

}  // namespace

std::string MemoryBenchText(const MemoryBenchReport& report) {
  return fmt::format("{}: {}, {} samples of each line\n", report.geometry, report.cpu,
                     report.samples) +
         OperationsText(report) + RatesText(report) + ReclaimsText(report) + LeftOutText(report);
}

std::string MemoryBenchJson(const MemoryBenchReport& report) {
  Json operations = Json::array(), rates = Json::array(), reclaims = Json::array(),
       left_out = Json::array();
  for (const OperationTime& line : report.operations) operations.push_back(OperationJson(line));
  for (const RequestRate& rate : report.rates) {
    rates.push_back({{"entries", rate.entries},
                     {"threads", rate.threads},
                     {"requests_per_lock", rate.requests_per_step},
                     {"ns_per_block", rate.ns_per_block},
                     {"requests_per_second", rate.requests_per_second}});
  }
  for (const ReclaimTime& line : report.reclaims) reclaims.push_back(ReclaimJson(line));
  for (const MemoryBenchReport::LeftOut& size : report.left_out) {
    left_out.push_back({{"entries", size.entries},
                        {"needed_bytes", size.needed_bytes},
                        {"available_bytes", size.available_bytes}});
  }
  const Json json = {{"geometry", report.geometry}, {"cpu", report.cpu},
                     {"samples", report.samples},   {"operations", operations},
                     {"requests", rates},           {"reclaims", reclaims},
                     {"left_out", left_out}};
  return json.dump(2);
}

}  // namespace tessera
