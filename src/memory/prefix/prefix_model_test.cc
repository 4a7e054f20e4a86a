// SPDX-License-Identifier: Apache-2.0
//
// Seeded random operations on a prefix index and its ledger against a twin that is a map from whole
// token vectors to members, and finds by trying every prefix. Sequences begin at what they find,
// publish groups, tails, checkpoints and rows, hold and let go; memory and nodes run out; entries
// are retained, evicted and cleared. After every operation the index validates and its nodes are
// those of the twin: nothing appears, and what is gone was idle and went in an operation that may
// evict.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <set>

#include "base/random.h"
#include "memory/ledger/ledger_cases.h"
#include "memory/prefix/isolation.h"
#include "memory/prefix/prefix_index.h"

#ifndef TESSERA_MODEL_OPERATIONS
#define TESSERA_MODEL_OPERATIONS 100000
#endif

namespace tessera {
namespace {

// Who asks: a salt, and how much is public all the same.
struct Scope {
  const char* salt;
  uint32_t isolate_after = 0;
};
constexpr const char* kLongSalt = "a salt that takes more than one node of the tree, as it is long";
constexpr Scope kScopes[] = {{""}, {"a"}, {kLongSalt}, {"a", 16}, {"a", 50}, {kLongSalt, 40}};
constexpr size_t kPrivateScopes = std::size(kScopes) - 1;

struct IndexCase {
  std::string name;
  testing::LedgerCase ledger;
  PrefixIndex::Options index;
};

std::vector<IndexCase> IndexCases() {
  const StateKind block{"attention", EntryType::kBlock, 0, 1, false};
  const StateKind row{"kept row", EntryType::kRow, 1, 1, false};
  const StateKind image{"ssm and conv", EntryType::kCheckpoint, 0, 2, false};
  const StateKind packed{"ssm and conv", EntryType::kCheckpoint, 0, 1, true};
  const PrefixIndex::Options shared{
      .node_capacity = 64, .attention_pool = 0, .state_pool = 0, .row_pool = 1};
  std::vector<IndexCase> cases = {
      {"S3", {"S3", {24, 3}, {block, image, row}}, shared},
      {"S3 with few nodes", {"S3", {24, 3}, {block, image, row}}, shared},
      {"pages of 2 groups, slots", {"S2", {20, 3}, {block, packed, row}, 0, 4}, shared},
      {"pages of 4 groups", {"S1", {16, 3}, {block, image, row}}, shared},
      {"two pools",
       {"D0", {14, 3, 6}, {block, row, {"ssm and conv", EntryType::kCheckpoint, 2, 1, false}}},
       shared},
      {"attention only, pages of 4 groups", {"A", {12, 3}, {block, row}}, shared},
      {"recurrent only", {"R", {12, 3}, {image, row}}, shared},
  };
  cases[1].index.node_capacity = 14;
  cases[2].index.groups_per_page = 2;
  cases[3].index.groups_per_page = 4;
  cases[4].index.state_pool = 2;
  cases[5].index.groups_per_page = 4;
  cases[5].index.state_pool = -1;
  cases[6].index.attention_pool = -1;
  return cases;
}

struct Members {
  EntryId block, checkpoint, row;
  bool any() const { return block.valid() || checkpoint.valid() || row.valid(); }
  friend bool operator==(const Members&, const Members&) = default;
};
using Path = std::pair<size_t, std::vector<TokenId>>;  // scope and tokens

uint32_t PublicTokensOf(size_t scope) {
  return PublicTokens(kScopes[scope].salt, kScopes[scope].isolate_after);
}
// The path of its first tokens, as everybody finds it if that is public.
Path Prefix(const Path& path, size_t tokens) {
  const bool everybodys = tokens > 0 && tokens <= PublicTokensOf(path.first);
  return {everybodys ? 0 : path.first,
          {path.second.begin(), path.second.begin() + static_cast<ptrdiff_t>(tokens)}};
}
using Nodes = std::map<Path, Members>;

struct Walker {
  Path path;  // where it goes
  Lease lease;
  PublishPath publish;
  std::map<uint32_t, PageId> own;  // by page of the path
};

class IndexTwin {
 public:
  IndexTwin(const IndexCase& c, uint64_t seed)
      : c_(c),
        random_(seed),
        ledger_(c.ledger.Options(seed)),
        index_(&ledger_, OptionsOf(c, seed)) {}

