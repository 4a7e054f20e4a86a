// SPDX-License-Identifier: Apache-2.0
#include "bench/replay_reference.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "bench/replay_lru_twin.h"

namespace tessera {
namespace {

using P = ReferencePlacement;

struct Figure {
  const char* file;
  P placement;
  uint32_t grid;
  const char* rate;
  uint64_t checkpoints;  // 0: not published
};

// bench/traces/README.md, and the counts of checkpoints that the traces came with.
constexpr Figure kFigures[] = {
    {"mooncake_conversation", P::kAttention, 16, "0.3526", 0},
    {"mooncake_conversation", P::kDense, 512, "0.3526", 0},
    {"mooncake_conversation", P::kTail, 512, "0.3264", 0},
    {"mooncake_conversation", P::kTailBranch, 512, "0.3365", 0},
    {"mooncake_conversation", P::kDense, 1024, "0.3200", 0},
    {"mooncake_conversation", P::kTail, 1024, "0.2952", 0},
    {"mooncake_conversation", P::kDense, 1792, "0.3037", 26260},
    {"mooncake_conversation", P::kTail, 1792, "0.2833", 3696},
    {"mooncake_conversation", P::kTailBranch, 1792, "0.2910", 3844},
    {"mooncake_synthetic", P::kAttention, 16, "0.3360", 0},
    {"mooncake_synthetic", P::kDense, 512, "0.3360", 0},
    {"mooncake_synthetic", P::kTail, 512, "0.1992", 0},
    {"mooncake_synthetic", P::kTailBranch, 512, "0.2347", 0},
    {"mooncake_synthetic", P::kDense, 1024, "0.3323", 0},
    {"mooncake_synthetic", P::kTail, 1024, "0.2426", 0},
    {"mooncake_synthetic", P::kDense, 1792, "0.3249", 8585},
    {"mooncake_synthetic", P::kTail, 1792, "0.2601", 807},
    {"mooncake_synthetic", P::kTailBranch, 1792, "0.2707", 823},
    {"agentic_coding_sessions", P::kAttention, 16, "0.9604", 0},
    {"agentic_coding_sessions", P::kDense, 512, "0.9580", 0},
    {"agentic_coding_sessions", P::kTail, 512, "0.9549", 0},
    {"agentic_coding_sessions", P::kTailBranch, 512, "0.9561", 0},
    {"agentic_coding_sessions", P::kDense, 1024, "0.9553", 0},
    {"agentic_coding_sessions", P::kTail, 1024, "0.9525", 0},
    {"agentic_coding_sessions", P::kDense, 1792, "0.9512", 18054},
    {"agentic_coding_sessions", P::kTail, 1792, "0.9489", 4527},
    {"agentic_coding_sessions", P::kTailBranch, 1792, "0.9499", 0},
};

TEST(ReplayReference, ReproducesThePublishedFigures) {
  std::string file;
  RequestTrace trace;
  for (const Figure& figure : kFigures) {
    if (file != figure.file) {
      file = figure.file;
      Result<RequestTrace> read =
          ReadRequestTrace(TESSERA_SOURCE_DIR "/bench/traces/" + file + ".jsonl");
      ASSERT_TRUE(read.has_value()) << read.error().ToString();
      trace = std::move(*read);
    }
    const ReferenceReuse reuse = ReplayReference(trace, figure.placement, figure.grid);
    const std::string what = fmt::format("{} placement {} grid {}", file,
                                         static_cast<int>(figure.placement), figure.grid);
    EXPECT_EQ(fmt::format("{:.4f}", reuse.rate()), figure.rate) << what;
    if (figure.checkpoints != 0) {
      EXPECT_EQ(reuse.checkpoints, figure.checkpoints) << what;
    }
  }
}

// With room for everything plain LRU is the unlimited cache; with less it holds less.
TEST(ReplayLruTwin, WithRoomForAllItIsTheReference) {
  const Result<RequestTrace> trace =
      ReadRequestTrace(TESSERA_SOURCE_DIR "/bench/traces/mooncake_synthetic.jsonl");
  ASSERT_TRUE(trace.has_value());
  for (const P placement : {P::kAttention, P::kDense, P::kTail, P::kTailBranch}) {
    LruTwinOptions options{placement, 512, uint64_t{1} << 40, 1557, 0, 0};
    const ReferenceReuse reference = ReplayReference(*trace, placement, 512);
    const ReferenceReuse all = ReplayLruTwin(*trace, options);
    EXPECT_EQ(all.reused_tokens, reference.reused_tokens);
    EXPECT_EQ(all.input_tokens, reference.input_tokens);
    EXPECT_EQ(all.checkpoints, reference.checkpoints);
    options.capacity_tokens = uint64_t{4} << 20;
    EXPECT_LT(ReplayLruTwin(*trace, options).reused_tokens, reference.reused_tokens / 2);
  }
}

}  // namespace
}  // namespace tessera
