// SPDX-License-Identifier: Apache-2.0
#include "cli/cache_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "cli/memory_report.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kTextCharacters = 48;

void Read(const Json& object, const char* name, auto* out) { object.at(name).get_to(*out); }

PoolStats ReadPool(const Json& json) {
  PoolStats pool;
  Read(json, "name", &pool.name);
  Read(json, "page_bytes", &pool.unit_bytes);
  const Json& pages = json.at("pages");
  Read(pages, "total", &pool.total_pages);
  Read(pages, "free", &pool.free_pages);
  Read(pages, "cached_attention", &pool.cached_attention_pages);
  Read(pages, "cached_state", &pool.cached_state_pages);
  Read(pages, "draining", &pool.draining_pages);
  Read(pages, "reserved", &pool.reserved_pages);
  Read(pages, "held_attention", &pool.held_attention_pages);
  Read(pages, "held_state", &pool.held_state_pages);
  return pool;
}

ReuseStats ReadReuse(const Json& kept, const Json& reuse) {
  ReuseStats stats;
  Read(kept, "checkpoints", &stats.checkpoints);
  Read(kept, "blocks", &stats.blocks);
  Read(kept, "rows", &stats.rows);
  Read(kept, "row_capacity", &stats.row_capacity);
  Read(kept, "published_checkpoints", &stats.published_checkpoints);
  Read(kept, "skipped_checkpoints", &stats.skipped_checkpoints);
  Read(kept, "evicted_checkpoints", &stats.evicted_checkpoints);
  Read(kept, "evicted_blocks", &stats.evicted_blocks);
  Read(kept, "evicted_rows", &stats.evicted_rows);
  Read(reuse, "lookups", &stats.lookups);
  Read(reuse, "hits", &stats.hits);
  Read(reuse, "prompt_tokens", &stats.prompt_tokens);
  Read(reuse, "reused_tokens", &stats.reused_tokens);
  Read(reuse, "attention_tokens", &stats.attention_tokens);
  Read(reuse, "recurrent_tokens", &stats.recurrent_tokens);
  for (int i = 0; i < kComputeReasons; ++i) {
    const std::string name(ComputeReasonName(static_cast<ComputeReason>(i)));
    Read(reuse.at("computed_tokens"), name.c_str(), &stats.computed_tokens[i]);
  }
  return stats;
}

StoreStats ReadStore(const Json& json) {
  StoreStats store;
  for (const Json& pool : json.at("pools")) store.pools.push_back(ReadPool(pool));
  const Json& kinds = json.at("kinds");
  Read(kinds.at("attention"), "bytes", &store.attention_bytes);
  Read(kinds.at("ssm"), "bytes", &store.ssm_bytes);
  Read(kinds.at("conv"), "bytes", &store.conv_bytes);
  Read(json, "sequences", &store.sequences);
  store.reuse = ReadReuse(json.at("kept"), json.at("reuse"));
  return store;
}

std::string PolicyLine(const Json& policy) {
  return fmt::format(
      "policy       reuse {}, checkpoint grid {}, placement {}, eviction {}, retention {}, isolate "
      "{}\n",
      policy.at("reuse").get<bool>() ? "on" : "off", policy.at("checkpoint_grid").get<uint32_t>(),
      policy.at("placement").get<std::string>(), policy.at("eviction").get<std::string>(),
      policy.at("retention").get<std::string>(), policy.at("isolate").get<std::string>());
}

std::string Ledger(const Json& json) {
  std::string text = fmt::format("budget       {} in organisation {}\n",
                                 FormatBytes(json.at("budget_bytes").get<uint64_t>()),
                                 json.at("organisation").get<std::string>());
  text += PolicyLine(json.at("policy"));
  return text + DescribeStore(ReadStore(json));
}

// The beginning of a text, in quotes, on one line. A JSON string escapes the controls of ASCII;
// those of U+0080 to U+009F are commands to some terminals too.
std::string Quoted(const std::string& text) {
  size_t end = 0;
  for (size_t characters = 0; end < text.size() && characters < kTextCharacters; ++characters) {
    ++end;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
  }
  const std::string json =
      Json(text.substr(0, end)).dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string quoted;
  for (size_t i = 0; i < json.size(); ++i) {
    const auto next = i + 1 < json.size() ? static_cast<unsigned char>(json[i + 1]) : 0u;
    if (json[i] == '\x7f') {
      quoted += "\\u007f";
    } else if (json[i] == '\xC2' && next >= 0x80 && next < 0xA0) {
      quoted += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      quoted += json[i];
    }
  }
  return quoted + (end < text.size() ? "…" : "");
}

std::string Marks(const Json& entry) {
  std::string marks;
  for (const char* mark : {"row", "held", "pinned", "retained", "spare", "salted"}) {
    if (entry.at(mark).get<bool>()) marks += fmt::format("{}{}", marks.empty() ? "" : ",", mark);
  }
  return marks.empty() ? "-" : marks;
}

std::string EntryLine(const Json& entry) {
  const Json& text = entry.at("text");
  return fmt::format("{:>9} {:>12} {:>7} {:>16}  {:<12} {}\n", entry.at("tokens").get<uint64_t>(),
                     FormatBytes(entry.at("bytes").get<uint64_t>()),
                     entry.at("hits").get<uint64_t>(),
                     entry.at("lookups_since_use").get<uint64_t>(), Marks(entry),
                     text.is_null() ? "(not shown)" : Quoted(text.get<std::string>()));
}

std::string Entries(const Json& json) {
  const Json& entries = json.at("entries");
  if (entries.empty()) return "nothing is kept\n";
  std::string text = fmt::format("{:>9} {:>12} {:>7} {:>16}  {:<12} {}\n", "tokens", "checkpoint",
                                 "hits", "look-ups since", "marks", "begins with");
  for (const Json& entry : entries) text += EntryLine(entry);
  if (json.at("more").get<bool>()) text += "… and more; --limit N shows them\n";
  return text;
}

std::string Clearing(const Json& json) {
  return fmt::format("{} entries dropped\n", json.at("entries_invalidated").get<uint64_t>());
}

// The library throws what it does not find.
template <typename Describe>
Result<std::string> FromJson(std::string_view body, Describe describe) {
  try {
    return describe(Json::parse(body));
  } catch (const Json::exception& error) {
    return IoError(
        fmt::format("the answer is not of this version of tessera serve: {}", error.what()));
  }
}

}  // namespace

Result<std::string> DescribeLedger(std::string_view body) { return FromJson(body, Ledger); }
Result<std::string> DescribeEntries(std::string_view body) { return FromJson(body, Entries); }
Result<std::string> DescribeClearing(std::string_view body) { return FromJson(body, Clearing); }

}  // namespace tessera::cli
