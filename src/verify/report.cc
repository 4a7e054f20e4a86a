// SPDX-License-Identifier: Apache-2.0
#include "verify/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/bytes.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

std::string ResultWord(const Examination& examination) {
  if (!examination.reference_finite) return "REFERENCE NOT FINITE";
  if (examination.reference_spoiled.has_value()) return "REFERENCE SPOILED";
  if (examination.mismatch.has_value()) return "DIFFERENT";
  if (!examination.reached_minimum()) return "INCOMPLETE";
  return examination.cells_run < examination.cells_planned ? "equal (time limit)" : "equal";
}

std::string VerdictWord(Verdict verdict) {
  switch (verdict) {
    case Verdict::kExact:
      return "exact";
    case Verdict::kPartly:
      return "exact as far as time allowed";
    case Verdict::kIncomplete:
      return "INCOMPLETE";
    case Verdict::kFailed:
      return "FAILED";
  }
  return "?";
}

std::string CellsText(uint32_t run, uint32_t planned) {
  return run == planned ? fmt::format("{}", run) : fmt::format("{} of {}", run, planned);
}

// A verdict on fewer cells than planned says so.
std::string VerdictText(const VerifyReport& report) {
  const EvidenceCounts counts = report.counts();
  const bool all = report.cells() == report.cells_planned();
  std::string overrun;
  if (report.overran() && !report.examinations.empty()) {
    const Examination& given = report.examinations.front();
    overrun = fmt::format("more than {:.0f} s: {} took {:.1f} s, {:.1f} s of that its reference\n",
                          kQuickSeconds, given.name, given.seconds, given.reference_seconds);
  }
  return overrun + fmt::format(
                       "{}: {} cells{}, {} norm rows, {} logit rows, {} of state, {} control runs, "
                       "{:.1f} s\n",
                       VerdictWord(report.verdict()),
                       CellsText(report.cells(), report.cells_planned()),
                       all || report.verdict() == Verdict::kFailed ? "" : " in the time limit",
                       counts.norm_rows, counts.logit_rows, FormatBytes(counts.state_bytes),
                       report.controls(), report.seconds);
}

std::string PlanWord(const Examination& examination) {
  return examination.full_product ? "product" : "pairwise";
}

std::string MismatchText(const VerifyReport& report, size_t index) {
  const Examination& examination = report.examinations[index];
  return fmt::format(
      "\n{} differs\n"
      "  cell      {}\n"
      "  first     {}\n"
      "  simplest  {}\n"
      "  first     {}\n",
      examination.name, report.mismatch_cells[index], examination.mismatch->difference.ToString(),
      report.simplest_cells[index], examination.mismatch->simplest_difference.ToString());
}

// "not applicable: bf16 attn_output (5 models), no attention layers (1 model)".
std::string Excuses(const std::map<std::string, uint32_t>& models_by_reason) {
  std::string text;
  for (const auto& [reason, models] : models_by_reason) {
    text += fmt::format("{}{} ({} model{})", text.empty() ? "         not applicable: " : ", ",
                        reason, models, models == 1 ? "" : "s");
  }
  return text.empty() ? text : text + '\n';
}

// Every control has its line, whether it ran or not.
std::string ControlText(const VerifyReport& report, Fault fault) {
  std::string missed, differs;
  std::map<std::string, uint32_t> excuses;
  uint32_t runs = 0;
  const auto add = [](std::string_view item, std::string* list) {
    *list += fmt::format("{}{}", list->empty() ? "" : ", ", item);
  };
  for (const Examination& examination : report.examinations) {
    for (const ControlResult& control : examination.controls) {
      if (control.fault != fault) continue;
      if (!control.applies()) {
        ++excuses[control.not_applicable];
        continue;
      }
      ++runs;
      if (control.baseline.has_value()) {
        add(examination.name, &differs);
      } else if (!control.detected()) {
        add(examination.name, &missed);
      }
    }
  }
  std::string text = fmt::format("control  {:<40} ", FaultName(fault));
  if (runs == 0) return text + "NOT RUN\n" + Excuses(excuses);
  if (!differs.empty()) text += fmt::format("DIFFERENT WITHOUT THE FAULT on {} ", differs);
  if (!missed.empty()) text += fmt::format("NOT DETECTED on {} ", missed);
  if (differs.empty() && missed.empty()) text += fmt::format("detected on {} models ", runs);
  text.back() = '\n';
  return text + Excuses(excuses);
}

