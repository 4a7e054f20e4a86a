// SPDX-License-Identifier: Apache-2.0
#include "compute/model/step_plan.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"

namespace tessera {
namespace {

// Below this a task costs less than handing it to another thread (about 1 us): the elements of an
// elementwise stage, of the convolution, and of the state times tokens in the scan.
constexpr uint64_t kRowElements = 8192;
constexpr uint64_t kConvElements = 8192;
constexpr uint64_t kScanElements = 16384;
constexpr uint32_t kChannelStep = 64;  // 256 bytes of fp32, whole cache lines of bf16

}  // namespace

uint32_t StepPlan::Storage::QueryBlocksMax(const ForwardLimits& limits) {
  return limits.rows / kBlockRows + limits.sequences;
}

uint32_t StepPlan::Storage::ConvRangesMax(const ModelShape& shape, const ForwardLimits& limits) {
  if (!shape.has_ssm()) return 0;
  return static_cast<uint32_t>(DivideUp(shape.conv_channels(), kChannelStep)) * limits.sequences;
}

uint32_t StepPlan::Storage::ScanRangesMax(const ModelShape& shape, const ForwardLimits& limits) {
  return shape.ssm_heads * limits.sequences;
}

void StepPlan::Build(std::span<const SequenceStep> steps) {
  steps_ = steps;
  PlaceRows();
  query_blocks_ = conv_ranges_ = scan_ranges_ = 0;
  if (shape_.has_attention()) CutQueryBlocks();
  if (shape_.has_ssm()) {
    conv_ranges_ = CutRanges(shape_.conv_channels(), kChannelStep, kConvElements, at_.conv_ranges);
    const uint64_t head_elements = uint64_t{shape_.ssm_head_dim()} * shape_.ssm_state;
    scan_ranges_ =
        CutRanges(shape_.ssm_heads, 1, DivideUp(kScanElements, head_elements), at_.scan_ranges);
  }
}

void StepPlan::PlaceRows() {
  TESSERA_CHECK(!steps_.empty() && steps_.size() <= limits_.sequences);
  rows_ = 0;
  for (uint32_t sequence = 0; sequence < steps_.size(); ++sequence) {
    const SequenceStep& step = steps_[sequence];
    const auto count = static_cast<uint32_t>(step.tokens.size());
    TESSERA_CHECK(count > 0 && count <= limits_.rows - rows_);
    TESSERA_CHECK(step.position < limits_.context_length &&
                  count <= limits_.context_length - step.position);
    at_.first_row[sequence] = rows_;
    for (uint32_t i = 0; i < count; ++i) at_.row_sequence[rows_ + i] = sequence;
    rows_ += count;
  }
}

// Longest first, so that the last task to start is a short one.
void StepPlan::CutQueryBlocks() {
  for (uint32_t sequence = 0; sequence < steps_.size(); ++sequence) {
    const SequenceStep& step = steps_[sequence];
    const auto count = static_cast<uint32_t>(step.tokens.size());
    for (uint32_t done = 0; done < count; done += kBlockRows) {
      at_.query_blocks[query_blocks_++] = {sequence, at_.first_row[sequence] + done,
                                           std::min(kBlockRows, count - done),
                                           step.position + done};
    }
  }
  auto cost = [](const QueryBlock& block) {
    return uint64_t{block.position + block.rows} * block.rows;
  };
  std::sort(at_.query_blocks, at_.query_blocks + query_blocks_,
            [&](const QueryBlock& a, const QueryBlock& b) { return cost(a) > cost(b); });
}

// Cuts [0, width) of each sequence at multiples of `step`, so that a task has about the same
// rows × width whatever the sequence's rows, and at least `floor`.
uint32_t StepPlan::CutRanges(uint32_t width, uint32_t step, uint64_t floor, Range* ranges) const {
  const uint64_t total = uint64_t{width} * rows_;
  const uint64_t target = std::max(total / (threads_ * kTasksPerThread), floor);
  uint32_t count = 0;
  for (uint32_t sequence = 0; sequence < steps_.size(); ++sequence) {
    const uint64_t per_task = RoundUp(DivideUp(target, steps_[sequence].tokens.size()), step);
    for (uint64_t begin = 0; begin < width; begin += per_task) {
      ranges[count++] = {sequence, static_cast<uint32_t>(begin),
                         static_cast<uint32_t>(std::min<uint64_t>(begin + per_task, width))};
    }
  }
  return count;
}

uint32_t StepPlan::RowsPerTask(uint64_t elements) const {
  const uint64_t even = DivideUp(rows_, threads_ * kTasksPerThread);
  const uint64_t floor = DivideUp(kRowElements, std::max<uint64_t>(elements, 1));
  return static_cast<uint32_t>(std::max(even, floor));
}

}  // namespace tessera
