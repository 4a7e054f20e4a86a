// SPDX-License-Identifier: Apache-2.0
#include "server/prometheus_text.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(PrometheusText, WritesAFamilyAsHelpTypeAndSamples) {
  PrometheusText text;
  text.Family("a_total", MetricType::kCounter, "Of a.");
  text.Sample({{"x", "1"}, {"y", "two"}}, 3);
  text.Sample(0.25);
  text.Gauge("b", "Of b.", -7);
  EXPECT_EQ(text.Take(),
            "# HELP a_total Of a.\n# TYPE a_total counter\na_total{x=\"1\",y=\"two\"} 3\n"
            "a_total 0.25\n# HELP b Of b.\n# TYPE b gauge\nb -7\n");
}

TEST(PrometheusText, EscapesTheValuesOfLabels) {
  PrometheusText text;
  text.SetCommonLabels({{"model", "a\"b\\c\nd"}});
  text.Gauge("m", "M.", 1);
  EXPECT_EQ(text.Take(), "# HELP m M.\n# TYPE m gauge\nm{model=\"a\\\"b\\\\c\\nd\"} 1\n");
}

TEST(PrometheusText, BucketsOfAHistogramAddUpAndEndWithAll) {
  static constexpr double kBounds[] = {.001, 2.5, 640};
  Histogram histogram(kBounds);
  for (const double value : {.001, 1.0, 2.0, 1000.0}) histogram.Add(value);
  PrometheusText text;
  text.Histogram("h_seconds", "H.", histogram.Counts());
  EXPECT_EQ(text.Take(),
            "# HELP h_seconds H.\n# TYPE h_seconds histogram\n"
            "h_seconds_bucket{le=\"0.001\"} 1\nh_seconds_bucket{le=\"2.5\"} 3\n"
            "h_seconds_bucket{le=\"640\"} 3\nh_seconds_bucket{le=\"+Inf\"} 4\n"
            "h_seconds_sum 1003.001\nh_seconds_count 4\n");
}

TEST(PrometheusText, LargeWholeNumbersKeepEveryDigit) {
  PrometheusText text;
  text.Gauge("b", "B.", 9007199254740991.0);
  EXPECT_NE(text.Take().find("\nb 9007199254740991\n"), std::string::npos);
}

}  // namespace
}  // namespace tessera
