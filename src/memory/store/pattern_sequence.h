// SPDX-License-Identifier: Apache-2.0
//
// PatternSequence is a sequence of a StateStore as tests run one: instead of computing, each step
// writes bytes that are a function of the tokens up to where they belong, of the salt where they are
// not public, and of the place in the object, and checks every byte it was handed before it does. So what was reused can
// be told from what a cold run would have written, whoever wrote it.
//
//   attention   the 16th of a group that is token i: of the prefix hash after token i; later ones 0
//   image       of the prefix hash at its position, each kind and extra kind by itself
//   kept row    likewise
//
// ReuseLab is a store and the requests made of it; it validates the store and its page counts after
// every call. Linked into tests only. Threads: one a sequence.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "memory/geometry/kept_rows.h"
#include "memory/store/state_store.h"

namespace tessera::testing {

// ---- Shapes small enough that a sequence takes a few KiB.

inline StateShape TinyHybrid() {
  StateShape s;
  s.attention_layers = 2;
  s.recurrent_layers = 4;
  s.kv_heads = 1;
  s.head_dim = 4;
  s.ssm_heads = 1;
  s.ssm_head_dim = 4;
  s.ssm_state = 16;
  s.conv_channels = 16;
  s.conv_taps = 3;
  s.state_type = StateType::kF32;
  return s;
}

inline StateShape TinyAttentionOnly() {
  StateShape s = TinyHybrid();
  s.recurrent_layers = 0;
  return s;
}

inline StateShape TinyRecurrentOnly() {
  StateShape s = TinyHybrid();
  s.attention_layers = 0;
  s.recurrent_layers = 1;
  return s;
}

// 64 B an image and plane: slots in S3 too.
inline StateShape TinyConvOnly() {
  StateShape s = TinyHybrid();
  s.recurrent_layers = 2;
  s.ssm_heads = s.ssm_head_dim = s.ssm_state = 0;
  s.conv_taps = 2;
  return s;
}

inline StateShape TinyUneven() {
  StateShape s = TinyHybrid();
  s.attention_layers = 3;
  s.recurrent_layers = 2;
  return s;
}

struct ReuseCase {
  std::string name;
  StoreOptions options;

  bool attention() const { return options.shape.attention_layers > 0; }
  bool recurrent() const { return options.shape.recurrent_layers > 0; }
};

// Every organisation, with pages of one group and of several, for every kind of shape, with room
// for so many sequences of 100 tokens and at least so many kept rows.
inline std::vector<ReuseCase> ReuseCases(uint32_t row_width, uint32_t sequences = 24,
                                         uint32_t rows_least = 24) {
  const std::pair<const char*, StateShape> shapes[] = {{"hybrid", TinyHybrid()},
                                                       {"attention only", TinyAttentionOnly()},
                                                       {"recurrent only", TinyRecurrentOnly()},
                                                       {"conv only", TinyConvOnly()},
                                                       {"uneven", TinyUneven()}};
  std::vector<ReuseCase> cases;
  for (const auto& [shape_name, shape] : shapes) {
    for (const char* organisation :
         {"s0:block=32", "s1:block=32", "s2:block=64", "d0:split=0.5", "s3", "s3:page=64"}) {
      ReuseCase c;
      c.name = std::string(shape_name) + ", " + organisation;
      c.options.shape = shape;
      c.options.organisation = OrganisationSpec::Parse(organisation).value();
      c.options.budget_bytes =
          StateStore::BudgetForSequences(shape, c.options.organisation, sequences, 100).value();
      if (row_width > 0) {
        const KeptRows rows(row_width);
        c.options.budget_bytes =
            std::max(rows.BudgetFor(c.options.budget_bytes), rows_least * 100 * rows.unit_bytes());
      }
      c.options.reuse.row_width = row_width;
      c.options.poison = true;
      c.options.shuffle_seed = 7;
      cases.push_back(c);
    }
  }
  return cases;
}

// `count` tokens that are a function of the seed; prefixes of longer ones of the same seed.
inline std::vector<TokenId> TokensOf(uint64_t seed, size_t count) {
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<TokenId>(CounterRandom(seed, i) % 30000);
  }
  return tokens;
}

