// SPDX-License-Identifier: Apache-2.0
#include "compute/tokenizer/bpe_merger.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <random>
#include <utility>

#include "base/random.h"
#include "compute/gguf/printable.h"
#include "compute/tokenizer/byte_alphabet.h"
#include "compute/tokenizer/vocabulary.h"

namespace tessera {
namespace {

// Positions are 32 bits. A piece this long does not come from any text that fits a model; cutting
// it only costs the merges across the cut.
constexpr size_t kChunkBytesMax = size_t{1} << 30;

// Between left and right; a space that is the left string itself is not it.
size_t SpaceIn(std::string_view merge) { return merge.find(' ', 1); }

uint64_t PairKey(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

}  // namespace

// Gives every string of the merges a symbol, and fills the table.
class BpeMerger::Builder {
 public:
  Builder(const Vocabulary& vocabulary, BpeMerger* merger)
      : vocabulary_(vocabulary), merger_(merger) {
    merger_->token_count_ = vocabulary.size();
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const std::string bytes(1, static_cast<char>(byte));
      merger_->byte_token_[byte] = vocabulary.FindBytes(bytes);
      merger_->byte_symbol_[byte] = Symbol(bytes);
    }
  }

  Status Add(std::span<const std::string_view> merges) {
    // All of them before the table is allocated: it has up to 96 bytes for a merge of 8 in the
    // file.
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const size_t space = SpaceIn(merges[rank]);
      if (space == std::string_view::npos || space + 1 == merges[rank].size()) {
        return BadFile(fmt::format("tokenizer.ggml.merges[{}]: expected \"left right\", found {}",
                                   rank, Quoted(merges[rank])));
      }
    }
    merger_->entries_.resize(std::bit_ceil(2 * merges.size() + 1));
    for (size_t rank = 0; rank < merges.size(); ++rank) {
      const std::string_view merge = merges[rank];
      const size_t space = SpaceIn(merge);
      // A string with a character that stands for no byte can never be met.
      const auto left = BytesFromAlphabet(merge.substr(0, space));
      const auto right = BytesFromAlphabet(merge.substr(space + 1));
      if (left && right) {
        Insert(PairKey(Symbol(*left), Symbol(*right)),
               {static_cast<uint32_t>(rank), Symbol(*left + *right)});
      }
    }
    return Status::Ok();
  }

 private:
  uint32_t Symbol(const std::string& bytes) {
    if (const std::optional<TokenId> token = vocabulary_.FindBytes(bytes)) {
      return static_cast<uint32_t>(*token);
    }
    const auto [found, inserted] = extra_.try_emplace(
        bytes, static_cast<uint32_t>(merger_->token_count_ + merger_->extra_symbols_.size()));
    if (inserted) {
      merger_->extra_symbols_.push_back(bytes);
    }
    return found->second;
  }

  void Insert(uint64_t pair, Merged merged) {
    std::vector<Entry>& entries = merger_->entries_;
    const size_t mask = entries.size() - 1;
    for (size_t i = CounterRandom(merger_->seed_, pair) & mask;; i = (i + 1) & mask) {
      if (entries[i].pair == pair) {
        return;  // the first of equal pairs has the lower rank
      }
      if (entries[i].pair == UINT64_MAX) {
        entries[i] = {pair, merged};
        return;
      }
    }
  }

  const Vocabulary& vocabulary_;
  BpeMerger* merger_;
  std::map<std::string, uint32_t> extra_;  // ordered: crafted strings cannot make it slow
};

Result<BpeMerger> BpeMerger::Create(const Vocabulary& vocabulary,
                                    std::span<const std::string_view> merges) {
  BpeMerger merger;
  merger.seed_ = std::random_device{}();
  Builder builder(vocabulary, &merger);
  TESSERA_RETURN_IF_ERROR(builder.Add(merges));
  return merger;
}

void BpeMerger::Merge(std::string_view piece, Scratch* scratch,
                      std::vector<TokenId>* tokens) const {
  while (!piece.empty()) {
    const std::string_view chunk = piece.substr(0, kChunkBytesMax);
    MergeChunk(chunk, scratch, tokens);
    piece.remove_prefix(chunk.size());
  }
}

const BpeMerger::Merged* BpeMerger::Find(uint32_t left, uint32_t right) const {
  const uint64_t pair = PairKey(left, right);
  const size_t mask = entries_.size() - 1;
  for (size_t i = CounterRandom(seed_, pair) & mask; entries_[i].pair != UINT64_MAX;
       i = (i + 1) & mask) {
    if (entries_[i].pair == pair) {
      return &entries_[i].merged;
    }
  }
  return nullptr;
}

// Adds the merge of `left` and its successor to the heap, when there is one. A candidate is
// (rank, position): the order of the heap is the order of the definition.
void BpeMerger::Propose(uint32_t left, Scratch* scratch) const {
  const Scratch::Node& node = scratch->nodes[left];
  if (node.next == kNone) {
    return;
  }
  if (const Merged* merged = Find(node.symbol, scratch->nodes[node.next].symbol)) {
    scratch->heap.push_back(uint64_t{merged->rank} << 32 | left);
    std::push_heap(scratch->heap.begin(), scratch->heap.end(), std::greater<>());
  }
}

void BpeMerger::MergeChunk(std::string_view chunk, Scratch* scratch,
                           std::vector<TokenId>* tokens) const {
  std::vector<Scratch::Node>& nodes = scratch->nodes;
  std::vector<uint64_t>& heap = scratch->heap;
  nodes.resize(chunk.size());
  heap.clear();
  for (uint32_t i = 0; i < chunk.size(); ++i) {
    nodes[i] = {.symbol = byte_symbol_[static_cast<uint8_t>(chunk[i])],
                .previous = i == 0 ? kNone : i - 1,
                .next = i + 1 == chunk.size() ? kNone : i + 1};
  }
  for (uint32_t i = 0; i < chunk.size(); ++i) {
    Propose(i, scratch);
  }
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint32_t rank = static_cast<uint32_t>(heap.back() >> 32);
    const uint32_t left = static_cast<uint32_t>(heap.back());
    heap.pop_back();
    Scratch::Node& node = nodes[left];
    if (node.symbol == kNone || node.next == kNone) {
      continue;
    }
    // A rank belongs to one pair, so an equal rank means the pair is still the one proposed.
    const uint32_t right = node.next;
    const Merged* const merged = Find(node.symbol, nodes[right].symbol);
    if (merged == nullptr || merged->rank != rank) {
      continue;
    }
    node.symbol = merged->symbol;
    node.next = nodes[right].next;
    nodes[right].symbol = kNone;
    if (node.next != kNone) {
      nodes[node.next].previous = left;
      Propose(left, scratch);
    }
    if (node.previous != kNone) {
      Propose(node.previous, scratch);
    }
  }
  for (uint32_t i = 0; i != kNone; i = nodes[i].next) {
    Emit(nodes[i].symbol, tokens);
  }
}

void BpeMerger::Emit(uint32_t symbol, std::vector<TokenId>* tokens) const {
  if (symbol < token_count_) {
    tokens->push_back(static_cast<TokenId>(symbol));
    return;
  }
  for (const char byte : extra_symbols_[symbol - token_count_]) {
    if (const std::optional<TokenId> token = byte_token_[static_cast<uint8_t>(byte)]) {
      tokens->push_back(*token);
    }
  }
}

}  // namespace tessera
