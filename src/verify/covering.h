// SPDX-License-Identifier: Apache-2.0
//
// Rows of settings for a matrix of dimensions: the full product, or a pairwise covering array, a
// small set of rows in which every value of one dimension meets every value of every other. Faults
// that take two particular settings to show are found by it; 5·8·4·3·2·2·2·5 = 19,200 settings
// become about 45.
//
// The pairwise rows come from a greedy search (in the manner of Cohen et al., "The AETG system",
// 1997): a row starts with the first pair still uncovered, each further dimension takes the value
// that covers most new pairs, and the best of several such rows is kept. Earlier rows cover more.
//
// Threads: pure; the same arguments give the same rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera {

// One value index per dimension.
using CellRow = std::vector<uint32_t>;

// `sizes` are the value counts of the dimensions, each at least 1.
std::vector<CellRow> PairwiseRows(std::span<const uint32_t> sizes, uint64_t seed);
std::vector<CellRow> ProductRows(std::span<const uint32_t> sizes);

// Counts which values of each dimension rows have had.
class ValuesSeen {
 public:
  explicit ValuesSeen(std::span<const uint32_t> sizes);
  // How many values the row would add.
  uint32_t Gain(const CellRow& row) const;
  void Add(const CellRow& row);
  bool all() const { return missing_ == 0; }

 private:
  std::vector<std::vector<bool>> seen_;  // by dimension, by value
  uint32_t missing_ = 0;
};

// The order to run rows in when time may not suffice for all: the row of zeros first (added when it
// is missing), then rows that have values no earlier one had, as few as a greedy choice gives, then
// the others as the seed shuffles them. Rows as generated begin with all those of value 0, so a run
// cut short would never see the last value of the first dimension.
std::vector<CellRow> InRunOrder(std::vector<CellRow> rows, std::span<const uint32_t> sizes,
                                uint64_t seed);

}  // namespace tessera