inline std::vector<TokenId> Joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Ask {
  std::vector<TokenId> prompt;
  uint32_t generate = 0;
  std::string salt = {};
  uint32_t isolate_after = 0;
  std::vector<uint32_t> checkpoint_at = {};
  std::vector<uint32_t> message_ends = {};
  bool lookup = true;
  bool from_row = true;
  bool may_fork = false;
  bool grows = false;  // reserves its prompt and one block: Grow before each step
  double headroom = 0;
  bool resumed = false;
  uint64_t tag = 0;
};

class PatternSequence {
 public:
  PatternSequence(const StateStore& store, const StoreOptions& options, SequenceState state,
                  const Ask& ask)
      : store_(&store),
        options_(&options),
        state_(std::move(state)),
        tokens_(ask.prompt),
        prompt_tokens_(ask.prompt.size()),
        public_tokens_(PublicTokens(ask.salt, ask.isolate_after)),
        salt_hash_(SplitMix64(ask.salt.size())) {
    for (char c : ask.salt) salt_hash_ = SplitMix64(salt_hash_ ^ static_cast<uint8_t>(c));
    hashes_.push_back(SplitMix64(options.reuse.contract_id));
    for (TokenId token : tokens_) Append(token);
    while (tokens_.size() < prompt_tokens_ + ask.generate) {
      tokens_.push_back(static_cast<TokenId>(hashes_.back() % 30000));
      Append(tokens_.back());
    }
    if (state_.match().from_row) CheckRow();
  }
  PatternSequence(PatternSequence&&) = default;
  PatternSequence& operator=(PatternSequence&&) = default;

  const MatchReport& match() const { return state_.match(); }
  SequenceState& state() { return state_; }
  uint64_t position() const { return state_.position(); }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  size_t end() const { return tokens_.size(); }

  void Step(uint32_t tokens, bool fork = false) {
    const StateView view = state_.BeginStep(tokens, fork);
    state_.CopyShared();
    Write(view, tokens);
    state_.EndStep();
  }
  // Begins a step and writes half of what it should; then it can only be dropped.
  void BreakOffInStep(uint32_t tokens) {
    const StateView view = state_.BeginStep(tokens);
    state_.CopyShared();
    Write(view, tokens);
  }

  void Publish(bool last = false) {
    std::vector<float> row;
    if (position() > 0) row = RowAt(position());
    const bool with_row = position() == prompt_tokens_ && options_->reuse.row_width > 0;
    // The history may go on: only what was computed of it may be published.
    state_.Publish(tokens_, with_row ? row : std::vector<float>(), last);
  }

  // In chunks, publishing at every boundary on the way.
  void RunTo(uint64_t end, uint32_t chunk = 13) {
    while (position() < end) {
      uint64_t tokens = std::min<uint64_t>(chunk, end - position());
      tokens = std::min<uint64_t>(tokens, state_.TokensToCut());
      Step(static_cast<uint32_t>(tokens));
      Publish();
    }
  }
  void Finish(uint32_t chunk = 13) {
    RunTo(end(), chunk);
    Publish(/*last=*/true);
  }

 private:
  void Append(TokenId token) {
    const uint64_t before = hashes_.back() ^ (hashes_.size() > public_tokens_ ? salt_hash_ : 0);
    hashes_.push_back(SplitMix64(before ^ (uint64_t{static_cast<uint32_t>(token)} << 8)));
  }
  static uint64_t Word(uint64_t hash, uint64_t plane, uint64_t at) {
    return (hash + plane * 0xD1342543DE82EF95u) * 0x9E3779B97F4A7C15u + at;
  }
  static void Put(std::byte* to, uint64_t word) { std::memcpy(to, &word, 8); }
  static bool Has(const std::byte* at, uint64_t word) { return std::memcmp(at, &word, 8) == 0; }

