// SPDX-License-Identifier: Apache-2.0
#include "server/startup_summary.h"

#include <fmt/format.h>

#include "base/bytes.h"
#include "server/capacity.h"

namespace tessera {
namespace {

std::string PoolLine(const Organisation& organisation, size_t index) {
  const PoolTable& pool = organisation.pools[index];
  return fmt::format("  pool          {}: {} pages of {} x {} planes\n", pool.name, pool.page_count,
                     FormatBytes(pool.unit_bytes), organisation.planes);
}

std::string ReuseLine(const EngineOptions& options) {
  if (!options.reuse) return "  reuse         off\n";
  // Blocks and images are kept at any token, so the grid alone says how short a prefix can be.
  return fmt::format(
      "  reuse         prefixes of {} token{} and more; placement {}, eviction {}, retention {}, "
      "isolate {}\n",
      options.checkpoint_grid, options.checkpoint_grid == 1 ? "" : "s",
      options.placement.ToString(), EvictionPolicyName(options.eviction),
      options.retention.ToString(), IsolateName(options.isolate));
}

}  // namespace

std::string CapacitySummary(const Organisation& organisation, uint32_t context_length) {
  std::string lines;
  for (size_t i = 0; i < organisation.pools.size(); ++i) lines += PoolLine(organisation, i);
  const uint64_t longest = TokensThatFit(organisation, context_length);
  lines += fmt::format(
      "  context       {} tokens at most (the model's: {}); sequences of that "
      "length that fit together: {}\n",
      longest, context_length, SequencesThatFit(organisation, longest));
  return lines;
}

std::string StartupSummary(const Engine& engine, const std::string& url) {
  const EngineMemory& memory = engine.memory();
  const EngineOptions& options = engine.options();
  std::string lines =
      fmt::format("tessera {}: {} on {}\n", TESSERA_VERSION, engine.shape().name, url);
  lines +=
      fmt::format("  kernels       {}, {} threads\n", engine.kernel_description(), options.threads);
  lines +=
      fmt::format("  organisation  {}, {} running at most, {} tokens a step\n",
                  engine.organisation().spec.ToString(), options.max_running, options.chunk_tokens);
  lines += fmt::format("  budget        {} for state: {}\n", FormatBytes(memory.budget_bytes),
                       memory.budget_rule);
  const StateShape state = engine.shape().state_shape(options.state_type);
  if (state.recurrent_layers > 0) {
    lines += fmt::format("  recurrent     {} per sequence, SSM in {}\n",
                         FormatBytes(state.ssm_bytes() + state.conv_bytes()),
                         StateTypeName(state.state_type));
  }
  lines += CapacitySummary(engine.organisation(), engine.shape().context_length);
  lines += ReuseLine(options);
  lines +=
      fmt::format("  outside it    weights {} (packed in {:.0f} ms), activations {}, metadata {}\n",
                  FormatBytes(memory.weight_bytes), engine.load_ms(),
                  FormatBytes(memory.activation_bytes), FormatBytes(memory.metadata_bytes));
  return lines;
}

}  // namespace tessera
