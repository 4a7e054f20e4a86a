// SPDX-License-Identifier: Apache-2.0
#include "bench/samples.h"

#include <algorithm>

namespace tessera {

double Samples::Quantile(double q) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted(values_);
  std::sort(sorted.begin(), sorted.end());
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double part = at - static_cast<double>(below);
  return sorted[below] + part * (sorted[above] - sorted[below]);
}

double Samples::Spread() const {
  const double median = Median();
  return median > 0 ? (Quantile(0.75) - Quantile(0.25)) / median : 0;
}

}  // namespace tessera
