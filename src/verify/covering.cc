// SPDX-License-Identifier: Apache-2.0
#include "verify/covering.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/random.h"

namespace tessera {
namespace {

constexpr int kCandidates = 24;
constexpr uint32_t kUnset = UINT32_MAX;

// Which pairs (dimension a = value x, dimension b = value y), a < b, no row has yet.
class OpenPairs {
 public:
  explicit OpenPairs(std::span<const uint32_t> sizes) : sizes_(sizes.begin(), sizes.end()) {
    for (uint32_t size : sizes_) {
      offsets_.push_back(values_);
      values_ += size;
    }
    open_.assign(size_t{values_} * values_, false);
    for (uint32_t a = 0; a < dimensions(); ++a) {
      for (uint32_t b = a + 1; b < dimensions(); ++b) {
        for (uint32_t x = 0; x < sizes_[a]; ++x) {
          for (uint32_t y = 0; y < sizes_[b]; ++y) open_[Index(a, x, b, y)] = true;
        }
        count_ += size_t{sizes_[a]} * sizes_[b];
      }
    }
  }

  uint32_t dimensions() const { return static_cast<uint32_t>(sizes_.size()); }
  bool empty() const { return count_ == 0; }

  // The first open pair, as a row with everything else unset.
  CellRow First() const {
    for (uint32_t a = 0; a < dimensions(); ++a) {
      for (uint32_t b = a + 1; b < dimensions(); ++b) {
        for (uint32_t x = 0; x < sizes_[a]; ++x) {
          for (uint32_t y = 0; y < sizes_[b]; ++y) {
            if (!open_[Index(a, x, b, y)]) continue;
            CellRow row(dimensions(), kUnset);
            row[a] = x;
            row[b] = y;
            return row;
          }
        }
      }
    }
    return {};
  }

  // Open pairs that `row` has with dimension `d` at `value`.
  uint32_t Gain(const CellRow& row, uint32_t d, uint32_t value) const {
    uint32_t gain = 0;
    for (uint32_t other = 0; other < dimensions(); ++other) {
      if (other == d || row[other] == kUnset) continue;
      gain += IsOpen(d, value, other, row[other]) ? 1 : 0;
    }
    return gain;
  }

  uint32_t Gain(const CellRow& row) const {
    uint32_t gain = 0;
    for (uint32_t d = 0; d < dimensions(); ++d) gain += Gain(row, d, row[d]);
    return gain / 2;
  }

  void Close(const CellRow& row) {
    for (uint32_t a = 0; a < dimensions(); ++a) {
      for (uint32_t b = a + 1; b < dimensions(); ++b) {
        const size_t index = Index(a, row[a], b, row[b]);
        count_ -= open_[index] ? 1 : 0;
        open_[index] = false;
      }
    }
  }

 private:
  size_t Index(uint32_t a, uint32_t x, uint32_t b, uint32_t y) const {
    return size_t{offsets_[a] + x} * values_ + offsets_[b] + y;
  }
  bool IsOpen(uint32_t a, uint32_t x, uint32_t b, uint32_t y) const {
    return a < b ? open_[Index(a, x, b, y)] : open_[Index(b, y, a, x)];
  }

  std::vector<uint32_t> sizes_;
  std::vector<uint32_t> offsets_;
  uint32_t values_ = 0;  // over all dimensions
  std::vector<bool> open_;
  size_t count_ = 0;
};

void Complete(const OpenPairs& open, std::span<const uint32_t> sizes, Random* random,
              CellRow* row) {
  std::vector<uint32_t> order;
  for (uint32_t d = 0; d < sizes.size(); ++d) {
    if ((*row)[d] == kUnset) order.push_back(d);
  }
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random->Below(i)]);
  for (uint32_t d : order) {
    const uint32_t first = static_cast<uint32_t>(random->Below(sizes[d]));
    uint32_t best = first;
    for (uint32_t step = 1; step < sizes[d]; ++step) {
      const uint32_t value = (first + step) % sizes[d];
      if (open.Gain(*row, d, value) > open.Gain(*row, d, best)) best = value;
    }
    (*row)[d] = best;
  }
}

}  // namespace

std::vector<CellRow> PairwiseRows(std::span<const uint32_t> sizes, uint64_t seed) {
  for (uint32_t size : sizes) TESSERA_CHECK(size >= 1);
  if (sizes.size() < 2) return ProductRows(sizes);
  OpenPairs open(sizes);
  Random random(seed);
  std::vector<CellRow> rows;
  while (!open.empty()) {
    CellRow best;
    uint32_t best_gain = 0;
    for (int candidate = 0; candidate < kCandidates; ++candidate) {
      CellRow row = open.First();
      Complete(open, sizes, &random, &row);
      const uint32_t gain = open.Gain(row);
      if (gain > best_gain) {
        best_gain = gain;
        best = std::move(row);
      }
    }
    open.Close(best);
    rows.push_back(std::move(best));
  }
  return rows;
}

ValuesSeen::ValuesSeen(std::span<const uint32_t> sizes) {
  for (uint32_t size : sizes) {
    seen_.emplace_back(size, false);
    missing_ += size;
  }
}

uint32_t ValuesSeen::Gain(const CellRow& row) const {
  uint32_t gain = 0;
  for (size_t d = 0; d < row.size(); ++d) gain += seen_[d][row[d]] ? 0 : 1;
  return gain;
}

void ValuesSeen::Add(const CellRow& row) {
  missing_ -= Gain(row);
  for (size_t d = 0; d < row.size(); ++d) seen_[d][row[d]] = true;
}

std::vector<CellRow> InRunOrder(std::vector<CellRow> rows, std::span<const uint32_t> sizes,
                                uint64_t seed) {
  Random random(seed);
  for (size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[random.Below(i)]);
  const CellRow zeros(sizes.size(), 0);
  auto first = std::find(rows.begin(), rows.end(), zeros);
  if (first == rows.end()) first = rows.insert(rows.end(), zeros);
  std::iter_swap(rows.begin(), first);

  ValuesSeen seen(sizes);
  seen.Add(zeros);
  for (auto next = rows.begin() + 1; next != rows.end() && !seen.all(); ++next) {
    const auto best = std::max_element(next, rows.end(), [&](const CellRow& a, const CellRow& b) {
      return seen.Gain(a) < seen.Gain(b);
    });
    if (seen.Gain(*best) == 0) break;
    std::iter_swap(next, best);
    seen.Add(*next);
  }
  return rows;
}

std::vector<CellRow> ProductRows(std::span<const uint32_t> sizes) {
  std::vector<CellRow> rows;
  CellRow row(sizes.size(), 0);
  while (true) {
    rows.push_back(row);
    size_t d = sizes.size();
    while (d > 0 && row[d - 1] + 1 == sizes[d - 1]) row[--d] = 0;
    if (d == 0) return rows;
    ++row[d - 1];
  }
}

}  // namespace tessera
