// SPDX-License-Identifier: Apache-2.0
//
// Samples are repeated measurements of one quantity. The median is what is reported; the spread,
// the distance of the quartiles over the median, says how much to believe it.
//
// Threads: a value.
#pragma once

#include <cstddef>
#include <vector>

namespace tessera {

class Samples {
 public:
  void Add(double value) { values_.push_back(value); }
  size_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }

  // 0 when empty. Quantile(0) is the lowest; between samples it interpolates.
  double Quantile(double q) const;
  double Median() const { return Quantile(0.5); }
  double Low() const { return Quantile(0); }
  double High() const { return Quantile(1); }
  double Spread() const;

 private:
  std::vector<double> values_;
};

}  // namespace tessera
