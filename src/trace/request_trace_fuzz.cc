// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer over ParseRequestTrace: what is accepted keeps the invariants of the header. Built
// again with TESSERA_FUZZ_CANARY it claims that nothing parses, which is false: that build must
// crash, or the fuzzer is not looking.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "trace/request_trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(data), size_bytes);
  auto trace = tessera::ParseRequestTrace(text, "fuzz");
  if (!trace) {
    TESSERA_CHECK(trace.error().code() == tessera::StatusCode::kBadFile);
    TESSERA_CHECK(trace.error().message().find('\n') == std::string::npos);
    return 0;
  }
#ifdef TESSERA_FUZZ_CANARY
  TESSERA_CHECK(trace->requests.empty());
#endif
  for (const tessera::TraceRequest& request : trace->requests) {
    uint64_t ids = 0;
    for (const tessera::IdRange& range : trace->Ranges(request)) ids += range.size();
    const uint64_t full = trace->FullBlocks(request);
    const bool partial_has_id = trace->format == tessera::TraceFormat::kMooncake &&
                                request.input_tokens % trace->block_tokens != 0;
    const bool has_ids = trace->format != tessera::TraceFormat::kAzure;
    TESSERA_CHECK(ids == (has_ids ? full + (partial_has_id ? 1 : 0) : 0));
    TESSERA_CHECK(request.input_tokens <= tessera::kMaxTraceTokens);
    TESSERA_CHECK(request.id_space < trace->id_spaces);
  }
  TESSERA_CHECK(tessera::ReplayOrder(*trace, 2, 7).size() == trace->requests.size());
  return 0;
}
