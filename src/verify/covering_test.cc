// SPDX-License-Identifier: Apache-2.0
#include "verify/covering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace tessera {
namespace {

using Pair = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;

std::set<Pair> PairsOf(const std::vector<CellRow>& rows) {
  std::set<Pair> pairs;
  for (const CellRow& row : rows) {
    for (uint32_t a = 0; a < row.size(); ++a) {
      for (uint32_t b = a + 1; b < row.size(); ++b) pairs.insert({a, row[a], b, row[b]});
    }
  }
  return pairs;
}

const std::vector<std::vector<uint32_t>> kSizes = {
    {5, 8, 4, 3, 2, 2, 2}, {5, 8, 4, 3, 1, 2, 2}, {2, 2}, {1, 1, 1}, {7}, {9, 9}, {3, 3, 3, 3}};

TEST(Covering, PairwiseRowsHoldEveryPairOfValues) {
  for (const auto& sizes : kSizes) {
    EXPECT_EQ(PairsOf(PairwiseRows(sizes, 1)), PairsOf(ProductRows(sizes)));
  }
}

TEST(Covering, ProductRowsAreAllDifferentAndInRange) {
  for (const auto& sizes : kSizes) {
    size_t product = 1;
    for (uint32_t size : sizes) product *= size;
    const std::vector<CellRow> rows = ProductRows(sizes);
    EXPECT_EQ(std::set<CellRow>(rows.begin(), rows.end()).size(), product);
    for (const CellRow& row : rows) {
      for (size_t d = 0; d < sizes.size(); ++d) EXPECT_LT(row[d], sizes[d]);
    }
  }
}

// The two largest dimensions need 40 rows; a handful more serve all the others.
TEST(Covering, PairwiseRowsAreFew) {
  const std::vector<uint32_t> sizes = {5, 8, 4, 3, 2, 2, 2};
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const size_t count = PairwiseRows(sizes, seed).size();
    EXPECT_GE(count, 40u);
    EXPECT_LE(count, 46u);
  }
}

size_t RowsUntilEveryValue(const std::vector<CellRow>& rows, const std::vector<uint32_t>& sizes) {
  ValuesSeen seen(sizes);
  for (size_t i = 0; i < rows.size(); ++i) {
    seen.Add(rows[i]);
    if (seen.all()) return i + 1;
  }
  return rows.size() + 1;
}

TEST(Covering, RunOrderHasTheReferenceFirstAndEveryValueEarly) {
  for (const auto& sizes : kSizes) {
    const size_t longest = *std::max_element(sizes.begin(), sizes.end());
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      const std::vector<CellRow> rows = InRunOrder(PairwiseRows(sizes, seed), sizes, seed);
      EXPECT_EQ(rows.front(), CellRow(sizes.size(), 0));
      EXPECT_LE(RowsUntilEveryValue(rows, sizes), longest + 2);
      EXPECT_EQ(PairsOf(rows), PairsOf(ProductRows(sizes)));
    }
  }
}

TEST(Covering, RunOrderKeepsTheRowsAndFollowsTheSeed) {
  const std::vector<uint32_t> sizes = {5, 3, 2};
  const std::vector<CellRow> rows = ProductRows(sizes);
  const std::vector<CellRow> ordered = InRunOrder(rows, sizes, 1);
  EXPECT_EQ(ordered.size(), rows.size());
  EXPECT_EQ(std::set<CellRow>(ordered.begin(), ordered.end()),
            std::set<CellRow>(rows.begin(), rows.end()));
  EXPECT_EQ(ordered, InRunOrder(rows, sizes, 1));
  EXPECT_NE(ordered, InRunOrder(rows, sizes, 2));
}

TEST(Covering, TheSeedDecidesTheRows) {
  const std::vector<uint32_t> sizes = {5, 8, 4, 3, 2, 2, 2};
  EXPECT_EQ(PairwiseRows(sizes, 7), PairwiseRows(sizes, 7));
  EXPECT_NE(PairwiseRows(sizes, 7), PairwiseRows(sizes, 8));
}

}  // namespace
}  // namespace tessera