  ~IndexTwin() {
    LedgerLock lock(ledger_);
    while (!walkers_.empty()) End(lock, walkers_.size() - 1);
    for (auto& [type, members] : held_) testing::UnrefAll(lock, ledger_, type, members);
    for (Retention& retention : retentions_) ledger_.Release(lock, std::move(retention));
    index_.Clear(lock);
    EXPECT_EQ(index_.tree().size(), 1u);
    for (int pool = 0; pool < ledger_.pool_count(); ++pool) {
      EXPECT_EQ(ledger_.pool(pool).free_pages(), ledger_.pool(pool).total_pages());
    }
  }

  void Operation() {
    LedgerLock lock(ledger_);
    before_idle_.clear();
    before_retained_.clear();
    for (const auto& [path, members] : twin_) {
      for (EntryId entry : {members.block, members.checkpoint, members.row}) {
        if (!entry.valid()) continue;
        if (ledger_.idle(entry)) before_idle_.insert(entry);
        if (ledger_.retentions(entry) > 0) before_retained_.insert(entry);
      }
    }
    highest_ = EvictionRank::kRetained;
    const bool evicts = Choose(lock);
    Compare(lock, evicts);
    if (random_.Below(4) == 0) CompareFind(lock, RandomPath(), random_.Below(2) == 0);
  }

  uint64_t hits() const { return index_.stats().hits; }
  uint64_t orphans() const { return orphans_; }
  uint64_t evicted() const {
    return index_.stats().evicted_blocks + index_.stats().evicted_checkpoints;
  }

 private:
  static PrefixIndex::Options OptionsOf(const IndexCase& c, uint64_t seed) {
    PrefixIndex::Options options = c.index;
    options.eviction = static_cast<EvictionPolicy>(seed % 3);
    return options;
  }
  bool attention() const { return c_.index.attention_pool >= 0; }
  bool recurrent() const { return c_.index.state_pool >= 0; }

  // One operation; whether it may evict.
  bool Choose(LedgerLock& lock) {
    const uint64_t choice = random_.Below(100);
    if (walkers_.empty() || (choice < 15 && walkers_.size() < 4)) {
      Begin(lock);
      return true;  // for a namespace
    }
    Walker& walker = walkers_[random_.Below(walkers_.size())];
    if (choice < 45) return PublishGroup(lock, walker);
    if (choice < 65) return PublishBoundary(lock, walker);
    if (choice < 70) index_.ReleaseSource(lock, &walker.lease);
    if (choice >= 70 && choice < 80) End(lock, random_.Below(walkers_.size()));
    if (choice >= 80 && choice < 84) LetGo(lock);
    if (choice >= 84 && choice < 88) Retain(lock);
    if (choice >= 88 && choice < 98) {
      MakeRoom(lock, static_cast<int>(random_.Below(static_cast<uint64_t>(ledger_.pool_count()))));
      return true;
    }
    if (choice >= 98 && random_.Below(8) == 0) {
      index_.Clear(lock);
      return true;
    }
    if (choice == 99) ledger_.Resume(lock);
    return choice == 99;
  }

  Path RandomPath() {
    Path path{random_.Below(4) == 0 ? 1 + random_.Below(kPrivateScopes) : 0, {}};
    path.second.resize(1 + random_.Below(100));
    for (size_t i = 0; i < path.second.size(); ++i) {
      const bool fork = i % 9 == 4 && random_.Below(5) == 0;
      path.second[i] = static_cast<TokenId>(i + (fork ? 1000 : 0));
    }
    return path;
  }

