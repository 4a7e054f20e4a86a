// SPDX-License-Identifier: Apache-2.0
//
// Figures are the numbers that a report has of one run, under their JSON keys and in their order,
// so that text, JSON and the spread of several runs are each written once, for any figure.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

struct Figure {
  std::string key;
  double value = 0;
  bool count = false;  // a whole number
};

class Figures {
 public:
  void Add(std::string key, double value) { list_.push_back({std::move(key), value, false}); }
  void AddCount(std::string key, uint64_t value) {
    list_.push_back({std::move(key), static_cast<double>(value), true});
  }
  std::optional<double> Find(std::string_view key) const;
  const std::vector<Figure>& list() const { return list_; }

 private:
  std::vector<Figure> list_;
};

struct Spread {
  double mean = 0;
  double min = 0;
  double max = 0;
  double std = 0;  // of a sample (n - 1); 0 of one run
};

// Of the runs that have the figure; absent when none has.
std::optional<Spread> SpreadOf(std::span<const Figures> runs, std::string_view key);

}  // namespace tessera
