// SPDX-License-Identifier: Apache-2.0
#include "server/activity_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "port/clock.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

// A fragmented pool has a run a page, 10^5 of them perhaps: written as text, not built as a tree.
void AppendRun(const PageRun& run, std::string* out) {
  if (run.content == PageContent::kNone) {
    fmt::format_to(std::back_inserter(*out), "[{},\"{}\"]", run.pages, PageUseName(run.use));
    return;
  }
  if (run.content == PageContent::kSlab) {
    fmt::format_to(std::back_inserter(*out), "[{},\"{}\",\"slab\",null,null,{},{},0]", run.pages,
                   PageUseName(run.use), run.begin, run.end);
    return;
  }
  fmt::format_to(std::back_inserter(*out), "[{},\"{}\",\"{}\",\"{}\",{},{},{},{}]", run.pages,
                 PageUseName(run.use), PageContentName(run.content),
                 run.findable ? "entry" : "request", run.owner, run.begin, run.end, run.sharers);
}

std::string_view FinishName(FinishReason finish) {
  switch (finish) {
    case FinishReason::kNone:
    case FinishReason::kRefused:  // not on the board
      break;
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
    case FinishReason::kError:
      return "error";
  }
  return "";
}

std::string_view PhaseName(const FinishedRequest& request) {
  if (request.finish != FinishReason::kNone) return "ended";
  if (!request.admitted) return "queued";
  return request.completion_tokens == 0 ? "prefill" : "decode";
}

// With what the running phase took so far, by the same clock.
RequestTimings TimingsSoFar(const RequestProgress& request, uint64_t now_ns) {
  RequestTimings timings = request.summary.timings;
  if (request.summary.finish != FinishReason::kNone) return timings;
  const double age_ms = now_ns > request.submitted_ns ? NsToMs(now_ns - request.submitted_ns) : 0;
  if (!request.summary.admitted) {
    timings.queue_ms = age_ms;
  } else if (request.summary.completion_tokens == 0) {
    timings.prompt_ms = std::max(0.0, age_ms - timings.queue_ms);
  } else {
    timings.predicted_ms = std::max(0.0, age_ms - timings.queue_ms - timings.prompt_ms);
  }
  return timings;
}

Json RequestJson(const RequestProgress& request, uint64_t now_ns) {
  const FinishedRequest& summary = request.summary;
  const RequestTimings timings = TimingsSoFar(request, now_ns);
  Json json = {{"id", summary.id.index()},
               {"phase", PhaseName(summary)},
               {"submitted_ms_ago", NsToMs(now_ns - std::min(now_ns, request.submitted_ns))},
               {"queue_ms", timings.queue_ms},
               {"prefill_ms", timings.prompt_ms},
               {"decode_ms", timings.predicted_ms},
               {"prompt_tokens", summary.prompt_tokens},
               {"cached_tokens", summary.admitted ? summary.match.reused : 0},
               {"prompt_done", std::min(request.computed, summary.prompt_tokens)},
               {"completion_tokens", summary.completion_tokens},
               {"max_tokens", summary.max_tokens},
               {"from_row", summary.admitted && summary.match.from_row},
               {"salted", summary.salted}};
  Json computed = Json::array();
  for (uint32_t i = 0; summary.admitted && i < summary.match.computed_count; ++i) {
    const ComputedRange& range = summary.match.computed[i];
    computed.push_back(
        {{"from", range.begin}, {"to", range.end}, {"reason", ComputeReasonName(range.reason)}});
  }
  json["computed"] = std::move(computed);
  const bool ended = summary.finish != FinishReason::kNone;
  json["finish"] = ended ? Json(FinishName(summary.finish)) : Json(nullptr);
  return json;
}

Json KindJson(const HoldCounts& counts, uint64_t object_bytes) {
  return {{"object_bytes", object_bytes}, {"live", counts.live},         {"held", counts.held},
          {"pinned", counts.pinned},      {"retained", counts.retained}, {"cached", counts.cached}};
}

Json KindsJson(const StoreCensus& census) {
  return {{"attention", KindJson(census.blocks, census.block_bytes)},
          {"ssm", KindJson(census.images, census.ssm_bytes)},
          {"conv", KindJson(census.images, census.conv_bytes)},
          {"row", KindJson(census.rows, census.row_bytes)}};
}

}  // namespace

std::string PagesBody(std::span<const PoolPageMap> pools, const StoreCensus& census) {
  std::string body = fmt::format(
      R"({{"kinds":{},"columns":["pages","use","content","owner","id","from","to","sharers"],)"
      R"("pools":[)",
      KindsJson(census).dump());
  for (size_t i = 0; i < pools.size(); ++i) {
    fmt::format_to(std::back_inserter(body), R"({}{{"name":{},"page_bytes":{},"pages":{},"runs":[)",
                   i > 0 ? "," : "", Json(pools[i].name).dump(), pools[i].page_bytes,
                   pools[i].pages);
    for (size_t run = 0; run < pools[i].runs.size(); ++run) {
      if (run > 0) body += ',';
      AppendRun(pools[i].runs[run], &body);
    }
    body += "]}";
  }
  return body + "]}";
}

std::string RequestsBody(const RequestList& list) {
  Json live = Json::array();
  Json ended = Json::array();
  for (const RequestProgress& request : list.live)
    live.push_back(RequestJson(request, list.now_ns));
  for (const RequestProgress& request : list.ended) {
    ended.push_back(RequestJson(request, list.now_ns));
  }
  return Json{{"live", std::move(live)}, {"ended", std::move(ended)}}.dump();
}

}  // namespace tessera
