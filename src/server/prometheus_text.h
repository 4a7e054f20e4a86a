// SPDX-License-Identifier: Apache-2.0
//
// PrometheusText writes metrics in Prometheus' text format, version 0.0.4: for each family a HELP
// and a TYPE line, then its samples.
//
//   Family --> Sample, Sample, ... --> Family --> ... --> Take
//
// A name, a help text and the names of labels are the caller's, plain ASCII; values of labels may
// be anything and are escaped. Misuse is the caller's mistake, not checked.
//
// Threads: none shared.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "engine/histogram.h"

namespace tessera {

enum class MetricType { kCounter, kGauge, kHistogram };

using MetricLabel = std::pair<std::string_view, std::string_view>;  // name, value

inline constexpr char kPrometheusContentType[] = "text/plain; version=0.0.4; charset=utf-8";

class PrometheusText {
 public:
  // Labels that every sample has.
  explicit PrometheusText(std::initializer_list<MetricLabel> common = {});
  // Further families have these instead.
  void SetCommonLabels(std::initializer_list<MetricLabel> common);

  // Begins a family: the samples that follow are of it.
  void Family(std::string_view name, MetricType type, std::string_view help);
  void Sample(std::initializer_list<MetricLabel> labels, double value);
  void Sample(double value) { Sample({}, value); }
  // A family of one sample.
  void Counter(std::string_view name, std::string_view help, double value);
  void Gauge(std::string_view name, std::string_view help, double value);
  void Histogram(std::string_view name, std::string_view help, const HistogramCounts& counts);

  std::string Take() { return std::move(text_); }

 private:
  void Line(std::string_view suffix, std::initializer_list<MetricLabel> labels, double value);

  std::string common_;  // written: a="b",c="d"
  std::string name_;    // of the family
  std::string text_;
};

}  // namespace tessera