  // ---- The twin's own finding.

  bool Offered(EntryId entry) const {
    return entry.valid() && ledger_.state(entry) == ReclaimState::kLive;
  }
  const Members* At(const Path& path, size_t tokens) const {
    const auto it = twin_.find(Prefix(path, tokens));
    return it == twin_.end() ? nullptr : &it->second;
  }
  bool HasAttention(const Path& path, size_t tokens) const {
    if (!attention()) return true;
    for (size_t at = kGroupTokens; at < tokens + kGroupTokens; at += kGroupTokens) {
      const Members* node = At(path, std::min(at, tokens));
      if (node == nullptr || !Offered(node->block)) return false;
    }
    return true;
  }
  // Nodes there are: those with members, those somebody holds, and all above them.
  std::vector<Path> Alive() const {
    std::vector<Path> paths;
    for (const auto& [path, members] : twin_) paths.push_back(path);
    for (const Walker& walker : walkers_) {
      if (!walker.publish.open()) continue;
      paths.push_back(Prefix(walker.path, walker.publish.position()));
    }
    return paths;
  }

  static PrefixQuery QueryOf(const Path& path, bool from_row) {
    const Scope& scope = kScopes[path.first];
    return {.prompt = path.second,
            .salt = scope.salt,
            .isolate_after = scope.isolate_after,
            .from_row = from_row};
  }

  void CompareFind(LedgerLock& lock, const Path& path, bool from_row) {
    const Match match = index_.Find(lock, QueryOf(path, from_row));
    uint32_t a_max = 0, r_max = 0, adopted = 0, diverged = 0;
    for (uint32_t n = 1; n <= path.second.size(); ++n) {
      const Members* node = At(path, n);
      if (node == nullptr) continue;
      const bool checkpoint = !recurrent() || Offered(node->checkpoint);
      const bool all = HasAttention(path, n);
      if (all && attention()) a_max = n;
      if (recurrent() && checkpoint) r_max = n;
      const bool usable = n < path.second.size() || (from_row && Offered(node->row));
      if (all && checkpoint && usable) adopted = n;
    }
    for (const Path& other : Alive()) {
      const auto ends = std::mismatch(path.second.begin(), path.second.end(), other.second.begin(),
                                      other.second.end());
      uint32_t common = static_cast<uint32_t>(ends.first - path.second.begin());
      if (other.first != path.first) {
        common = std::min({common, PublicTokensOf(path.first), PublicTokensOf(other.first)});
      }
      diverged = std::max(diverged, common);
    }
    const MatchReport& report = match.report;
    EXPECT_EQ(report.reused, adopted);
    EXPECT_EQ(report.attention, attention() ? a_max : report.diverged_at);
    EXPECT_EQ(report.recurrent, recurrent() ? r_max : a_max);
    EXPECT_EQ(match.boundary.valid(), adopted > 0);
    if (!has_lease_only_nodes()) {
      EXPECT_EQ(report.diverged_at, diverged);
    }
    uint32_t at = report.reused;
    for (uint32_t i = 0; i < report.computed_count; ++i) {
      EXPECT_EQ(report.computed[i].begin, at);
      at = report.computed[i].end;
    }
    EXPECT_EQ(at, path.second.size());
  }
  // A lease holds its nodes when their members were taken away by force (Clear) too.
  bool has_lease_only_nodes() const {
    return std::any_of(walkers_.begin(), walkers_.end(),
                       [](const Walker& walker) { return walker.lease.held(); });
  }

  // ---- Operations.

