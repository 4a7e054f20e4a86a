// SPDX-License-Identifier: Apache-2.0
//
// The kinds of Workload, for Workload::Open, and the tokens they draw.
//
// Threads: pure.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "bench/serve/workload.h"

namespace tessera {

struct RandomWorkload {
  uint32_t prompts = 100;
  uint32_t input_tokens = 256;
  uint32_t output_tokens = 64;
  uint32_t prefix_tokens = 0;
  double range_ratio = 0;  // below 1
};
std::unique_ptr<Workload> MakeRandomWorkload(const RandomWorkload& shape);

struct SharedContextWorkload {
  uint32_t contexts = 8;
  uint32_t context_tokens = 1500;
  uint32_t questions = 64;
  uint32_t question_tokens = 24;
  uint32_t output_tokens = 32;
};
std::unique_ptr<Workload> MakeSharedContextWorkload(const SharedContextWorkload& shape);

Result<std::unique_ptr<Workload>> OpenTraceWorkload(const WorkloadOptions& options);
Result<std::unique_ptr<Workload>> OpenPromptFile(const WorkloadOptions& options);
// `name` stands in messages.
Result<std::unique_ptr<Workload>> ParsePromptFile(std::string_view text, const std::string& name,
                                                  const WorkloadOptions& options);

// Appends `count` ids below `vocabulary`, drawn by `key`.
void AppendTokens(uint64_t key, uint64_t count, uint32_t vocabulary, std::vector<int32_t>* tokens);

std::string FileHash(std::string_view bytes);

}  // namespace tessera
