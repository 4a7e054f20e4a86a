// SPDX-License-Identifier: Apache-2.0
#include "bench/kernel_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string_view>

#include "bench/time_text.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kGiga = 1e9;

std::string PageText(uint64_t bytes) { return fmt::format("{} KiB", bytes / 1024); }

std::string CeilingsText(const KernelBenchReport& report) {
  std::string text =
      fmt::format("\n{:<28} {:>4} {:>10} {:<5} {:>7}\n", "ceiling", "thr", "rate", "", "spread");
  for (const Ceilings& ceilings : report.ceilings) {
    for (const Ceilings::Line& line : ceilings.lines()) {
      const std::string name =
          line.variant.empty() ? line.what : fmt::format("{} {}", line.what, line.variant);
      text += fmt::format("{:<28} {:>4} {:>10.1f} {:<5} {:>6.1f}%{}\n", name, ceilings.threads(),
                          line.rate() / kGiga, line.is_bytes() ? "GB/s" : "Gop/s",
                          100 * line.bench.seconds.Spread(), line.best ? "  best" : "");
    }
  }
  return text;
}

std::string KernelsText(const KernelBenchReport& report) {
  if (report.kernels.empty()) return {};
  std::string text =
      fmt::format("\n{:<30} {:<6} {:>3} {:>11} {:>8} {:>8} {:>11} {:>7} {:<6} {:>6}\n", "kernel",
                  "from", "thr", "time", "GB/s", "Gop/s", "floor", "reached", "bound", "spread");
  for (const BenchCase& bench : report.kernels) {
    const double seconds = bench.seconds.Median();
    const Bound bound = BoundOf(bench.floor, report.RatesFor(bench.threads()));
    text += fmt::format(
        "{:<30} {:<6} {:>3} {:>11} {:>8.1f} {:>8.1f} {:>11} {:>6.1f}% {:<6} {:>5.1f}%\n",
        bench.name, bench.from, bench.threads(), TimeText(seconds),
        bench.floor.moved_bytes() / seconds / kGiga,
        bench.floor.total_operations() / seconds / kGiga, TimeText(bound.seconds),
        100 * bound.seconds / seconds, bound.by, 100 * bench.seconds.Spread());
  }
  return text;
}

std::string LayoutsText(const KernelBenchReport& report) {
  if (report.layouts.empty()) return {};
  std::string text =
      fmt::format("\n{:<10} {:<7} {:>9} {:>6} {:>9} {:>3} {:>11} {:>11} {:>8} {:>7}\n", "layout of",
                  "order", "page", "pages", "run", "thr", "contiguous", "paged", "ratio", "spread");
  for (const LayoutCase& layout : report.layouts) {
    const PairedCase& pair = layout.pair;
    text +=
        fmt::format("{:<10} {:<7} {:>9} {:>6} {:>9} {:>3} {:>11} {:>11} {:>8.3f} {:>6.1f}%\n",
                    layout.kernel, layout.order, PageText(layout.page_bytes), layout.run_pages,
                    PageText(layout.page_bytes * layout.run_pages), pair.base.threads(),
                    TimeText(pair.base_seconds.Median()), TimeText(pair.candidate.seconds.Median()),
                    pair.ratios.Median(), 100 * pair.ratios.Spread());
  }
  return text;
}

std::string InvarianceText(const KernelBenchReport& report) {
  if (report.invariance.empty()) return {};
  std::string text = fmt::format("\n{:<8} {:>4} {:<14} {:>11} {:>11} {:>8} {:>7}\n", "invariance",
                                 "rows", "against", "kernel", "variant", "ratio", "spread");
  for (const InvarianceCase& one : report.invariance) {
    text += fmt::format("{:<10} {:>4} {:<14} {:>11} {:>11} {:>8.3f} {:>6.1f}%\n", one.from,
                        one.rows, one.variant, TimeText(one.pair.candidate.seconds.Median()),
                        TimeText(one.pair.base_seconds.Median()), one.pair.ratios.Median(),
                        100 * one.pair.ratios.Spread());
  }
  text += "\ncost of batch invariance against the fastest variant\n";
  for (const InvarianceCost& cost : InvarianceCosts(report)) {
    text += fmt::format("{:<10} {:>4} {:<14} {:>11} {:>11} {:>+7.1f}%\n", cost.from, cost.rows,
                        cost.fastest, TimeText(cost.kernel_seconds), TimeText(cost.variant_seconds),
                        100 * (cost.ratio - 1));
  }
  return text;
}

Json CeilingsJson(const KernelBenchReport& report) {
  Json all = Json::array();
  for (const Ceilings& ceilings : report.ceilings) {
    for (const Ceilings::Line& line : ceilings.lines()) {
      all.push_back({{"what", line.what},
                     {"variant", line.variant},
                     {"threads", ceilings.threads()},
                     {line.is_bytes() ? "bytes_per_second" : "operations_per_second", line.rate()},
                     {"spread", line.bench.seconds.Spread()},
                     {"best", line.best}});
    }
  }
  return all;
}