  void Begin(LedgerLock& lock) {
    Walker walker{.path = RandomPath(), .lease = {}, .publish = {}, .own = {}};
    const bool from_row = random_.Below(2) == 0;
    CompareFind(lock, walker.path, from_row);
    const PrefixQuery query = QueryOf(walker.path, from_row);
    const Match match = index_.Find(lock, query);
    if (random_.Below(4) != 0) walker.lease = index_.Adopt(lock, match);
    if (walker.lease.held()) CheckLease(lock, walker, match);
    index_.CountLookup(lock, match);
    walker.publish = index_.OpenPath(lock, query, walker.lease);
    walkers_.push_back(std::move(walker));
  }

  // Every member it will read is one of its own prefix, and held.
  void CheckLease(LedgerLock& lock, const Walker& walker, const Match& match) {
    const uint32_t position = match.report.reused;
    EXPECT_EQ(walker.lease.position(), position);
    std::vector<PageId> pages((position + kGroupTokens - 1) / kGroupTokens);
    index_.ListGroupPages(lock, walker.lease, pages);
    for (size_t g = 0; attention() && g < pages.size(); ++g) {
      const size_t end = std::min<size_t>((g + 1) * kGroupTokens, position);
      const EntryId block = At(walker.path, end)->block;
      EXPECT_EQ(ledger_.pages(block)[0], pages[g]);
      EXPECT_FALSE(ledger_.idle(block));
    }
    const Members& boundary = *At(walker.path, position);
    EXPECT_EQ(walker.lease.checkpoint(), boundary.checkpoint);
    if (recurrent()) {
      EXPECT_FALSE(ledger_.idle(boundary.checkpoint));
    }
    EXPECT_EQ(walker.lease.row(), match.report.from_row ? boundary.row : EntryId());
  }

  PageId OwnPage(LedgerLock& lock, Walker& walker, uint32_t group) {
    const uint32_t index = group / c_.index.groups_per_page;
    const auto it = walker.own.find(index);
    if (it != walker.own.end()) return it->second;
    PagePool& pool = ledger_.pool(c_.index.attention_pool);
    if (!index_.MakeRoom(lock, c_.index.attention_pool, [&] { return pool.free_pages() > 0; })) {
      return PageId();
    }
    Compare(lock, /*evicts=*/true);
    Reservation one = *pool.Reserve(1);
    return walker.own[index] = ledger_.TakeAttention(lock, c_.index.attention_pool, &one);
  }

  void ExpectBlock(const Path& path, PageId page) {
    Members& node = twin_[path];
    const EntryId owner = page.valid() ? ledger_.owner(c_.index.attention_pool, page) : EntryId();
    if (!node.block.valid() && Offered(owner)) node.block = owner;
    if (!node.any()) twin_.erase(path);
  }

  bool PublishGroup(LedgerLock& lock, Walker& walker) {
    if (!walker.publish.open()) return false;
    const uint32_t end = walker.publish.position() + kGroupTokens;
    if (end > walker.path.second.size()) return false;
    const PageId page =
        attention() ? OwnPage(lock, walker, walker.publish.position() / kGroupTokens) : PageId();
    if (attention() && !page.valid()) return true;
    const std::span<const TokenId> tokens(walker.path.second);
    const Path to = Prefix(walker.path, end);
    if (index_.PublishGroup(lock, &walker.publish, tokens.subspan(end - kGroupTokens, kGroupTokens),
                            page)) {
      ExpectBlock(to, page);
    } else {
      EXPECT_FALSE(walker.publish.open());
    }
    return true;
  }

  bool PublishBoundary(LedgerLock& lock, Walker& walker) {
    if (!walker.publish.open()) return false;
    const uint32_t begin = walker.publish.position();
    const size_t left = walker.path.second.size() - begin;
    const std::span<const TokenId> tokens(walker.path.second);
    const auto tail = tokens.subspan(begin, std::min<size_t>(left, random_.Below(kGroupTokens)));
    const PageId page =
        attention() && !tail.empty() ? OwnPage(lock, walker, begin / kGroupTokens) : PageId();
    if (attention() && !tail.empty() && !page.valid()) return true;
    if (begin + tail.size() == 0) return true;
    const NodeId node = index_.PublishTail(lock, walker.publish, tail, page);
    if (!node.valid()) return true;
    const Path at = Prefix(walker.path, begin + tail.size());
    if (!tail.empty()) ExpectBlock(at, page);
    // A partial group is never appended to in place: the walker's next page is another.
    if (!tail.empty() && attention()) GiveUpPage(lock, walker, begin / kGroupTokens);
    if (recurrent() && !index_.HasCheckpoint(node)) PublishCheckpoint(lock, node, at);
    if (random_.Below(2) == 0 && index_.HasStart(node) && !index_.HasRow(node)) {
      PublishRow(lock, node, at);
    }
    index_.Settle(lock, node);
    return true;
  }

