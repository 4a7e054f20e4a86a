// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/step_bench.h"
#include "bench/time_text.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

double KiBOf(double bytes) { return bytes / 1024; }

// Then the floor, which is what memory gives, is none.
bool FitsCaches(const StepSpeed& speed, const StepBenchReport& report) {
  return speed.floor.moved_bytes() <= static_cast<double>(report.last_level_bytes);
}

// "-" when the model has no recurrent state, and so no images.
std::string ImageText(const StepBenchReport& report, double kib, int decimals) {
  return report.has_recurrent_state ? fmt::format("{:.{}f}", kib, decimals) : "-";
}

std::string SpeedsText(const StepBenchReport& report) {
  std::string text =
      fmt::format("\n{:>9} {:>11} {:>10} {:>13} {:>11} {:>8} {:<6} {:>7}\n", "sequences", "step",
                  "tok/s", "weights GB/s", "floor", "reached", "bound", "spread");
  bool fits = false;
  for (const StepSpeed& speed : report.speeds) {
    const double seconds = speed.seconds.Median();
    const Bound bound = BoundOf(speed.floor, report.rates);
    fits |= FitsCaches(speed, report);
    text += fmt::format("{:>9} {:>11} {:>10.1f} {:>13.1f} {:>11} {:>7.1f}% {:<6} {:>6.1f}%{}\n",
                        speed.sequences, TimeText(seconds), speed.tokens_per_second(),
                        static_cast<double>(report.weight_bytes) / seconds * 1e-9,
                        TimeText(bound.seconds), 100 * bound.seconds / seconds, bound.by,
                        100 * speed.seconds.Spread(), FitsCaches(speed, report) ? " *" : "");
  }
  if (!fits) return text;
  return text + fmt::format(
                    "* what the step moves fits the caches ({:.0f} MB): the floor, which is "
                    "what memory gives, may be undercut\n",
                    static_cast<double>(report.last_level_bytes) * 1e-6);
}

std::string LayoutsText(const StepBenchReport& report) {
  if (report.layouts.empty()) return {};
  std::string text = fmt::format(
      "\n{} sequences, each organisation in turns with s0 on a fresh arena: {}\n"
      "{:<14} {:<6} {:>11} {:>13} {:>11} {:>11} {:>7} {:>15}\n",
      report.compared_sequences,
      report.has_recurrent_state
          ? "one page per image"
          : "the model has no recurrent state, so that attention alone lies in pages",
      "organisation", "pages", "page KiB", "mean run KiB", "step", "contiguous", "ratio",
      "lowest-highest");
  for (const StepLayout& layout : report.layouts) {
    text += fmt::format("{:<14} {:<6} {:>11} {:>13} {:>11} {:>11} {:>7.3f} {:>7.3f}-{:.3f}\n",
                        layout.organisation, layout.aged ? "aged" : "fresh",
                        ImageText(report, KiBOf(static_cast<double>(layout.unit_bytes)), 1),
                        ImageText(report, KiBOf(layout.mean_run_bytes), 0),
                        TimeText(layout.seconds.Median()), TimeText(layout.base_seconds.Median()),
                        layout.ratios.Median(), layout.ratios.Low(), layout.ratios.High());
  }
  return text;
}

Json SpeedJson(const StepSpeed& speed, const StepBenchReport& report) {
  const double seconds = speed.seconds.Median();
  const Bound bound = BoundOf(speed.floor, report.rates);
  return {{"sequences", speed.sequences},
          {"seconds", seconds},
          {"seconds_low", speed.seconds.Low()},
          {"seconds_high", speed.seconds.High()},
          {"spread", speed.seconds.Spread()},
          {"samples", speed.seconds.size()},
          {"tokens_per_second", speed.tokens_per_second()},
          {"floor_seconds", bound.seconds},
          {"bound", bound.by},
          {"reached", bound.seconds / seconds},
          {"fits_caches", FitsCaches(speed, report)}};
}

Json LayoutJson(const StepLayout& layout, bool has_images) {
  return {{"organisation", layout.organisation},
          {"pages", layout.aged ? "aged" : "fresh"},
          {"page_bytes", has_images ? Json(layout.unit_bytes) : Json()},
          {"mean_run_bytes", has_images ? Json(layout.mean_run_bytes) : Json()},
          {"arena_bytes", layout.arena_bytes},
          {"seconds", layout.seconds.Median()},
          {"contiguous_seconds", layout.base_seconds.Median()},
          {"ratio", layout.ratios.Median()},
          {"ratio_low", layout.ratios.Low()},
          {"ratio_high", layout.ratios.High()},
          {"rounds", layout.ratios.size()}};
}

}  // namespace

std::string StepBenchText(const StepBenchReport& report) {
  return fmt::format(
             "{}: {}, {} kernels, {} threads, {} state, context {}; a step reads {:.0f} MB of "
             "weights; memory read {:.1f} GB/s\n",
             report.model, report.cpu, report.isa, report.threads, StateTypeName(report.state_type),
             report.context_tokens, static_cast<double>(report.weight_bytes) * 1e-6,
             report.rates.read * 1e-9) +
         SpeedsText(report) + LayoutsText(report);
}

std::string StepBenchJson(const StepBenchReport& report) {
  Json speeds = Json::array(), layouts = Json::array();
  for (const StepSpeed& speed : report.speeds) speeds.push_back(SpeedJson(speed, report));
  for (const StepLayout& layout : report.layouts) {
    layouts.push_back(LayoutJson(layout, report.has_recurrent_state));
  }
  const Json json = {{"model", report.model},
                     {"cpu", report.cpu},
                     {"isa", report.isa},
                     {"threads", report.threads},
                     {"state", StateTypeName(report.state_type)},
                     {"context_tokens", report.context_tokens},
                     {"weight_bytes", report.weight_bytes},
                     {"read_bytes_per_second", report.rates.read},
                     {"speed", speeds},
                     {"layout_sequences", report.compared_sequences},
                     {"layout", layouts}};
  // The model's name is the file's; it need not be UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