Json KernelJson(const BenchCase& bench, const MachineRates& rates) {
  const double seconds = bench.seconds.Median();
  const Bound bound = BoundOf(bench.floor, rates);
  return {{"name", bench.name},
          {"from", bench.from},
          {"threads", bench.threads()},
          {"seconds", seconds},
          {"seconds_low", bench.seconds.Low()},
          {"seconds_high", bench.seconds.High()},
          {"spread", bench.seconds.Spread()},
          {"wall_seconds", bench.wall_seconds.Median()},
          {"cpu_seconds", bench.cpu_seconds.Median()},
          {"samples", bench.seconds.size()},
          {"calls_per_sample", bench.calls},
          {"floor_bytes", bench.floor.moved_bytes()},
          {"floor_operations", bench.floor.total_operations()},
          {"bytes_per_second", bench.floor.moved_bytes() / seconds},
          {"operations_per_second", bench.floor.total_operations() / seconds},
          {"floor_seconds", bound.seconds},
          {"bound", bound.by},
          {"reached", bound.seconds / seconds}};
}

Json LayoutsJson(const KernelBenchReport& report) {
  Json all = Json::array();
  for (const LayoutCase& layout : report.layouts) {
    all.push_back({{"kernel", layout.kernel},
                   {"order", layout.order},
                   {"page_bytes", layout.page_bytes},
                   {"run_pages", layout.run_pages},
                   {"threads", layout.pair.base.threads()},
                   {"contiguous_seconds", layout.pair.base_seconds.Median()},
                   {"paged_seconds", layout.pair.candidate.seconds.Median()},
                   {"ratio", layout.pair.ratios.Median()},
                   {"ratio_low", layout.pair.ratios.Low()},
                   {"ratio_high", layout.pair.ratios.High()},
                   {"spread", layout.pair.ratios.Spread()}});
  }
  return all;
}

Json InvarianceJson(const KernelBenchReport& report) {
  Json pairs = Json::array(), costs = Json::array();
  for (const InvarianceCase& one : report.invariance) {
    pairs.push_back({{"from", one.from},
                     {"rows", one.rows},
                     {"variant", one.variant},
                     {"kernel_seconds", one.pair.candidate.seconds.Median()},
                     {"variant_seconds", one.pair.base_seconds.Median()},
                     {"ratio", one.pair.ratios.Median()},
                     {"spread", one.pair.ratios.Spread()}});
  }
  for (const InvarianceCost& cost : InvarianceCosts(report)) {
    costs.push_back({{"from", cost.from},
                     {"rows", cost.rows},
                     {"fastest", cost.fastest},
                     {"kernel_seconds", cost.kernel_seconds},
                     {"variant_seconds", cost.variant_seconds},
                     {"cost", cost.ratio - 1},
                     {"spread", cost.spread}});
  }
  return {{"pairs", pairs}, {"costs", costs}};
}

}  // namespace

std::vector<InvarianceCost> InvarianceCosts(const KernelBenchReport& report) {
  std::vector<InvarianceCost> costs;
  for (const InvarianceCase& one : report.invariance) {
    const double ratio = one.pair.ratios.Median();
    if (costs.empty() || costs.back().rows != one.rows ||
        std::string_view(costs.back().from) != one.from) {
      costs.emplace_back();
    }
    InvarianceCost& cost = costs.back();
    cost.rows = one.rows;
    cost.from = one.from;
    if (ratio <= cost.ratio) continue;
    cost.fastest = one.variant;
    cost.ratio = ratio;
    cost.spread = one.pair.ratios.Spread();
    cost.kernel_seconds = one.pair.candidate.seconds.Median();
    cost.variant_seconds = one.pair.base_seconds.Median();
  }
  return costs;
}

std::string KernelBenchText(const KernelBenchReport& report) {
  std::string text = fmt::format(
      "{}, {} kernels, {} rounds in {:.1f} s{}; {:.0f} MB mapped, a matrix in memory is {:.0f} MB\n"
      "medians; spread: distance of the quartiles over the median; 1 thread by its CPU time, more "
      "by the wall clock\n",
      report.cpu, report.isa, report.rounds, report.seconds, report.stopped ? ", interrupted" : "",
      static_cast<double>(report.memory.mapped_bytes()) * 1e-6,
      static_cast<double>(report.matrix_bytes) * 1e-6);
  return text + CeilingsText(report) + KernelsText(report) + LayoutsText(report) +
         InvarianceText(report);
}

std::string KernelBenchJson(const KernelBenchReport& report) {
  Json kernels = Json::array();
  for (const BenchCase& bench : report.kernels) {
    kernels.push_back(KernelJson(bench, report.RatesFor(bench.threads())));
  }
  const Json json = {{"cpu", report.cpu},
                     {"isa", report.isa},
                     {"rounds", report.rounds},
                     {"seconds", report.seconds},
                     {"interrupted", report.stopped},
                     {"mapped_bytes", report.memory.mapped_bytes()},
                     {"matrix_bytes", report.matrix_bytes},
                     {"ceilings", CeilingsJson(report)},
                     {"kernels", kernels},
                     {"layout", LayoutsJson(report)},
                     {"invariance", InvarianceJson(report)}};
  return json.dump(2);
}

}  // namespace tessera
