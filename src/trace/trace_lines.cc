// SPDX-License-Identifier: Apache-2.0
#include "trace/trace_lines.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "trace/json_line.h"

namespace tessera {
namespace {

constexpr uint32_t kMooncakeBlock = 512;
constexpr uint32_t kAgenticBlock = 64;
constexpr uint32_t kCharsPerToken = 4;
constexpr std::string_view kAzureHeader = "t_s,input_tokens,output_tokens";

std::optional<TraceFormat> FormatOf(std::string_view first_line) {
  if (first_line.starts_with("t_s")) return TraceFormat::kAzure;
  const Json json = Json::parse(first_line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  if (json.contains("hash_ids")) return TraceFormat::kMooncake;
  if (json.contains("in_chars")) return TraceFormat::kAgents;
  if (json.contains("in") && json.contains("b")) return TraceFormat::kAgentic;
  return std::nullopt;
}

// Collects requests of one format, line by line.
class TraceParser {
 public:
  TraceParser(const std::string& name, TraceFormat format) {
    trace_.name = name;
    trace_.format = format;
    trace_.block_tokens = format == TraceFormat::kMooncake ? kMooncakeBlock : kAgenticBlock;
    if (format == TraceFormat::kAzure) trace_.block_tokens = 1;
    trace_.id_spaces = format == TraceFormat::kAgentic ? 0 : 1;
  }

  void Add(JsonLine* line, std::string_view text) {
    if (trace_.format == TraceFormat::kAzure) return AddAzure(line, text);
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) return line->Fail("line", "one JSON object", QuoteFound(text));
    TraceRequest request;
    request.first_range = static_cast<uint32_t>(trace_.ranges.size());
    switch (trace_.format) {
      case TraceFormat::kMooncake:
        AddMooncake(line, json, &request);
        break;
      case TraceFormat::kAgentic:
        AddAgentic(line, json, &request);
        break;
      case TraceFormat::kAgents:
        AddAgents(line, json, &request);
        break;
      case TraceFormat::kAzure:
        break;
    }
    request.range_count = static_cast<uint32_t>(trace_.ranges.size()) - request.first_range;
    trace_.requests.push_back(request);
  }

  RequestTrace Take() && { return std::move(trace_); }

 private:
  void AddMooncake(JsonLine* line, const Json& json, TraceRequest* request) {
    request->session = static_cast<uint32_t>(trace_.requests.size());
    request->arrival_ms = line->Time(json, "timestamp", 1);
    request->input_tokens = line->Whole(json, "input_length", kMaxTraceTokens);
    request->output_tokens = line->Whole(json, "output_length", kMaxTraceTokens);
    const std::vector<uint64_t> ids = line->Ids(json, "hash_ids");
    const uint64_t blocks = (request->input_tokens + kMooncakeBlock - 1) / kMooncakeBlock;
    if (ids.size() != blocks) {
      line->Fail("hash_ids",
                 fmt::format("{} ids for an input of {} tokens", blocks, request->input_tokens),
                 std::to_string(ids.size()));
    }
    for (const uint64_t id : ids) AddRange(id, id, request->first_range);
  }

  void AddAgentic(JsonLine* line, const Json& json, TraceRequest* request) {
    AddSession(line, json, request);
    request->arrival_ms = line->Time(json, "t", 1000);
    request->input_tokens = line->Whole(json, "in", kMaxTraceTokens);
    request->output_tokens = line->Whole(json, "out", kMaxTraceTokens);
    AddRanges(line, json, request);
  }

  void AddAgents(JsonLine* line, const Json& json, TraceRequest* request) {
    AddSession(line, json, request);
    request->arrival_ms = line->Time(json, "t", 1000);
    constexpr uint64_t most = kMaxTraceTokens * kCharsPerToken;
    request->input_tokens = line->Whole(json, "in_chars", most) / kCharsPerToken;
    request->output_tokens = line->Whole(json, "out_chars", most) / kCharsPerToken;
    AddRanges(line, json, request);
  }

  void AddAzure(JsonLine* line, std::string_view text) {
    if (trace_.requests.empty() && text == kAzureHeader) return;
    TraceRequest request;
    request.session = static_cast<uint32_t>(trace_.requests.size());
    const size_t first = text.find(',');
    const size_t second = first == text.npos ? text.npos : text.find(',', first + 1);
    if (second == text.npos) return line->Fail("line", kAzureHeader, QuoteFound(text));
    request.arrival_ms = 1000 * CsvNumber(line, "t_s", text.substr(0, first), 1e12, false);
    request.input_tokens = static_cast<uint64_t>(
        CsvNumber(line, "input_tokens", text.substr(first + 1, second - first - 1),
                  static_cast<double>(kMaxTraceTokens), true));
    request.output_tokens =
        static_cast<uint64_t>(CsvNumber(line, "output_tokens", text.substr(second + 1),
                                        static_cast<double>(kMaxTraceTokens), true));
    trace_.requests.push_back(request);
  }

  static double CsvNumber(JsonLine* line, std::string_view field, std::string_view text,
                          double most, bool whole) {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool number = error == std::errc() && end == text.data() + text.size();
    if (number && value >= 0 && value <= most && (!whole || value == std::floor(value))) {
      return value;
    }
    line->Fail(field, fmt::format("a {}number from 0 to {:.0f}", whole ? "whole " : "", most),
               QuoteFound(text));
    return 0;
  }

  // A session is known by its first line. A sub-agent shares its parent's ids and clock.
  void AddSession(JsonLine* line, const Json& json, TraceRequest* request) {
    const std::string name = line->Text(json, "s");
    request->index =
        static_cast<uint32_t>(line->Whole(json, "i", std::numeric_limits<uint32_t>::max()));
    if (!line->ok()) return;
    const auto [entry, is_new] =
        sessions_.try_emplace(name, Session{static_cast<uint32_t>(sessions_.size()), 0});
    if (is_new) {
      trace_.session_names.push_back(name);
      entry->second.id_space = SpaceOf(line, json);
    }
    request->session = entry->second.number;
    request->id_space = entry->second.id_space;
  }

  uint32_t SpaceOf(JsonLine* line, const Json& json) {
    if (trace_.format != TraceFormat::kAgentic) return 0;
    const auto parent = json.find("parent");
    if (parent == json.end() || parent->is_null()) return trace_.id_spaces++;
    if (!parent->is_array() || parent->empty() || !(*parent)[0].is_string()) {
      line->Fail("parent", "[session, index]", QuoteJson(*parent));
      return 0;
    }
    const auto found = sessions_.find((*parent)[0].get<std::string>());
    if (found == sessions_.end() || found->second.number + 1 == sessions_.size()) {
      line->Fail("parent", "a session of an earlier line", QuoteJson((*parent)[0]));
      return 0;
    }
    return found->second.id_space;
  }

  void AddRanges(JsonLine* line, const Json& json, TraceRequest* request) {
    const std::vector<uint64_t> bounds = line->Ids(json, "b");
    if (bounds.size() % 2 != 0) {
      return line->Fail("b", "pairs of first and last", fmt::format("{} numbers", bounds.size()));
    }
    const uint64_t blocks = request->input_tokens / kAgenticBlock;
    uint64_t ids = 0;
    for (size_t i = 0; i < bounds.size(); i += 2) {
      if (bounds[i] > bounds[i + 1]) {
        return line->Fail("b", "ranges that go up",
                          fmt::format("{} to {}", bounds[i], bounds[i + 1]));
      }
      ids += bounds[i + 1] - bounds[i] + 1;
      if (ids > blocks) break;  // before a sum of ranges could overflow
      AddRange(bounds[i], bounds[i + 1], request->first_range);
    }
    if (ids != blocks) {
      line->Fail("b",
                 fmt::format("{} ids for an input of {} tokens", blocks, request->input_tokens),
                 ids > blocks ? "more" : std::to_string(ids));
    }
  }

  // Appends to the last range of the same request where it continues it.
  void AddRange(uint64_t first, uint64_t last, uint32_t first_range) {
    std::vector<IdRange>& ranges = trace_.ranges;
    if (ranges.size() > first_range && ranges.back().last + 1 == first) {
      ranges.back().last = last;
    } else {
      ranges.push_back({first, last});
    }
  }

  struct Session {
    uint32_t number;
    uint32_t id_space;
  };
  RequestTrace trace_;
  std::unordered_map<std::string, Session> sessions_;
};

}  // namespace

Result<RequestTrace> ParseTraceLines(std::string_view text, const std::string& name,
                                     std::optional<TraceFormat> format) {
  std::optional<TraceParser> parser;
  uint64_t number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view row = text.substr(0, end);
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    ++number;
    if (row.ends_with('\r')) row.remove_suffix(1);
    if (row.find_first_not_of(" \t") == row.npos) continue;
    JsonLine line(name, number);
    if (!parser) {
      if (!format) format = FormatOf(row);
      if (!format) {
        line.Fail("line", "a trace of the formats mooncake, agentic, agents or azure",
                  QuoteFound(row));
        return line.status();
      }
      parser.emplace(name, *format);
    }
    parser->Add(&line, row);
    if (!line.ok()) return line.status();
  }
  if (!parser) return BadFile(fmt::format("{}: expected requests, found no line", name));
  RequestTrace trace = std::move(*parser).Take();
  if (trace.requests.empty()) {
    return BadFile(fmt::format("{}: expected requests, found a header only", name));
  }
  return trace;
}

}  // namespace tessera