std::string ControlsText(const VerifyReport& report) {
  std::string text;
  for (Fault fault : AllFaults()) text += ControlText(report, fault);
  return text;
}

// One line per weight type and oracle, all tables together.
std::string ProductsText(const ProductCheck& check) {
  std::string text =
      fmt::format("{:<9}  {:<9}  {:>11}  {}\n", "product", "oracle", "outputs", "result");
  for (size_t i = 0; i < check.comparisons.size(); ++i) {
    const ProductComparison& first = check.comparisons[i];
    const auto same = [&](const ProductComparison& other) {
      return other.type == first.type && other.oracle == first.oracle;
    };
    if (std::any_of(check.comparisons.data(), &first, same)) continue;
    uint64_t outputs = 0;
    std::string different;
    for (const ProductComparison& comparison : check.comparisons) {
      if (!same(comparison)) continue;
      outputs += comparison.outputs;
      if (comparison.differing == 0) continue;
      different += fmt::format("{}DIFFERENT in {} outputs of {}: {}", different.empty() ? "" : "; ",
                               comparison.differing, comparison.kernels, comparison.first);
    }
    text += fmt::format("{:<9}  {:<9}  {:>11}  {}\n", TensorTypeName(first.type),
                        ProductOracleName(first.oracle), outputs,
                        different.empty() ? "equal" : different);
  }
  if (!check.no_libxsmm.empty()) {
    text += fmt::format("libxsmm: {}\n", check.no_libxsmm);
  } else if (check.libxsmm_refused > 0) {
    text += fmt::format("libxsmm: it makes no kernel for {} of {} products, the first {}\n",
                        check.libxsmm_refused, check.libxsmm_refused + check.libxsmm_cases,
                        check.first_refused);
  }
  return text + fmt::format("{} shapes, {} of them of this model's matrices, {:.1f} s\n",
                            check.shapes.size(), check.model_shapes, check.seconds);
}

std::string ProductControlsText(const ProductCheck& check) {
  std::string text;
  for (ProductForm form : WrongProductForms()) {
    std::string noticed, missed;
    for (const ProductControl& control : check.controls) {
      if (control.form != form) continue;
      std::string& list = control.noticed() ? noticed : missed;
      list += fmt::format("{}{}{}", list.empty() ? "" : ", ", TensorTypeName(control.type),
                          control.oracle == ProductOracle::kLibxsmm ? " (libxsmm)" : "");
    }
    text += fmt::format("control  {:<40} ", ProductFormName(form));
    if (!missed.empty()) text += fmt::format("NOT DETECTED with {} ", missed);
    if (!noticed.empty()) text += fmt::format("detected with {} ", noticed);
    if (missed.empty() && noticed.empty()) text += "NOT RUN ";
    text.back() = '\n';
  }
  return text;
}

// One line per float mode, all models together.
std::string CallersText(const VerifyReport& report) {
  std::string text = fmt::format("{:<20}  {:>5}  {:>9}  {:>10}  {:>12}  {}\n", "caller", "runs",
                                 "norm rows", "logit rows", "state bytes", "result");
  for (size_t mode = 0; mode < std::size(kFloatModes); ++mode) {
    uint32_t runs = 0;
    EvidenceCounts counts;
    std::string different;
    for (const Examination& examination : report.examinations) {
      if (mode >= examination.callers.size()) continue;
      const HostileCaller& caller = examination.callers[mode];
      runs += caller.runs;
      counts.Add(caller.counts);
      if (!caller.difference.has_value()) continue;
      different += fmt::format("{}DIFFERENT on {}, {}: {}", different.empty() ? "" : "; ",
                               examination.name, caller.kernels, caller.difference->ToString());
    }
    text += fmt::format("{:<20}  {:>5}  {:>9}  {:>10}  {:>12}  {}\n", kFloatModes[mode].name, runs,
                        counts.norm_rows, counts.logit_rows, FormatBytes(counts.state_bytes),
                        different.empty() ? "equal, mode put back" : different);
  }
  std::string missed;
  for (const CallerControl& control : report.caller_controls) {
    if (control.noticed()) continue;
    missed += fmt::format("{}{}", missed.empty() ? "" : ", ", control.mode->name);
  }
  return text + fmt::format("control  {:<40} {}\n", "products in the caller's mode",
                            missed.empty()
                                ? fmt::format("detected in {} modes", report.caller_controls.size())
                                : fmt::format("NOT DETECTED in {}", missed));
}