  void GiveUpPage(LedgerLock& lock, Walker& walker, uint32_t group) {
    const auto it = walker.own.find(group / c_.index.groups_per_page);
    if (it == walker.own.end()) return;
    ledger_.Unref(lock, c_.index.attention_pool, it->second);
    walker.own.erase(it);
  }

  // From free memory alone: what is evicted for it is MakeRoom's to test.
  void PublishCheckpoint(LedgerLock& lock, NodeId node, const Path& at) {
    std::optional<testing::Members> members =
        testing::TakeMembers(lock, ledger_, EntryType::kCheckpoint);
    if (!members.has_value()) return;
    twin_[at].checkpoint =
        index_.PublishCheckpoint(lock, node, members->pages, members->slot, random_.Below(4) == 0);
    Hold(lock, EntryType::kCheckpoint, *std::move(members));
  }
  void PublishRow(LedgerLock& lock, NodeId node, const Path& at) {
    std::optional<testing::Members> members = testing::TakeMembers(lock, ledger_, EntryType::kRow);
    if (!members.has_value()) return;
    twin_[at].row = index_.PublishRow(lock, node, members->pages[0]);
    Hold(lock, EntryType::kRow, *std::move(members));
  }
  void Hold(LedgerLock& lock, EntryType type, testing::Members members) {
    if (random_.Below(6) == 0) {
      held_.emplace_back(type, std::move(members));
    } else {
      testing::UnrefAll(lock, ledger_, type, members);
    }
  }

  void LetGo(LedgerLock& lock) {
    if (held_.empty()) return;
    std::swap(held_[random_.Below(held_.size())], held_.back());
    testing::UnrefAll(lock, ledger_, held_.back().first, held_.back().second);
    held_.pop_back();
  }

  void End(LedgerLock& lock, size_t index) {
    std::swap(walkers_[index], walkers_.back());
    Walker& walker = walkers_.back();
    for (const auto& [at, page] : walker.own) ledger_.Unref(lock, c_.index.attention_pool, page);
    index_.Release(lock, &walker.lease);
    index_.ClosePath(lock, &walker.publish);
    walkers_.pop_back();
  }

  void Retain(LedgerLock& lock) {
    if (retentions_.size() > 2) {
      ledger_.Release(lock, std::move(retentions_.back()));
      retentions_.pop_back();
      return;
    }
    for (const auto& [path, members] : twin_) {
      if (!Offered(members.checkpoint) || random_.Below(3) != 0) continue;
      retentions_.push_back(ledger_.Retain(lock, members.checkpoint));
      return;
    }
  }

  void MakeRoom(LedgerLock& lock, int pool) {
    const PagePool& pages = ledger_.pool(pool);
    const uint32_t wanted = static_cast<uint32_t>(random_.Below(pages.total_pages() + 1));
    auto enough = [&] { return pages.free_pages() >= wanted; };
    const uint32_t to_be_had = pages.free_pages() + ledger_.cached_pages(pool);
    if (random_.Below(3) != 0) {
      highest_ = static_cast<EvictionRank>(random_.Below(kEvictionRanks));
      const bool made = index_.MakeRoomUpTo(lock, pool, highest_, enough);
      EXPECT_EQ(made, enough());
      return;
    }
    // All that is counted as cached can be had (N6).
    const bool made = index_.MakeRoom(lock, pool, enough);
    EXPECT_EQ(made, enough());
    EXPECT_EQ(made, wanted <= to_be_had) << "cached pages that nobody can have";
  }

