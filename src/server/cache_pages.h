// SPDX-License-Identifier: Apache-2.0
//
// The bodies of /cache: the ledger, what is kept for reuse, and what clearing did.
//
//   GET    /cache          where every byte of the budget is, how much of prompts was reused, and
//                          why the rest was not
//   GET    /cache/entries  what is kept: the boundaries somebody can start from
//   DELETE /cache          drops what no running request uses
//
// P1  A salt, and the tokens of what was kept under one, are in no body. That there is such an
//     entry, and its size, is: who may ask for the ledger answers for the memory.
//
// Threads: pure functions of their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "server/http_reply.h"

namespace tessera {

// Bytes by kind are those of running sequences, really written; pages are what holds them, so
// page_bytes · held pages − bytes is what rounding costs. Per pool: free + reserved + held + cached
// + draining = total.
std::string CacheBody(const EngineStats& stats, const Organisation& organisation,
                      const EngineOptions& options);

inline constexpr size_t kEntriesDefault = 100;
inline constexpr size_t kEntriesMax = 10'000;
inline constexpr size_t kEntryTokens = 32;  // of each: enough to know it by
// ?limit=N, 1 to kEntriesMax; any other parameter is refused by name.
ApiResult<size_t> ParseEntriesLimit(const HttpQuery& query);

// At most `limit` of `entries`; `more` says that there are others.
std::string CacheEntriesBody(std::span<const BoundaryInfo> entries, size_t limit,
                             const Tokenizer& tokenizer);

std::string CacheClearedBody(uint64_t entries_invalidated);

}  // namespace tessera
