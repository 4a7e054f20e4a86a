// SPDX-License-Identifier: Apache-2.0
//
// A page map says of every page of a store what is in it and whose it is, at one moment. Neighbours
// of one owner are one run: a prefix whose blocks lie in order, a checkpoint, what a sequence has
// written in order.
//
// M1  The runs of a pool are in the order of its pages and together all of them.
// M2  The pages of each use add up to those of StoreStats at that moment; reserved pages are any of
//     the free ones.
//
// Threads: values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class PageUse : uint8_t { kFree, kHeld, kCached, kDraining };
enum class PageContent : uint8_t {
  kNone,   // free, or waiting for a step to end
  kBlock,  // attention of tokens [begin, end)
  kImage,  // recurrent state after `end` tokens, or what a sequence is about to write
  kRow,    // the final-norm row after `end` tokens
  kSlab,   // images in slots: `begin` of `end` are used
};
std::string_view PageUseName(PageUse use);              // free, held, cached, draining
std::string_view PageContentName(PageContent content);  // none, block, image, row, slab

struct PageRun {
  uint32_t pages = 0;
  PageUse use = PageUse::kFree;
  PageContent content = PageContent::kNone;
  bool findable = false;  // an entry of the index; else a sequence's own
  uint64_t owner = 0;     // the entry's index (of a run of blocks the first one's) or the request
  uint32_t begin = 0;
  uint32_t end = 0;
  uint32_t sharers = 0;  // sequences that read it now
};

struct PoolPageMap {
  std::string name;
  uint64_t page_bytes = 0;  // all planes
  uint32_t pages = 0;
  std::vector<PageRun> runs;
};

}  // namespace tessera