  // ---- Comparing.

  // By the namespace that it hangs in, and where that begins.
  size_t ScopeOf(NodeId node) const {
    const PrefixTree& tree = index_.tree();
    while (!tree.at(node).has(PrefixTree::kNamespace)) node = NodeId(tree.at(node).parent);
    NodeId public_end(tree.at(node).parent);
    while (public_end != tree.root() && tree.at(public_end).has(PrefixTree::kNamespace)) {
      public_end = NodeId(tree.at(public_end).parent);
    }
    for (size_t scope = 0; scope < std::size(kScopes); ++scope) {
      const uint32_t begin = scope == 0 ? 0 : PublicTokensOf(scope);
      if (begin == tree.at(public_end).position &&
          tree.FindNamespace(public_end, c_.index.contract_id, kScopes[scope].salt) == node) {
        return scope;
      }
    }
    ADD_FAILURE() << "a namespace that nobody asked for";
    return 0;
  }

  Nodes Actual() const {
    Nodes nodes;
    const PrefixTree& tree = index_.tree();
    for (uint32_t i = 1; i < tree.capacity(); ++i) {
      const PrefixTree::Node& node = tree.at(NodeId(i));
      if (!node.has(PrefixTree::kAlive) || !node.has_member()) continue;
      Members members;
      if (node.block != PrefixTree::kNone) members.block = {EntryType::kBlock, node.block};
      if (node.checkpoint != PrefixTree::kNone) {
        members.checkpoint = {EntryType::kCheckpoint, node.checkpoint};
      }
      if (node.row != PrefixTree::kNone) members.row = {EntryType::kRow, node.row};
      nodes[{ScopeOf(NodeId(i)), index_.PrefixOf(NodeId(i), node.position)}] = members;
    }
    return nodes;
  }

  static void CountInto(const Ledger& ledger, const std::set<EntryId>& entries, EntryCounts* to) {
    for (const EntryId entry : entries) {
      const bool idle = ledger.idle(entry), retained = ledger.retentions(entry) > 0;
      ++(!idle ? to->held : retained ? to->retained : to->cached);
    }
  }
  static void ExpectSame(const EntryCounts& a, const EntryCounts& b) {
    EXPECT_EQ(a.pinned, b.pinned);
    EXPECT_EQ(a.held, b.held);
    EXPECT_EQ(a.retained, b.retained);
    EXPECT_EQ(a.cached, b.cached);
  }

  // From each boundary all the way up, every time.
  void CompareCensus(LedgerLock& lock) {
    const Nodes nodes = Actual();
    std::set<EntryId> blocks, checkpoints, rows, reusable;
    uint32_t reusable_checkpoints = 0;
    for (const auto& [path, members] : nodes) {
      if (members.block.valid()) blocks.insert(members.block);
      if (members.checkpoint.valid()) checkpoints.insert(members.checkpoint);
      if (members.row.valid()) rows.insert(members.row);
      if (!Offered(recurrent() ? members.checkpoint : members.block)) continue;
      std::set<EntryId> way;
      bool complete = true;
      const size_t tokens = path.second.size();
      for (size_t at = kGroupTokens; attention() && at < tokens + kGroupTokens;
           at += kGroupTokens) {
        const auto it = nodes.find(Prefix(path, std::min(at, tokens)));
        complete = complete && it != nodes.end() && Offered(it->second.block);
        if (complete) way.insert(it->second.block);
      }
      if (!complete) continue;
      reusable.insert(way.begin(), way.end());
      reusable_checkpoints += recurrent() ? 1 : 0;
    }
    EntryCounts expected[3];
    CountInto(ledger_, blocks, &expected[0]);
    CountInto(ledger_, checkpoints, &expected[1]);
    CountInto(ledger_, rows, &expected[2]);
    CensusPaper paper = index_.MakeCensusPaper();
    const PrefixCensus census = index_.Census(lock, &paper);
    ExpectSame(census.blocks, expected[0]);
    ExpectSame(census.checkpoints, expected[1]);
    ExpectSame(census.rows, expected[2]);
    EXPECT_EQ(census.reusable_blocks, reusable.size());
    EXPECT_EQ(census.reusable_checkpoints, reusable_checkpoints);
    orphans_ += census.blocks.total() - census.reusable_blocks + census.checkpoints.total() -
                census.reusable_checkpoints;
  }

