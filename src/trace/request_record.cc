// SPDX-License-Identifier: Apache-2.0
#include "trace/request_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "trace/json_line.h"

namespace tessera {
namespace {

constexpr uint64_t kSchema = 1;
constexpr uint64_t kMaxTokens = std::numeric_limits<uint32_t>::max();
// Whole numbers that a double, what most readers of JSON have, holds exactly.
constexpr uint64_t kMaxWhole = uint64_t{1} << 53;

using Ordered = nlohmann::ordered_json;

Ordered SupplyJson(const SupplyRecord& supply) {
  Ordered computed = Ordered::array();
  for (const RecordedRange& range : supply.computed) {
    computed.push_back({{"from", range.from}, {"to", range.to}, {"reason", range.reason}});
  }
  return {{"a_max", supply.attention},         {"r_max", supply.recurrent},
          {"j_adopt", supply.adopted},         {"gap_r", supply.recurrent - supply.adopted},
          {"diverged_at", supply.diverged_at}, {"from_row", supply.from_row},
          {"computed", std::move(computed)}};
}

uint32_t Tokens(JsonLine* line, const Json& json, const char* field) {
  return static_cast<uint32_t>(line->Whole(json, field, kMaxTokens));
}

uint64_t ReadReceipt(JsonLine* line, const Json& json) {
  const std::string text = line->Text(json, "receipt");
  uint64_t receipt = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), receipt, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) {
    line->Fail("receipt", "16 hex digits", QuoteFound(text));
  }
  return receipt;
}

std::vector<RecordedRange> ReadRanges(JsonLine* line, const Json& json) {
  std::vector<RecordedRange> ranges;
  const Json* array = line->Field(json, "computed");
  if (array == nullptr) return ranges;
  if (!array->is_array()) line->Fail("computed", "an array", QuoteJson(*array));
  for (const Json& one : *array) {
    if (!one.is_object()) line->Fail("computed", "ranges", QuoteJson(one));
    if (!line->ok()) return {};
    ranges.push_back(
        {Tokens(line, one, "from"), Tokens(line, one, "to"), line->Text(one, "reason")});
  }
  return ranges;
}

// From `begin` on, each where the last ended, up to `end`.
void CheckRanges(JsonLine* line, const std::vector<RecordedRange>& ranges, uint32_t begin,
                 uint32_t end) {
  uint32_t at = begin;
  for (const RecordedRange& range : ranges) {
    if (range.from != at || range.to <= at) {
      line->Fail("computed", fmt::format("a range from {}", at),
                 fmt::format("[{}, {})", range.from, range.to));
      return;
    }
    at = range.to;
  }
  if (at != end) {
    line->Fail("computed", fmt::format("ranges up to prompt_tokens, {}", end), std::to_string(at));
  }
}

SupplyRecord ReadSupply(JsonLine* line, const Json& json, uint32_t prompt_tokens) {
  SupplyRecord supply;
  supply.attention = Tokens(line, json, "a_max");
  supply.recurrent = Tokens(line, json, "r_max");
  supply.adopted = Tokens(line, json, "j_adopt");
  supply.diverged_at = Tokens(line, json, "diverged_at");
  supply.from_row = line->Flag(json, "from_row");
  supply.computed = ReadRanges(line, json);
  const uint32_t gap = Tokens(line, json, "gap_r");
  if (!line->ok()) return supply;
  if (supply.adopted > supply.recurrent || gap != supply.recurrent - supply.adopted) {
    line->Fail("gap_r", "r_max - j_adopt", std::to_string(gap));
  }
  CheckRanges(line, supply.computed, supply.adopted, prompt_tokens);
  return supply;
}

}  // namespace

std::string WriteRequestRecord(const RequestRecord& record) {
  Ordered json = {{"schema", kSchema},
                  {"id", record.id},
                  {"ended", record.ended},
                  {"model", record.model},
                  {"prompt_tokens", record.prompt_tokens},
                  {"max_tokens", record.max_tokens},
                  {"completion_tokens", record.completion_tokens},
                  {"finish", record.finish}};
  if (!record.error.empty()) json["error"] = record.error;
  json["salted"] = record.salted;
  if (record.supply) json["supply"] = SupplyJson(*record.supply);
  json["queue_ms"] = record.queue_ms;
  json["prefill_ms"] = record.prefill_ms;
  json["decode_ms"] = record.decode_ms;
  json["receipt"] = fmt::format("{:016x}", record.receipt);
  // A model's name may be any bytes.
  return json.dump(-1, ' ', false, Ordered::error_handler_t::replace);
}

Result<RequestRecord> ParseRequestRecord(std::string_view text, const std::string& name,
                                         uint64_t number) {
  JsonLine line(name, number);
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) line.Fail("line", "one JSON object", QuoteFound(text));
  const uint64_t schema = line.Whole(json, "schema", kMaxWhole);
  if (schema != kSchema) line.Fail("schema", std::to_string(kSchema), std::to_string(schema));
  RequestRecord record;
  record.id = line.Whole(json, "id", kMaxWhole);
  record.ended = line.Time(json, "ended", 1);
  record.model = line.Text(json, "model");
  record.prompt_tokens = Tokens(&line, json, "prompt_tokens");
  record.max_tokens = Tokens(&line, json, "max_tokens");
  record.completion_tokens = Tokens(&line, json, "completion_tokens");
  record.finish = line.Text(json, "finish");
  if (json.is_object() && json.contains("error")) record.error = line.Text(json, "error");
  record.salted = line.Flag(json, "salted");
  if (json.is_object() && json.contains("supply")) {
    const Json& supply = json["supply"];
    if (!supply.is_object()) line.Fail("supply", "an object", QuoteJson(supply));
    record.supply = ReadSupply(&line, supply, record.prompt_tokens);
  }
  record.queue_ms = line.Time(json, "queue_ms", 1);
  record.prefill_ms = line.Time(json, "prefill_ms", 1);
  record.decode_ms = line.Time(json, "decode_ms", 1);
  record.receipt = ReadReceipt(&line, json);
  if (!line.ok()) return line.status();
  return record;
}

}  // namespace tessera
