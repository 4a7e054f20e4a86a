// SPDX-License-Identifier: Apache-2.0
#include "cli/memory_report.h"

#include <fmt/format.h>

#include "base/bytes.h"

namespace tessera::cli {

std::string DescribeStart(const Engine& engine) {
  const ModelShape& shape = engine.shape();
  const EngineMemory& memory = engine.memory();
  const EngineOptions& options = engine.options();
  std::string text =
      fmt::format("model        {}: {} layers, width {}, vocabulary {}, context {}\n", shape.name,
                  shape.layers, shape.width, shape.vocab_size, shape.context_length);
  text +=
      fmt::format("kernels      {}; {} threads\n", engine.kernel_description(), options.threads);
  text += fmt::format("weights      {}, read and packed in {:.0f} ms\n",
                      FormatBytes(memory.weight_bytes), engine.load_ms());
  text +=
      fmt::format("budget       {} ({})\n", FormatBytes(memory.budget_bytes), memory.budget_rule);
  text += fmt::format("arena        {} in organisation {}\n", FormatBytes(memory.arena_bytes),
                      engine.organisation().spec.ToString());
  const StateShape state = shape.state_shape(options.state_type);
  if (state.recurrent_layers > 0) {
    text += fmt::format("recurrent    {} per sequence: ssm {} in {}, conv {}\n",
                        FormatBytes(state.ssm_bytes() + state.conv_bytes()),
                        FormatBytes(state.ssm_bytes()), StateTypeName(state.state_type),
                        FormatBytes(state.conv_bytes()));
  }
  text +=
      fmt::format("activations  {} for {} tokens of {} sequences in a step\n",
                  FormatBytes(memory.activation_bytes), options.chunk_tokens, options.max_running);
  text += fmt::format("metadata     {}\n", FormatBytes(memory.metadata_bytes));
  return text;
}

std::string DescribeStore(const StoreStats& stats) {
  std::string text;
  for (const PoolStats& pool : stats.pools) {
    text += fmt::format(
        "pool         {}: {} pages of {}: attention {}, state {}, reserved {}, cached attention "
        "{}, "
        "cached state {}, draining {}, free {}\n",
        pool.name, pool.total_pages, FormatBytes(pool.unit_bytes), pool.held_attention_pages,
        pool.held_state_pages, pool.reserved_pages, pool.cached_attention_pages,
        pool.cached_state_pages, pool.draining_pages, pool.free_pages);
  }
  text += fmt::format("state        attention {}, ssm {}, conv {} of {} sequences\n",
                      FormatBytes(stats.attention_bytes), FormatBytes(stats.ssm_bytes),
                      FormatBytes(stats.conv_bytes), stats.sequences);
  return text + DescribeReuse(stats.reuse);
}

std::string DescribeReuse(const ReuseStats& reuse) {
  std::string text = fmt::format(
      "kept         {} checkpoints, {} blocks, {} of {} rows; published {} checkpoints, skipped {} "
      "for "
      "lack of room; evicted {} checkpoints, {} blocks, {} rows\n",
      reuse.checkpoints, reuse.blocks, reuse.rows, reuse.row_capacity, reuse.published_checkpoints,
      reuse.skipped_checkpoints, reuse.evicted_checkpoints, reuse.evicted_blocks,
      reuse.evicted_rows);
  std::string reasons;
  for (int i = 0; i < kComputeReasons; ++i) {
    if (reuse.computed_tokens[i] == 0) continue;
    reasons +=
        fmt::format("{} {} {}", reasons.empty() ? "; computed:" : ",", reuse.computed_tokens[i],
                    ComputeReasonName(static_cast<ComputeReason>(i)));
  }
  return text +
         fmt::format(
             "supply       {} look-ups, {} hits; of {} prompt tokens attention {}, recurrent "
             "{}, reused {}{}\n",
             reuse.lookups, reuse.hits, reuse.prompt_tokens, reuse.attention_tokens,
             reuse.recurrent_tokens, reuse.reused_tokens, reasons);
}

}  // namespace tessera::cli
