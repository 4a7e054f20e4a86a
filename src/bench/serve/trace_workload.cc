// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "bench/serve/workload_kinds.h"
#include "port/mapped_file.h"
#include "trace/request_trace.h"
#include "trace/trace_tokens.h"

namespace tessera {
namespace {

class TraceWorkload : public Workload {
 public:
  TraceWorkload(RequestTrace trace, const WorkloadOptions& options, std::string hash)
      : trace_(std::move(trace)), options_(options), hash_(std::move(hash)) {
    order_ = ReplayOrder(trace_);
    if (options_.prompt_count && *options_.prompt_count < order_.size()) {
      order_.resize(*options_.prompt_count);
    }
    std::stable_sort(order_.begin(), order_.end(), [this](uint32_t a, uint32_t b) {
      return trace_.requests[a].arrival_ms < trace_.requests[b].arrival_ms;
    });
  }

  std::vector<LoadPrompt> Prompts(uint64_t seed, uint32_t vocabulary) const override {
    RequestTrace named = trace_;
    named.name += fmt::format("#{}", seed);  // tokens are drawn by the name
    const TraceTokens tokens(named, PartialBlock::kById, vocabulary);
    std::vector<LoadPrompt> prompts(order_.size());
    for (size_t i = 0; i < order_.size(); ++i) {
      // What scaling leaves empty is asked for all the same: one token.
      TraceRequest request = trace_.requests[order_[i]];
      request.input_tokens = std::max<uint64_t>(request.input_tokens, 1);
      tokens.Prompt(request, &prompts[i].tokens);
      const auto traced = static_cast<uint32_t>(std::max<uint64_t>(request.output_tokens, 1));
      prompts[i].output_tokens = options_.output_tokens.value_or(traced);
      prompts[i].arrival_s = request.arrival_ms / 1000 * options_.time_scale;
    }
    return prompts;
  }

  bool timed() const override { return true; }
  std::string Describe() const override {
    return fmt::format("trace {}: {} requests, lengths / {}, time x {:g}", trace_.name,
                       order_.size(), options_.trace_scale, options_.time_scale);
  }
  std::string file_hash() const override { return hash_; }

 private:
  const RequestTrace trace_;
  const WorkloadOptions options_;
  const std::string hash_;
  std::vector<uint32_t> order_;
};

}  // namespace

Result<std::unique_ptr<Workload>> OpenTraceWorkload(const WorkloadOptions& options) {
  TESSERA_ASSIGN_OR_RETURN(RequestTrace whole, ReadRequestTrace(options.trace_path));
  TESSERA_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(options.trace_path));
  const std::span<const std::byte> bytes = file.bytes();
  std::string hash =
      FileHash(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
  Result<RequestTrace> shrunk = ShrinkTrace(std::move(whole), options.trace_scale);
  if (!shrunk) {
    return InvalidArgument(fmt::format("--trace-scale: {}", shrunk.error().message()));
  }
  return std::unique_ptr<Workload>(
      std::make_unique<TraceWorkload>(std::move(*shrunk), options, std::move(hash)));
}

}  // namespace tessera