  std::vector<float> RowAt(uint64_t position) const {
    std::vector<float> row(options_->reuse.row_width);
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = static_cast<float>(CounterUniform(hashes_[position], i));
    }
    return row;
  }
  void CheckRow() const {
    const std::span<const float> kept = state_.kept_row();
    const std::vector<float> row = RowAt(prompt_tokens_);
    EXPECT_TRUE(std::equal(row.begin(), row.end(), kept.begin(), kept.end()))
        << "the kept row is another prefix's";
  }

  uint32_t planes() const { return store_->organisation().planes; }

  void Write(const StateView& view, uint32_t tokens) {
    if (store_->organisation().attention_pool >= 0) StepAttention(view, tokens);
    if (store_->organisation().state_pool >= 0) StepImage(view, tokens);
  }

  // The words of token i in its group: eight bytes at a time over its 16th.
  template <typename Visit>
  void ForEachWord(const StateView& view, uint32_t plane, uint64_t token, Visit visit) const {
    const uint64_t slice = store_->organisation().group_bytes / kGroupTokens;
    std::byte* at = view.GroupAt(plane, static_cast<uint32_t>(token / kGroupTokens)) +
                    token % kGroupTokens * slice;
    const uint64_t hash = hashes_[std::min<uint64_t>(token + 1, hashes_.size() - 1)];
    for (uint64_t x = 0; x < slice; x += 8) visit(at + x, Word(hash, plane, x));
  }

  void StepAttention(const StateView& view, uint32_t tokens) {
    const Organisation& table = store_->organisation();
    uint64_t wrong = 0, beyond = 0;
    for (uint32_t p = 0; p < planes(); ++p) {
      for (uint32_t g = state_.first_new_group(); g < state_.last_new_group(); ++g) {
        std::memset(view.GroupAt(p, g), 0, table.group_bytes);
      }
      for (uint64_t i = 0; i < position(); ++i) {
        ForEachWord(view, p, i, [&](std::byte* at, uint64_t word) { wrong += !Has(at, word); });
      }
      for (uint64_t i = position(); i % kGroupTokens != 0; ++i) {
        ForEachWord(view, p, i, [&](std::byte* at, uint64_t) { beyond += !Has(at, 0); });
      }
      for (uint64_t i = position(); i < position() + tokens; ++i) {
        ForEachWord(view, p, i, [](std::byte* at, uint64_t word) { Put(at, word); });
      }
    }
    EXPECT_EQ(wrong, 0u) << "attention state is not what this prefix gives, at " << position();
    EXPECT_EQ(beyond, 0u) << "the last group holds tokens that are not there yet";
  }

  // SSM and conv by their own starts, then the extra kinds' pages.
  template <typename Visit>
  void ForEachImageWord(const PagedBytes& image, uint64_t position, uint32_t p, Visit visit) const {
    const Organisation& table = store_->organisation();
    const uint64_t hash = hashes_[position];
    for (uint64_t x = 0; x < store_->shape().ssm_image_bytes(); x += 8) {
      visit(image.At(table.ssm_start + x), Word(hash, p, x));
    }
    for (uint64_t x = 0; x < store_->shape().conv_image_bytes(); x += 8) {
      visit(image.At(table.conv_start + x), Word(hash, p + 1000, x));
    }
  }
  uint64_t WrongInImage(const PagedBytes& image, uint32_t p) const {
    uint64_t wrong = 0;
    ForEachImageWord(image, position(), p,
                     [&](const std::byte* at, uint64_t word) { wrong += !Has(at, word); });
    return wrong;
  }

  void StepImage(const StateView& view, uint32_t tokens) {
    uint64_t wrong = 0;
    for (uint32_t p = 0; p < planes(); ++p) {
      EXPECT_EQ(view.Source(p).is_zero(), position() == 0);
      if (position() > 0) wrong += WrongInImage(view.Source(p), p);
      ForEachImageWord(view.Destination(p), position() + tokens, p,
                       [](std::byte* at, uint64_t word) { Put(at, word); });
      const bool in_place = view.source_offsets == view.destination_offsets;
      if (position() > 0 && !in_place) wrong += WrongInImage(view.Source(p), p);
    }
    EXPECT_EQ(wrong, 0u) << "the image is not that of this prefix, at " << position();
    for (size_t kind = 0; kind < options_->extra_kinds.size(); ++kind) StepExtra(kind, tokens);
  }

  void StepExtra(size_t kind, uint32_t tokens) {
    const std::vector<std::byte*> source = state_.ExtraPages(kind, /*source=*/true);
    const std::vector<std::byte*> destination = state_.ExtraPages(kind, /*source=*/false);
    const uint64_t bytes = store_->organisation()
                               .pools[static_cast<size_t>(store_->organisation().state_pool)]
                               .unit_bytes;
    EXPECT_EQ(source.empty(), position() == 0);
    EXPECT_GE(destination.size() * bytes, planes() * options_->extra_kinds[kind].bytes);
    uint64_t wrong = 0;
    for (size_t i = 0; i < source.size(); ++i) {
      for (uint64_t x = 0; x < bytes; x += 8) {
        wrong += !Has(source[i] + x, Word(hashes_[position()], 2000 + kind, i * bytes + x));
      }
    }
    EXPECT_EQ(wrong, 0u) << "extra kind " << kind << " is not that of this prefix";
    for (size_t i = 0; i < destination.size(); ++i) {
      for (uint64_t x = 0; x < bytes; x += 8) {
        Put(destination[i] + x, Word(hashes_[position() + tokens], 2000 + kind, i * bytes + x));
      }
    }
  }

  const StateStore* store_;
  const StoreOptions* options_;
  SequenceState state_;
  std::vector<TokenId> tokens_;
  size_t prompt_tokens_;
  uint32_t public_tokens_;
  uint64_t salt_hash_;
  std::vector<uint64_t> hashes_;  // of the first i tokens
};

