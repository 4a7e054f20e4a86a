// SPDX-License-Identifier: Apache-2.0
//
// RequestTrace is a recorded load: when requests came, how long they were, and which blocks of
// their prompts were equal. It has no text and no tokens; trace/trace_tokens.h makes tokens whose
// prefixes are equal exactly where the trace says so. Four line formats are read:
//
//   mooncake  {"timestamp":ms,"input_length":n,"output_length":m,"hash_ids":[id,...]}
//             blocks of 512 tokens, ceil(n / 512) ids: the partial last block has one too
//   agentic   {"s":session,"i":index,"t":s,"in":n,"out":m,"b":[first,last,...],"parent":[s,i]}
//             blocks of 64 tokens, floor(n / 64) ids in inclusive ranges; ids are one session's
//             and its sub-agents', which name their parent in their first line
//   agents    {"s":session,"i":index,"t":s,"in_chars":n,"out_chars":m,"b":[first,last,...]}
//             blocks of 256 characters, counted as 64 tokens of 4; ids are the file's
//   azure     t_s,input_tokens,output_tokens after a header line of these names; no ids
//
// An id names the whole prefix up to and including its block, so prompts are equal up to the end
// of the leading blocks whose ids are equal. Fields that are not named above are ignored.
//
// Invariants of a value that was read:
//   1. the ids of a request number FullBlocks(), and one more for a partial block that has an id;
//   2. lengths are at most kMaxTraceTokens, so nothing that is computed from them overflows;
//   3. requests are in the order of the file.
//
// Failure: kBadFile naming path:line, the field, what was expected and what was found; kIo.
// Threads: a value.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace tessera {

enum class TraceFormat { kMooncake, kAgentic, kAgents, kAzure };

std::optional<TraceFormat> ParseTraceFormat(std::string_view name);
std::string_view TraceFormatName(TraceFormat format);

constexpr uint64_t kMaxTraceTokens = uint64_t{1} << 24;  // of one prompt or answer

// Inclusive, so that a range is never empty.
struct IdRange {
  uint64_t first = 0;
  uint64_t last = 0;
  uint64_t size() const { return last - first + 1; }
};

struct TraceRequest {
  uint32_t session = 0;   // a number of its own for every session, or request that has none
  uint32_t id_space = 0;  // ids are equal only inside one
  uint32_t index = 0;     // in its session
  double arrival_ms = 0;  // agentic: since the start of its session
  uint64_t input_tokens = 0;
  uint64_t output_tokens = 0;
  uint32_t first_range = 0;
  uint32_t range_count = 0;
};

struct RequestTrace {
  std::string name;  // the file's, without its folder
  TraceFormat format = TraceFormat::kMooncake;
  uint32_t block_tokens = 1;
  std::vector<std::string> session_names;  // by TraceRequest::session; empty where none have names
  std::vector<TraceRequest> requests;
  std::vector<IdRange> ranges;
  uint32_t id_spaces = 0;

  std::span<const IdRange> Ranges(const TraceRequest& request) const {
    return std::span(ranges).subspan(request.first_range, request.range_count);
  }
  uint64_t FullBlocks(const TraceRequest& request) const;
  uint64_t InputTokens() const;
};

// The format is what the first line looks like unless it is given.
Result<RequestTrace> ReadRequestTrace(const std::string& path,
                                      std::optional<TraceFormat> format = std::nullopt);
// `name` stands in messages and in the result.
Result<RequestTrace> ParseRequestTrace(std::string_view text, const std::string& name,
                                       std::optional<TraceFormat> format = std::nullopt);

// Divides all lengths and the block by one factor, so that a small model meets the same reuse.
// kInvalidArgument when the factor does not divide the block.
Result<RequestTrace> ShrinkTrace(RequestTrace trace, uint32_t factor);

// The order in which a trace is replayed, as indices of requests: that of the file, except that
// the requests of an agentic session and its sub-agents are merged by time. With `at_once` > 0,
// id spaces are taken by so many at a time: each step draws one of them at random by `seed`, and
// one that is done makes room for the next of the file.
std::vector<uint32_t> ReplayOrder(const RequestTrace& trace, uint32_t at_once = 0,
                                  uint64_t seed = 0);

}  // namespace tessera