  void Compare(LedgerLock& lock, bool evicts) {
    const Status valid = index_.Validate(lock, 3);
    EXPECT_TRUE(valid.ok()) << valid.ToString();
    const Status ledger = ledger_.Validate(lock, 3);
    EXPECT_TRUE(ledger.ok()) << ledger.ToString();
    if (random_.Below(8) == 0) CompareCensus(lock);  // slower than all the rest
    Nodes actual = Actual();
    if (!evicts) {
      EXPECT_TRUE(actual == twin_) << "what was published changed";
      return;
    }
    for (const auto& [path, members] : actual) {
      const auto it = twin_.find(path);
      const Members was = it == twin_.end() ? Members() : it->second;
      EXPECT_TRUE(!members.block.valid() || members.block == was.block);
      EXPECT_TRUE(!members.checkpoint.valid() || members.checkpoint == was.checkpoint);
      EXPECT_TRUE(!members.row.valid() || members.row == was.row);
    }
    for (const auto& [path, was] : twin_) {
      const auto it = actual.find(path);
      const Members is = it == actual.end() ? Members() : it->second;
      for (const auto& [before, after] :
           {std::pair(was.block, is.block), {was.checkpoint, is.checkpoint}, {was.row, is.row}}) {
        if (!before.valid() || after.valid()) continue;
        EXPECT_TRUE(before_idle_.contains(before)) << "something held was evicted";
        if (highest_ < EvictionRank::kRetained) {
          EXPECT_FALSE(before_retained_.contains(before)) << "something retained was displaced";
        }
      }
    }
    twin_ = std::move(actual);
  }

  const IndexCase& c_;
  Random random_;
  Ledger ledger_;
  PrefixIndex index_;
  Nodes twin_;
  std::vector<Walker> walkers_;
  std::vector<std::pair<EntryType, testing::Members>> held_;
  std::vector<Retention> retentions_;
  std::set<EntryId> before_idle_;
  std::set<EntryId> before_retained_;
  uint64_t orphans_ = 0;
  EvictionRank highest_ = EvictionRank::kRetained;  // that the operation may evict
};

TEST(PrefixIndexModel, FindsAndHoldsWhatATwinOfWholeTokenVectorsDoes) {
  const std::vector<IndexCase> cases = IndexCases();
  constexpr uint64_t kRounds = 5;
  const int operations = TESSERA_MODEL_OPERATIONS / static_cast<int>(kRounds * cases.size());
  for (uint64_t seed = 1; seed <= kRounds * cases.size(); ++seed) {
    const IndexCase& c = cases[seed % cases.size()];
    SCOPED_TRACE(c.name + ", seed " + std::to_string(seed));
    IndexTwin twin(c, seed);
    for (int i = 0; i < operations; ++i) {
      twin.Operation();
      if (::testing::Test::HasFailure()) {
        std::printf("%s, seed %llu, operation %d\n", c.name.c_str(),
                    static_cast<unsigned long long>(seed), i);
        return;
      }
    }
    EXPECT_GT(twin.hits(), 50u);
    EXPECT_GT(twin.evicted(), 50u);
    EXPECT_GT(twin.orphans(), 10u) << "nothing was without its partner: the census saw too little";
  }
}

}  // namespace
}  // namespace tessera