// What is reused and why the rest is not must together be the prompt, once.
inline void CheckReport(const MatchReport& report) {
  uint32_t at = report.reused;
  for (uint32_t i = 0; i < report.computed_count; ++i) {
    EXPECT_EQ(report.computed[i].begin, at);
    EXPECT_GT(report.computed[i].end, report.computed[i].begin);
    at = report.computed[i].end;
  }
  EXPECT_EQ(at, report.prompt_tokens);
  EXPECT_LE(report.reused, report.attention);
  EXPECT_LE(report.reused, report.recurrent);
  EXPECT_LE(report.diverged_at, report.prompt_tokens);
  EXPECT_EQ(report.from_row, report.reused > 0 && report.reused == report.prompt_tokens);
}

class ReuseLab {
 public:
  explicit ReuseLab(const StoreOptions& options) : options_(options) {
    Result<std::unique_ptr<StateStore>> made = StateStore::Create(options_);
    EXPECT_TRUE(made.has_value()) << made.error().ToString();
    if (made.has_value()) store_ = std::move(made).value();
  }

  StateStore& store() { return *store_; }
  const StoreOptions& options() const { return options_; }
  const AdmitResult& last() const { return last_; }
  ReuseStats stats() const { return store_->Stats().reuse; }

  std::optional<PatternSequence> Admit(const Ask& ask) {
    SequenceRequest request;
    request.max_tokens = ask.prompt.size() + ask.generate;
    request.may_fork = ask.may_fork;
    request.headroom = ask.headroom;
    request.resumed = ask.resumed;
    if (ask.grows) {
      request.reserve_tokens =
          std::min<uint64_t>(request.max_tokens, ask.prompt.size() + store_->block_tokens());
    }
    request.prompt = ask.prompt;
    request.salt = ask.salt;
    request.isolate_after = ask.isolate_after;
    request.checkpoint_at = ask.checkpoint_at;
    request.message_ends = ask.message_ends;
    request.lookup = ask.lookup;
    request.from_row = ask.from_row;
    request.tag = ask.tag;
    last_ = store_->Admit(request);
    Check();
    EXPECT_EQ(last_.outcome == Admission::kAdmitted, last_.sequence.has_value());
    if (!last_.sequence.has_value()) return std::nullopt;
    CheckReport(last_.sequence->match());
    PatternSequence sequence(*store_, options_, *std::move(last_.sequence), ask);
    last_.sequence.reset();
    return sequence;
  }
  // Admits, which must succeed, runs to the end and drops. What was reused.
  MatchReport Serve(const Ask& ask, uint32_t chunk = 13) {
    std::optional<PatternSequence> sequence = Admit(ask);
    EXPECT_TRUE(sequence.has_value()) << last_.reason;
    if (!sequence.has_value()) return {};
    const MatchReport report = sequence->match();
    sequence->Finish(chunk);
    Check();
    sequence.reset();
    Check();
    return report;
  }
  MatchReport Lookup(const Ask& ask) {
    return store_->Lookup({.max_tokens = ask.prompt.size(),
                           .prompt = ask.prompt,
                           .salt = ask.salt,
                           .isolate_after = ask.isolate_after,
                           .lookup = ask.lookup,
                           .from_row = ask.from_row});
  }