// All models together.
std::string ReuseText(const ReuseCounts& reuse) {
  std::string tails;
  for (uint32_t tail : {0u, 1u, 2u}) {
    if (!reuse.tails.contains(tail)) continue;
    tails += fmt::format("{}{}", tails.empty() ? ", among them " : " ", tail);
  }
  std::string range;
  if (!reuse.boundaries.empty()) {
    range = fmt::format(" ({} .. {})", *reuse.boundaries.begin(), *reuse.boundaries.rbegin());
  }
  return fmt::format("reuse    {} hits at {} boundaries{}, {} lengths of what was left{}\n",
                     reuse.hits, reuse.boundaries.size(), range, reuse.tails.size(), tails) +
         fmt::format("         {} starts from a kept row, {} groups copied by appenders\n",
                     reuse.from_row, reuse.copied_groups) +
         fmt::format("         {} resumed, {} evicted and computed again\n", reuse.resumed,
                     reuse.recomputed);
}

Json ReuseJson(const ReuseCounts& reuse) {
  return {{"hits", reuse.hits},
          {"boundaries", reuse.boundaries},
          {"tails", reuse.tails},
          {"from_row", reuse.from_row},
          {"copied_groups", reuse.copied_groups},
          {"resumed", reuse.resumed},
          {"recomputed", reuse.recomputed}};
}

Json ProductsJson(const ProductCheck& check) {
  Json json = {{"shapes", check.shapes.size()},
               {"model_shapes", check.model_shapes},
               {"libxsmm", check.no_libxsmm.empty() ? "used" : check.no_libxsmm},
               {"libxsmm_refused", check.libxsmm_refused},
               {"seconds", check.seconds}};
  json["comparisons"] = Json::array();
  for (const ProductComparison& comparison : check.comparisons) {
    Json entry = {{"kernels", comparison.kernels},
                  {"weights", TensorTypeName(comparison.type)},
                  {"oracle", ProductOracleName(comparison.oracle)},
                  {"outputs", comparison.outputs},
                  {"differing", comparison.differing}};
    if (comparison.differing > 0) entry["first"] = comparison.first;
    json["comparisons"].push_back(entry);
  }
  json["controls"] = Json::array();
  for (const ProductControl& control : check.controls) {
    json["controls"].push_back({{"control", ProductFormName(control.form)},
                                {"weights", TensorTypeName(control.type)},
                                {"oracle", ProductOracleName(control.oracle)},
                                {"outputs", control.outputs},
                                {"differing", control.differing},
                                {"detected", control.noticed()}});
  }
  return json;
}

Json CallerControlsJson(const VerifyReport& report) {
  Json json = Json::array();
  for (const CallerControl& control : report.caller_controls) {
    json.push_back({{"caller", control.mode->name},
                    {"outputs", control.outputs},
                    {"differing", control.differing},
                    {"would_trap", control.would_trap},
                    {"detected", control.noticed()}});
  }
  return json;
}

Json DifferenceJson(const std::string& cell, const Difference& difference) {
  return {{"cell", cell},
          {"sequence", difference.place.sequence},
          {"position", difference.place.position},
          {"plane", difference.place.plane},
          {"element", difference.element},
          {"expected", fmt::format("{:0{}x}", difference.expected, difference.bits / 4)},
          {"actual", fmt::format("{:0{}x}", difference.actual, difference.bits / 4)},
          {"text", difference.ToString()}};
}

