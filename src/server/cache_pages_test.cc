// SPDX-License-Identifier: Apache-2.0
#include "server/cache_pages.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "server/server_fixture.h"

namespace tessera::testing {
namespace {

// A server's engine, for its tokenizer.
class CachePagesTest : public ServerTest {};

BoundaryInfo Entry(const Tokenizer& tokenizer, std::string_view text, bool salted) {
  BoundaryInfo entry;
  entry.prefix = tokenizer.Encode(text);
  entry.tokens = static_cast<uint32_t>(entry.prefix.size());
  entry.bytes = 4096;
  entry.salted = salted;
  return entry;
}

TEST(CachePages, EveryPageOfAPoolHasAnOwnerAndEveryTokenAReason) {
  EngineStats stats;
  PoolStats& pool = stats.store.pools.emplace_back();
  pool.name = "shared";
  pool.unit_bytes = 4 * kKiB;
  pool.total_pages = 63;
  pool.free_pages = 1;
  pool.cached_attention_pages = 2;
  pool.cached_state_pages = 32;
  pool.draining_pages = 4;
  pool.reserved_pages = 8;
  pool.held_attention_pages = 9;
  pool.held_state_pages = 7;
  ReuseStats& reuse = stats.store.reuse;
  reuse.prompt_tokens = 38;
  reuse.reused_tokens = 10;
  for (uint32_t reason = 0; reason < kComputeReasons; ++reason) {
    reuse.computed_tokens[reason] = reason + 1;
  }
  const Json json = Json::parse(CacheBody(stats, Organisation{}, EngineOptions{}));
  const Json& pages = json["pools"][0]["pages"];
  uint64_t owned = 0;
  for (const char* owner : {"free", "reserved", "held_attention", "held_state", "cached_attention",
                            "cached_state", "draining"}) {
    owned += pages[owner].get<uint64_t>();
  }
  EXPECT_EQ(owned, pages["total"]);
  const Json& written = json["reuse"];
  uint64_t tokens = written["reused_tokens"].get<uint64_t>();
  for (const auto& [reason, count] : written["computed_tokens"].items()) {
    tokens += count.get<uint64_t>();
  }
  EXPECT_EQ(written["computed_tokens"].size(), 7u);
  EXPECT_EQ(tokens, written["prompt_tokens"]);
  EXPECT_EQ(written["computed_tokens"]["no_checkpoint"], 4);
  EXPECT_EQ(json["policy"]["reuse"], true);
  EXPECT_EQ(json["policy"]["checkpoint_grid"], 1);
  EXPECT_EQ(json["policy"]["retention"], "off");
}

TEST_F(CachePagesTest, WhatWasKeptUnderASaltIsCountedAndNotShown) {
  const Tokenizer& tokenizer = engine_->tokenizer();
  const std::vector<BoundaryInfo> entries = {Entry(tokenizer, "Log of day 1.", false),
                                             Entry(tokenizer, "a secret of one tenant", true)};
  const std::string body = CacheEntriesBody(entries, 10, tokenizer);
  EXPECT_EQ(body.find("secret"), std::string::npos);
  const Json json = Json::parse(body);
  EXPECT_EQ(json["more"], false);
  const Json& open = json["entries"][0];
  EXPECT_EQ(open["salted"], false);
  EXPECT_EQ(open["text"], "Log of day 1.");
  EXPECT_EQ(open["first_tokens"], entries[0].prefix);
  const Json& salted = json["entries"][1];
  EXPECT_EQ(salted["salted"], true);
  EXPECT_EQ(salted["bytes"], 4096);
  EXPECT_TRUE(salted["text"].is_null());
  EXPECT_TRUE(salted["first_tokens"].is_null());
}

TEST_F(CachePagesTest, AnEntryThatEndsWithinACharacterIsUtf8AllTheSame) {
  const Tokenizer& tokenizer = engine_->tokenizer();
  BoundaryInfo entry = Entry(tokenizer, "\xE6\x97\xA5", false);
  ASSERT_GT(entry.prefix.size(), 1u);  // bytes: the model knows no Japanese
  entry.prefix.pop_back();
  const std::string body = CacheEntriesBody({&entry, 1}, 1, tokenizer);
  EXPECT_TRUE(Json::accept(body)) << body;
}

TEST_F(CachePagesTest, MoreSaysThatTheListIsCut) {
  const Tokenizer& tokenizer = engine_->tokenizer();
  const std::vector<BoundaryInfo> entries(3, Entry(tokenizer, "Log", false));
  EXPECT_EQ(Json::parse(CacheEntriesBody(entries, 3, tokenizer))["more"], false);
  const Json cut = Json::parse(CacheEntriesBody(entries, 2, tokenizer));
  EXPECT_EQ(cut["more"], true);
  EXPECT_EQ(cut["entries"].size(), 2u);
  EXPECT_TRUE(Json::parse(CacheEntriesBody({}, 2, tokenizer))["entries"].is_array());
}

TEST(CachePages, TheLimitIsAnIntegerInRangeAndTheOnlyParameter) {
  EXPECT_EQ(std::get<size_t>(ParseEntriesLimit({})), kEntriesDefault);
  EXPECT_EQ(std::get<size_t>(ParseEntriesLimit({{"limit", "1"}})), 1u);
  EXPECT_EQ(std::get<size_t>(ParseEntriesLimit({{"limit", "10000"}})), kEntriesMax);
  for (const char* bad : {"0", "-1", "10001", "", "x", "1x", " 1", "99999999999999999999"}) {
    const ApiResult<size_t> result = ParseEntriesLimit({{"limit", bad}});
    const auto* error = std::get_if<ApiError>(&result);
    ASSERT_NE(error, nullptr) << bad;
    EXPECT_EQ(error->param, "limit");
    EXPECT_NE(error->message.find("1 to 10000"), std::string::npos) << error->message;
  }
  const ApiResult<size_t> unknown = ParseEntriesLimit({{"page", "2"}});
  EXPECT_EQ(std::get<ApiError>(unknown).param, "page");
  EXPECT_EQ(std::get<ApiError>(unknown).code, "unknown_parameter");
}

}  // namespace
}  // namespace tessera::testing
