// SPDX-License-Identifier: Apache-2.0
#include "bench/page_orders.h"

#include <algorithm>
#include <numeric>

#include "base/bytes.h"
#include "base/check.h"
#include "base/random.h"

namespace tessera {
namespace {

void Shuffle(Random* random, std::vector<uint64_t>::iterator begin,
             std::vector<uint64_t>::iterator end) {
  for (auto n = static_cast<uint64_t>(end - begin); n > 1; --n) {
    std::swap(begin[static_cast<ptrdiff_t>(n - 1)],
              begin[static_cast<ptrdiff_t>(random->Below(n))]);
  }
}

std::vector<uint64_t> Ascending(uint64_t count) {
  std::vector<uint64_t> all(count);
  std::iota(all.begin(), all.end(), uint64_t{0});
  return all;
}

// Objects take their pages from `pages`, indices in the memory, one object after another.
PageOffsets Deal(const PageOrderOptions& options, const std::vector<uint64_t>& pages) {
  const uint64_t each = options.object_bytes / options.page_bytes;
  TESSERA_CHECK(pages.size() >= each * options.objects);
  PageOffsets offsets(options.objects);
  auto next = pages.begin();
  for (std::vector<uint64_t>& object : offsets) {
    for (uint64_t i = 0; i < each; ++i) object.push_back(*next++ * options.page_bytes);
  }
  return offsets;
}

}  // namespace

PageOffsets ScatterRuns(const PageOrderOptions& options, uint64_t run_pages, uint64_t seed) {
  const uint64_t each = options.object_bytes / options.page_bytes;
  std::vector<uint64_t> runs = Ascending(options.memory_bytes / options.page_bytes / run_pages);
  Random random(seed);
  Shuffle(&random, runs.begin(), runs.end());
  // The last run of an object may be cut short; the next object begins another one.
  std::vector<uint64_t> pages;
  auto run = runs.begin();
  for (uint32_t object = 0; object < options.objects; ++object) {
    for (uint64_t i = 0; i < each; ++i) {
      if (i > 0 && i % run_pages == 0) ++run;
      TESSERA_CHECK(run != runs.end());
      pages.push_back(*run * run_pages + i % run_pages);
    }
    ++run;
  }
  return Deal(options, pages);
}

PageOffsets LayInOrder(const PageOrderOptions& options) {
  return Deal(options, Ascending(options.memory_bytes / options.page_bytes));
}

PageOffsets ScatterInBlocks(const PageOrderOptions& options, uint64_t seed) {
  const uint64_t per_block = 2 * kMiB / options.page_bytes;
  std::vector<uint64_t> blocks = Ascending(options.memory_bytes / (2 * kMiB));
  Random random(seed);
  Shuffle(&random, blocks.begin(), blocks.end());
  std::vector<uint64_t> pages;
  for (uint64_t block : blocks) {
    const auto begin = static_cast<ptrdiff_t>(pages.size());
    for (uint64_t i = 0; i < per_block; ++i) pages.push_back(block * per_block + i);
    Shuffle(&random, pages.begin() + begin, pages.end());
  }
  return Deal(options, pages);
}

}  // namespace tessera