  // The store validates, and each pool's pages are all accounted for.
  void Check() const {
    const Status valid = store_->Validate(3);
    EXPECT_TRUE(valid.ok()) << valid.ToString();
    const StoreStats stats = store_->Stats();
    EXPECT_LE(stats.arena_bytes, stats.budget_bytes);
    for (const PoolStats& pool : stats.pools) {
      EXPECT_EQ(pool.free_pages + pool.reserved_pages + pool.held_attention_pages +
                    pool.held_state_pages + pool.cached_attention_pages + pool.cached_state_pages +
                    pool.draining_pages,
                pool.total_pages)
          << pool.name;
    }
    CheckCensus(stats);
    CheckPageMap(stats);
  }
  // Every object that the census counts has its pages. Some pages may be of nobody: those that wait
  // for a step to end.
  void CheckCensus(const StoreStats& stats) const {
    const StoreCensus census = store_->Census();
    uint64_t attention_held = 0, attention_cached = 0, state = 0, draining = 0;
    for (const PoolStats& pool : stats.pools) {
      attention_held += pool.held_attention_pages;
      attention_cached += pool.cached_attention_pages;
      draining += pool.draining_pages;
      state += pool.held_state_pages + pool.cached_state_pages - pool.slab_pages;
      if (pool.total_slots > 0) {
        EXPECT_LE(census.images.total(), pool.used_slots);
      }
    }
    if (draining == 0) {
      EXPECT_EQ(census.blocks.live + census.blocks.held + census.blocks.pinned, attention_held);
    }
    EXPECT_EQ(census.blocks.retained + census.blocks.cached, attention_cached);
    if (options_.extra_kinds.empty()) {
      EXPECT_LE(census.images.total() * store_->organisation().state_pages, state);
    }
    EXPECT_EQ(census.images.findable(), stats.reuse.checkpoints);
    EXPECT_LE(census.images.retained, stats.reuse.retained_checkpoints);
    EXPECT_LE(census.reusable_blocks, census.blocks.findable());
    EXPECT_LE(census.reusable_images, census.images.findable());
  }
  // The page map has every page once, and as many of each use as are counted.
  void CheckPageMap(const StoreStats& stats) const {
    const std::vector<PoolPageMap> maps = store_->PageMap();
    ASSERT_GE(maps.size(), stats.pools.size());
    for (size_t i = 0; i < maps.size(); ++i) {
      uint64_t uses[4] = {}, blocks_held = 0, blocks_cached = 0, pages = 0;
      for (const PageRun& run : maps[i].runs) {
        pages += run.pages;
        uses[static_cast<size_t>(run.use)] += run.pages;
        if (run.content != PageContent::kBlock) continue;
        (run.use == PageUse::kHeld ? blocks_held : blocks_cached) += run.pages;
      }
      EXPECT_EQ(pages, maps[i].pages);
      if (i >= stats.pools.size()) {
        EXPECT_EQ(uses[1] + uses[2], stats.reuse.rows) << "of kept rows";
        continue;
      }
      const PoolStats& pool = stats.pools[i];
      EXPECT_EQ(uses[0], pool.free_pages + pool.reserved_pages) << pool.name;
      EXPECT_EQ(uses[1], pool.held_attention_pages + pool.held_state_pages) << pool.name;
      EXPECT_EQ(uses[2], pool.cached_attention_pages + pool.cached_state_pages) << pool.name;
      EXPECT_EQ(uses[3], pool.draining_pages) << pool.name;
      EXPECT_EQ(blocks_cached, pool.cached_attention_pages) << pool.name;
      if (pool.draining_pages == 0) {
        EXPECT_EQ(blocks_held, pool.held_attention_pages) << pool.name;
      }
    }
  }
  void ExpectAllFree() const {
    for (const PoolStats& pool : store_->Stats().pools) {
      EXPECT_EQ(pool.free_pages, pool.total_pages) << pool.name;
    }
  }

 private:
  StoreOptions options_;
  std::unique_ptr<StateStore> store_;
  AdmitResult last_;
};

}  // namespace tessera::testing
