// SPDX-License-Identifier: Apache-2.0
#include "bench/prompt_forest.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/random.h"

namespace tessera {
namespace {

constexpr uint32_t kOfContext = PromptForest::kBranches * PromptForest::kLeaves;
constexpr uint32_t kVocabulary = 32'000;

struct Share {  // of a prompt, with whoever has the same key
  uint32_t begin = 0;
  uint32_t end = 0;
  uint64_t key = 0;
};

bool IsFirstOfContext(uint64_t prompt) { return prompt % kOfContext == 0; }
bool IsFirstOfBranch(uint64_t prompt) { return prompt % PromptForest::kLeaves == 0; }

// Tokens that the prompt adds to those before it.
uint32_t OwnTokens(uint64_t prompt) {
  return PromptForest::kLeafTokens + (IsFirstOfBranch(prompt) ? PromptForest::kBranchTokens : 0) +
         (IsFirstOfContext(prompt) ? PromptForest::kContextTokens : 0);
}

// Prompts of one context together.
constexpr uint64_t kContextGroups =
    (PromptForest::kContextTokens + PromptForest::kBranches * PromptForest::kBranchTokens +
     uint64_t{kOfContext} * PromptForest::kLeafTokens) /
    kGroupTokens;

uint64_t Checkpoints(uint64_t prompts) {
  const uint64_t branches = (prompts + PromptForest::kLeaves - 1) / PromptForest::kLeaves;
  return prompts + branches + (prompts + kOfContext - 1) / kOfContext;
}

uint64_t AllTokens(uint64_t prompts) {
  uint64_t tokens = prompts / kOfContext * kContextGroups * kGroupTokens;
  for (uint64_t i = prompts / kOfContext * kOfContext; i < prompts; ++i) tokens += OwnTokens(i);
  return tokens;
}

}  // namespace

uint64_t PromptForest::Prompts(uint64_t blocks) {
  uint64_t prompts = blocks / kContextGroups * kOfContext;
  while (AllTokens(prompts + 1) / kGroupTokens <= blocks) ++prompts;
  return std::max<uint64_t>(prompts, 1);
}

// Room for every prompt and, while a leaf is replaced, for another.
Organisation PromptForest::WithPages(Organisation table, uint64_t prompts) {
  const uint64_t tokens = AllTokens(prompts) + kPromptTokens;
  const uint64_t checkpoints = Checkpoints(prompts) + 3;
  for (PoolTable& pool : table.pools) pool.page_count = 0;
  auto add = [&table](int pool, uint64_t pages) {
    if (pool >= 0)
      table.pools[static_cast<size_t>(pool)].page_count += static_cast<uint32_t>(pages);
  };
  if (table.attention_pool >= 0) add(table.attention_pool, table.AttentionPages(tokens));
  add(table.state_pool, checkpoints * table.state_pages);
  if (table.slot_bytes > 0) add(table.state_pool, checkpoints / table.slots_per_page + 1);
  return table;
}

uint64_t PromptForest::MetadataBytes(const Organisation& table, uint64_t blocks) {
  const Organisation full = WithPages(table, Prompts(blocks));
  uint64_t pages = 0;
  for (const PoolTable& pool : full.pools) pages += pool.page_count;
  // A node, its place in the table of paths and in the queue of each pool; a page's record, its entry
  // and what names both.
  const uint64_t per_node = sizeof(PrefixTree::Node) + 32 +
                            full.pools.size() * EvictionQueue::kBytesPerId + sizeof(uint64_t);
  constexpr uint64_t kPerPage = 64;
  return blocks * per_node + pages * kPerPage;
}

PromptForest::PromptForest(const Organisation& table, uint64_t blocks, bool mixed)
    : table_(WithPages(table, Prompts(blocks))), leaves_(Prompts(blocks)) {
  groups_ = AllTokens(leaves_.size()) / kGroupTokens;
  Ledger::Options ledger{.pools = {},
                         .slab_pool = table_.slot_bytes > 0 ? table_.state_pool : -1,
                         .slots_per_page = table_.slots_per_page,
                         .kinds = StateKinds::Of(table_, -1)};
  for (const PoolTable& pool : table_.pools) {
    ledger.pools.push_back({.page_count = pool.page_count, .unit_bytes = pool.unit_bytes});
  }
  ledger_ = std::make_unique<Ledger>(std::move(ledger));
  index_ = std::make_unique<PrefixIndex>(
      ledger_.get(), PrefixIndex::Options{.node_capacity = static_cast<uint32_t>(groups_) +
                                                           kPromptTokens / kGroupTokens + 16,
                                          .groups_per_page = std::max(1u, table_.groups_per_page),
                                          .attention_pool = table_.attention_pool,
                                          .state_pool = table_.state_pool});
  pages_.resize(leaves_.size() * leaf_pages());
  std::vector<uint32_t> order(prompts());
  std::iota(order.begin(), order.end(), 0u);
  Random random(0);
  for (size_t i = order.size(); mixed && i > 1; --i) {
    std::swap(order[i - 1], order[random.Below(i)]);
  }
  for (uint32_t prompt : order) Fill(prompt);
}

std::vector<TokenId> PromptForest::TokensOf(uint32_t prompt) const {
  std::vector<TokenId> tokens(kPromptTokens + kQuestionTokens);
  const uint64_t version = leaves_[prompt].version;
  const Share shares[] = {
      {0, kContextTokens, prompt / kOfContext},
      {kContextTokens, kContextTokens + kBranchTokens, prompt / kLeaves + (uint64_t{1} << 40)},
      {kContextTokens + kBranchTokens, kPromptTokens + kQuestionTokens,
       prompt + (uint64_t{2} << 40) + (version << 44)}};
  for (const Share& share : shares) {
    for (uint32_t i = share.begin; i < share.end; ++i) {
      tokens[i] = static_cast<TokenId>(CounterRandom(share.key, i) % kVocabulary);
    }
  }
  return tokens;
}

std::span<const PageId> PromptForest::LeafPages(uint32_t prompt) const {
  return std::span(pages_).subspan(size_t{prompt} * leaf_pages(), leaf_pages());
}

void PromptForest::Renew(uint32_t prompt) { ++leaves_[prompt].version; }

PromptForest::Written PromptForest::Take(LedgerLock& lock, uint32_t tokens) {
  Written written;
  if (table_.attention_pool >= 0) {
    const uint32_t count = table_.AttentionPages(tokens);
    auto promise = ledger_->pool(table_.attention_pool).Reserve(count);
    TESSERA_CHECK(promise.has_value());
    for (uint32_t i = 0; i < count; ++i) {
      written.pages.push_back(ledger_->TakeAttention(lock, table_.attention_pool, &*promise));
    }
  }
  if (table_.state_pages > 0) {
    written.image.resize(table_.state_pages);
    auto promise = ledger_->pool(table_.state_pool).Reserve(table_.state_pages);
    TESSERA_CHECK(promise.has_value());
    ledger_->TakeImage(lock, table_.state_pool, &*promise, written.image);
  }
  if (table_.slot_bytes > 0) {
    auto promise = ledger_->slabs()->Reserve(1);
    TESSERA_CHECK(promise.has_value());
    written.slot = ledger_->TakeSlot(lock, &*promise);
  }
  return written;
}

PromptForest::Written PromptForest::TakeLeaf(LedgerLock& lock) { return Take(lock, kLeafTokens); }

void PromptForest::PublishGroups(LedgerLock& lock, PublishPath* path,
                                 std::span<const TokenId> tokens, std::span<const PageId> pages) {
  const uint32_t per_page = std::max(1u, table_.groups_per_page);
  for (uint32_t group = 0; group < tokens.size() / kGroupTokens; ++group) {
    if (group % PrefixIndex::kGroupsAhead == 0) {
      index_->PrefetchGroups(*path, tokens.subspan(size_t{group} * kGroupTokens));
    }
    const PageId page = pages.empty() ? PageId() : pages[group / per_page];
    TESSERA_CHECK(index_->PublishGroup(
        lock, path, tokens.subspan(size_t{group} * kGroupTokens, kGroupTokens), page));
  }
}

void PromptForest::PublishCheckpoint(LedgerLock& lock, uint32_t prompt, const PublishPath& path,
                                     const Written& written) {
  leaves_[prompt].checkpoint =
      index_->PublishCheckpoint(lock, index_->NodeOf(path), written.image, written.slot, false);
}

void PromptForest::LetGo(LedgerLock& lock, const Written& written) {
  for (PageId page : written.pages) ledger_->Unref(lock, table_.attention_pool, page);
  for (PageId page : written.image) ledger_->Unref(lock, table_.state_pool, page);
  if (written.slot.valid()) ledger_->UnrefSlot(lock, written.slot);
}

void PromptForest::Remember(uint32_t prompt, const Written& written) {
  std::copy(written.pages.begin(), written.pages.end(),
            pages_.begin() + ptrdiff_t{prompt} * leaf_pages());
}

// What a server does with a new prompt: find, adopt, compute and publish the rest.
void PromptForest::Fill(uint32_t prompt) {
  const std::vector<TokenId> tokens = TokensOf(prompt);
  LedgerLock lock(*ledger_);
  Lease lease = index_->Adopt(lock, index_->Find(lock, {.prompt = tokens, .salt = {}}));
  PublishPath path = index_->OpenPath(lock, {}, lease);
  uint32_t begin = lease.position();
  for (uint32_t end : {kContextTokens, kContextTokens + kBranchTokens, kPromptTokens}) {
    if (end <= begin) continue;
    const Written written = Take(lock, end - begin);
    PublishGroups(lock, &path, std::span(tokens).subspan(begin, end - begin), written.pages);
    PublishCheckpoint(lock, prompt, path, written);
    LetGo(lock, written);
    if (end == kPromptTokens) Remember(prompt, written);
    begin = end;
  }
  index_->ClosePath(lock, &path);
  index_->Release(lock, &lease);
}

}  // namespace tessera
