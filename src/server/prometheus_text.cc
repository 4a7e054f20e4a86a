// SPDX-License-Identifier: Apache-2.0
#include "server/prometheus_text.h"

#include <fmt/format.h>

namespace tessera {
namespace {

std::string_view TypeName(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "untyped";
}

void AppendLabel(std::string* text, const MetricLabel& label) {
  if (!text->empty()) *text += ',';
  *text += label.first;
  *text += "=\"";
  for (const char c : label.second) {
    if (c == '\\' || c == '"') *text += '\\';
    if (c == '\n') {
      *text += "\\n";
    } else {
      *text += c;
    }
  }
  *text += '"';
}

}  // namespace

PrometheusText::PrometheusText(std::initializer_list<MetricLabel> common) {
  SetCommonLabels(common);
}

void PrometheusText::SetCommonLabels(std::initializer_list<MetricLabel> common) {
  common_.clear();
  for (const MetricLabel& label : common) AppendLabel(&common_, label);
}

void PrometheusText::Family(std::string_view name, MetricType type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, TypeName(type));
}

void PrometheusText::Line(std::string_view suffix, std::initializer_list<MetricLabel> labels,
                          double value) {
  std::string all = common_;
  for (const MetricLabel& label : labels) AppendLabel(&all, label);
  // Shortest text that reads back as the same double; whole numbers without an exponent.
  const bool whole = value == static_cast<double>(static_cast<int64_t>(value));
  const std::string number =
      whole ? fmt::format("{}", static_cast<int64_t>(value)) : fmt::format("{}", value);
  text_ += name_;
  text_ += suffix;
  if (!all.empty()) text_ += fmt::format("{{{}}}", all);
  text_ += fmt::format(" {}\n", number);
}

void PrometheusText::Sample(std::initializer_list<MetricLabel> labels, double value) {
  Line("", labels, value);
}

void PrometheusText::Counter(std::string_view name, std::string_view help, double value) {
  Family(name, MetricType::kCounter, help);
  Sample(value);
}

void PrometheusText::Gauge(std::string_view name, std::string_view help, double value) {
  Family(name, MetricType::kGauge, help);
  Sample(value);
}

void PrometheusText::Histogram(std::string_view name, std::string_view help,
                               const HistogramCounts& counts) {
  Family(name, MetricType::kHistogram, help);
  uint64_t below = 0;
  for (size_t i = 0; i < counts.bounds.size(); ++i) {
    below += counts.buckets[i];
    const std::string bound = fmt::format("{}", counts.bounds[i]);
    Line("_bucket", {{"le", bound}}, static_cast<double>(below));
  }
  const double total = static_cast<double>(counts.total());
  Line("_bucket", {{"le", "+Inf"}}, total);
  Line("_sum", {}, counts.sum);
  Line("_count", {}, total);
}

}  // namespace tessera