Json ExaminationJson(const VerifyReport& report, size_t index) {
  const Examination& examination = report.examinations[index];
  Json json = {{"model", examination.name},
               {"plan", PlanWord(examination)},
               {"cells", examination.cells_run},
               {"cells_planned", examination.cells_planned},
               {"sequences", examination.counts.sequences},
               {"norm_rows", examination.counts.norm_rows},
               {"logit_rows", examination.counts.logit_rows},
               {"state_bytes", examination.counts.state_bytes},
               {"reuse", ReuseJson(examination.counts.reuse)},
               {"seconds", examination.seconds},
               {"reference_seconds", examination.reference_seconds},
               {"reference_finite", examination.reference_finite},
               {"reference_spoiled", examination.reference_spoiled.has_value()},
               {"every_value_run", examination.every_value_run},
               {"equal", !examination.mismatch.has_value()}};
  if (examination.mismatch.has_value()) {
    json["difference"] =
        DifferenceJson(report.mismatch_cells[index], examination.mismatch->difference);
    json["simplest"] =
        DifferenceJson(report.simplest_cells[index], examination.mismatch->simplest_difference);
  }
  json["controls"] = Json::array();
  for (const ControlResult& control : examination.controls) {
    Json entry = {{"control", FaultName(control.fault)}, {"applies", control.applies()}};
    if (!control.applies()) {
      entry["not_applicable"] = control.not_applicable;
    } else {
      entry["baseline_equal"] = !control.baseline.has_value();
      entry["detected"] = control.detected();
      if (control.difference.has_value()) entry["difference"] = control.difference->ToString();
    }
    json["controls"].push_back(entry);
  }
  json["callers"] = Json::array();
  for (const HostileCaller& caller : examination.callers) {
    Json entry = {{"caller", caller.mode->name},
                  {"runs", caller.runs},
                  {"norm_rows", caller.counts.norm_rows},
                  {"logit_rows", caller.counts.logit_rows},
                  {"state_bytes", caller.counts.state_bytes},
                  {"equal", !caller.difference.has_value()}};
    if (caller.difference.has_value()) {
      entry["kernels"] = caller.kernels;
      entry["difference"] = caller.difference->ToString();
    }
    json["callers"].push_back(entry);
  }
  return json;
}

}  // namespace

std::string VerifyText(const VerifyReport& report) {
  std::string text = fmt::format("tessera verify {}{}, seed {}\n{}\n\n", report.path,
                                 report.quick ? " --quick" : "", report.seed, report.cpu);
  for (const Dimension& dimension : report.dimensions) {
    text += fmt::format("{:<14}", dimension.name);
    for (const std::string& value : dimension.values) {
      text += &value == dimension.values.data() ? "" : " | ";
      text += value;
    }
    text += '\n';
  }
  size_t width = 5;
  for (const Examination& examination : report.examinations) {
    width = std::max(width, examination.name.size());
  }
  text += fmt::format("\n{:<{}}  {:<8}  {:>9}  {:>9}  {:>10}  {:>10}  {:>12}  {:>7}  {}\n", "model",
                      width, "plan", "cells", "sequences", "norm rows", "logit rows", "state bytes",
                      "time", "result");
  for (const Examination& examination : report.examinations) {
    text += fmt::format(
        "{:<{}}  {:<8}  {:>9}  {:>9}  {:>10}  {:>10}  {:>12}  {:>6.1f}s  {}\n", examination.name,
        width, PlanWord(examination), CellsText(examination.cells_run, examination.cells_planned),
        examination.counts.sequences, examination.counts.norm_rows, examination.counts.logit_rows,
        FormatBytes(examination.counts.state_bytes), examination.seconds, ResultWord(examination));
  }
  for (size_t i = 0; i < report.examinations.size(); ++i) {
    if (report.examinations[i].mismatch.has_value()) text += MismatchText(report, i);
  }
  text += '\n' + ReuseText(report.counts().reuse);
  text += '\n' + CallersText(report);
  text += '\n' + ProductsText(report.products);
  text += '\n' + ControlsText(report) + ProductControlsText(report.products);
  text += '\n' + VerdictText(report);
  return text;
}

std::string VerifyJson(const VerifyReport& report) {
  Json json = {{"model", report.path},      {"cpu", report.cpu},
               {"quick", report.quick},     {"seed", report.seed},
               {"passed", report.passed()}, {"verdict", VerdictWord(report.verdict())},
               {"cells", report.cells()},   {"cells_planned", report.cells_planned()},
               {"seconds", report.seconds}};
  for (const Dimension& dimension : report.dimensions) {
    json["dimensions"][dimension.name] = dimension.values;
  }
  json["products"] = ProductsJson(report.products);
  json["caller_controls"] = CallerControlsJson(report);
  json["examinations"] = Json::array();
  for (size_t i = 0; i < report.examinations.size(); ++i) {
    json["examinations"].push_back(ExaminationJson(report, i));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tessera
