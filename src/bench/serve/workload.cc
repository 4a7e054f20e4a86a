// SPDX-License-Identifier: Apache-2.0
#include "bench/serve/workload.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "base/random.h"
#include "bench/serve/workload_kinds.h"

namespace tessera {
namespace {

// As trace/request_trace.h bounds them: sums of lengths cannot overflow.
constexpr uint32_t kTokensMax = 1u << 24;
constexpr uint32_t kPromptsMax = 10'000'000;

struct Key {
  std::string_view name;
  uint32_t* value;
  uint32_t most;
};

// "contexts=8,tokens=1500"
Status ReadKeys(std::string_view text, std::span<const Key> keys) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    const Key* found = nullptr;
    std::string names;
    for (const Key& key : keys) {
      if (key.name == name) found = &key;
      names += fmt::format("{}{}", names.empty() ? "" : ", ", key.name);
    }
    if (found == nullptr) {
      return InvalidArgument(
          fmt::format("--workload: expected KEY=N with a key of {}, found '{}'", names, item));
    }
    const std::string_view digits = item.substr(std::min(item.size(), name.size() + 1));
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), *found->value);
    if (error != std::errc() || end != digits.data() + digits.size() || *found->value == 0 ||
        *found->value > found->most) {
      return InvalidArgument(fmt::format(
          "--workload: {}: expected a number from 1 to {}, found '{}'", name, found->most, digits));
    }
  }
  return Status::Ok();
}

// A flag that only another workload reads says nothing by being there.
Status RefuseFlag(bool given, std::string_view flag, std::string_view workload) {
  if (!given) return Status::Ok();
  return InvalidArgument(fmt::format("{}: {} has no use for it", flag, workload));
}

Status RefuseRandomFlags(const WorkloadOptions& options, std::string_view workload) {
  TESSERA_RETURN_IF_ERROR(RefuseFlag(options.input_tokens.has_value(), "--input-len", workload));
  TESSERA_RETURN_IF_ERROR(RefuseFlag(options.prefix_tokens.has_value(), "--prefix-len", workload));
  return RefuseFlag(options.range_ratio.has_value(), "--range-ratio", workload);
}

Result<std::unique_ptr<Workload>> OpenSharedContext(const WorkloadOptions& options,
                                                    std::string_view keys) {
  TESSERA_RETURN_IF_ERROR(RefuseRandomFlags(options, "shared-context"));
  SharedContextWorkload shape;
  shape.questions = options.prompt_count.value_or(shape.questions);
  shape.output_tokens = options.output_tokens.value_or(shape.output_tokens);
  const Key known[] = {{"contexts", &shape.contexts, kPromptsMax},
                       {"tokens", &shape.context_tokens, kTokensMax},
                       {"questions", &shape.questions, kPromptsMax},
                       {"question", &shape.question_tokens, kTokensMax}};
  TESSERA_RETURN_IF_ERROR(ReadKeys(keys, known));
  return MakeSharedContextWorkload(shape);
}

std::unique_ptr<Workload> OpenRandom(const WorkloadOptions& options) {
  RandomWorkload shape;
  shape.prompts = options.prompt_count.value_or(shape.prompts);
  shape.input_tokens = options.input_tokens.value_or(shape.input_tokens);
  shape.output_tokens = options.output_tokens.value_or(shape.output_tokens);
  shape.prefix_tokens = options.prefix_tokens.value_or(shape.prefix_tokens);
  shape.range_ratio = options.range_ratio.value_or(shape.range_ratio);
  return MakeRandomWorkload(shape);
}

}  // namespace

Result<std::unique_ptr<Workload>> Workload::Open(const WorkloadOptions& options) {
  const int sources = (options.spec.empty() ? 0 : 1) + (options.trace_path.empty() ? 0 : 1) +
                      (options.prompts_path.empty() ? 0 : 1);
  if (sources > 1) {
    return InvalidArgument("expected one of --workload, --trace and --prompts");
  }
  if (!options.trace_path.empty()) {
    TESSERA_RETURN_IF_ERROR(RefuseRandomFlags(options, "a trace"));
    return OpenTraceWorkload(options);
  }
  if (!options.prompts_path.empty()) {
    TESSERA_RETURN_IF_ERROR(RefuseRandomFlags(options, "a file of prompts"));
    return OpenPromptFile(options);
  }
  const std::string_view spec = options.spec;
  const size_t colon = spec.find(':');
  const std::string_view name = spec.substr(0, colon);
  const std::string_view keys = colon == std::string_view::npos ? "" : spec.substr(colon + 1);
  if (name == "shared-context") return OpenSharedContext(options, keys);
  if ((name == "random" || name.empty()) && keys.empty()) return OpenRandom(options);
  return InvalidArgument(fmt::format(
      "--workload: '{}' is neither random nor shared-context:contexts=8,tokens=1500,questions=64",
      spec));
}

void AppendTokens(uint64_t key, uint64_t count, uint32_t vocabulary, std::vector<int32_t>* tokens) {
  for (uint64_t j = 0; j < count; ++j) {
    // The high half times the vocabulary, the high half of that: a fair draw without a division.
    const uint64_t draw = (CounterRandom(key, j) >> 32) * vocabulary;
    tokens->push_back(static_cast<int32_t>(draw >> 32));
  }
}

std::string FileHash(std::string_view bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace tessera
