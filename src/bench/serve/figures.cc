// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/figures.h"

#include <algorithm>
#include <cmath>

namespace tessera {

std::optional<double> Figures::Find(std::string_view key) const {
  for (const Figure& figure : list_) {
    if (figure.key == key) return figure.value;
  }
  return std::nullopt;
}

std::optional<Spread> SpreadOf(std::span<const Figures> runs, std::string_view key) {
  std::vector<double> values;
  for (const Figures& run : runs) {
    if (const std::optional<double> value = run.Find(key)) values.push_back(*value);
  }
  if (values.empty()) return std::nullopt;
  Spread spread;
  spread.min = *std::min_element(values.begin(), values.end());
  spread.max = *std::max_element(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  for (const double value : values) spread.mean += value / count;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  if (values.size() > 1) spread.std = std::sqrt(squares / (count - 1));
  return spread;
}

}  // namespace tessera
