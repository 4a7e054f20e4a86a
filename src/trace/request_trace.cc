// SPDX-License-Identifier: Apache-2.0
#include "trace/request_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/random.h"
#include "trace/trace_lines.h"

namespace tessera {
namespace {

struct NamedFormat {
  TraceFormat format;
  std::string_view name;
};
constexpr NamedFormat kFormats[] = {{TraceFormat::kMooncake, "mooncake"},
                                    {TraceFormat::kAgentic, "agentic"},
                                    {TraceFormat::kAgents, "agents"},
                                    {TraceFormat::kAzure, "azure"}};

// Requests of each id space: merged by time for agentic traces, where each space has a clock of
// its own; in file order otherwise.
std::vector<std::deque<uint32_t>> RequestsBySpace(const RequestTrace& trace) {
  std::vector<std::vector<uint32_t>> spaces(trace.id_spaces);
  for (uint32_t i = 0; i < trace.requests.size(); ++i) {
    spaces[trace.requests[i].id_space].push_back(i);
  }
  std::vector<std::deque<uint32_t>> queues;
  queues.reserve(spaces.size());
  for (std::vector<uint32_t>& space : spaces) {
    if (trace.format == TraceFormat::kAgentic) {
      std::stable_sort(space.begin(), space.end(), [&](uint32_t a, uint32_t b) {
        return trace.requests[a].arrival_ms < trace.requests[b].arrival_ms;
      });
    }
    queues.emplace_back(space.begin(), space.end());
  }
  return queues;
}

}  // namespace

std::optional<TraceFormat> ParseTraceFormat(std::string_view name) {
  for (const NamedFormat& f : kFormats) {
    if (f.name == name) return f.format;
  }
  return std::nullopt;
}

std::string_view TraceFormatName(TraceFormat format) {
  for (const NamedFormat& f : kFormats) {
    if (f.format == format) return f.name;
  }
  return "unknown";
}

uint64_t RequestTrace::FullBlocks(const TraceRequest& request) const {
  return request.input_tokens / block_tokens;
}

uint64_t RequestTrace::InputTokens() const {
  uint64_t sum = 0;
  for (const TraceRequest& request : requests) sum += request.input_tokens;
  return sum;
}

Result<RequestTrace> ReadRequestTrace(const std::string& path, std::optional<TraceFormat> format) {
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) {
    return BadFile(fmt::format("{}: expected a trace, found a directory", path));
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return IoError(fmt::format("{}: {}", path, std::strerror(errno)));
  std::ostringstream text;
  text << file.rdbuf();
  if (file.bad()) return IoError(fmt::format("{}: {}", path, std::strerror(errno)));
  TESSERA_ASSIGN_OR_RETURN(RequestTrace trace, ParseRequestTrace(text.str(), path, format));
  trace.name = std::filesystem::path(path).filename().string();
  return trace;
}

Result<RequestTrace> ParseRequestTrace(std::string_view text, const std::string& name,
                                       std::optional<TraceFormat> format) {
  return ParseTraceLines(text, name, format);
}

Result<RequestTrace> ShrinkTrace(RequestTrace trace, uint32_t factor) {
  if (factor == 0 || trace.block_tokens % factor != 0) {
    return InvalidArgument(
        fmt::format("{}: expected a factor that divides its block of {} tokens, "
                    "found {}",
                    trace.name, trace.block_tokens, factor));
  }
  // floor(floor(n / f) / (block / f)) = floor(n / block): full blocks stay as many as they were,
  // but a partial block of fewer than f tokens vanishes, and its id with it.
  trace.block_tokens /= factor;
  for (TraceRequest& request : trace.requests) {
    request.input_tokens /= factor;
    request.output_tokens /= factor;
  }
  return trace;
}

std::vector<uint32_t> ReplayOrder(const RequestTrace& trace, uint32_t at_once, uint64_t seed) {
  std::vector<std::deque<uint32_t>> waiting = RequestsBySpace(trace);
  std::vector<uint32_t> order;
  order.reserve(trace.requests.size());
  if (at_once == 0) {
    for (const std::deque<uint32_t>& space : waiting) {
      order.insert(order.end(), space.begin(), space.end());
    }
    return order;
  }
  Random random(seed);
  std::vector<std::deque<uint32_t>> running;
  auto next = waiting.begin();
  for (;;) {
    while (running.size() < at_once && next != waiting.end()) running.push_back(std::move(*next++));
    if (running.empty()) return order;
    const size_t drawn = random.Below(running.size());
    order.push_back(running[drawn].front());
    running[drawn].pop_front();
    if (running[drawn].empty()) running.erase(running.begin() + static_cast<ptrdiff_t>(drawn));
  }
}

}  // namespace tessera
