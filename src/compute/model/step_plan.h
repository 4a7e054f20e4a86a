// SPDX-License-Identifier: Apache-2.0
//
// StepPlan says, once per step, how its rows are cut into tasks: which rows belong to which
// sequence, blocks of query rows for attention, ranges of channels for the convolution and of heads
// for the scan. Every layer uses the same plan.
//
// Cuts aim at about four tasks per thread: enough to even out, few enough that handing them out
// costs nothing. Where a cut falls never changes a bit (kernel_table.h, K1).
//
// Threads: built by the step's caller, then const.
#pragma once

#include <cstdint>
#include <span>

#include "compute/kernels/kernel_table.h"
#include "compute/model/forward.h"
#include "compute/model/model_shape.h"

namespace tessera {

class StepPlan {
 public:
  // Query rows of one attention task: 16 rows of a 12/2-head model are 96 query vectors against
  // each K tile read.
  static constexpr uint32_t kBlockRows = 16;
  static constexpr uint32_t kTasksPerThread = 4;

  struct QueryBlock {
    uint32_t sequence = 0;
    uint32_t first_row = 0;  // of the step
    uint32_t rows = 0;
    uint32_t position = 0;  // of the first row

    uint32_t splits() const { return (position + rows - 1) / kSplitTokens + 1; }
  };
  // Channels or heads [begin, end) of one sequence.
  struct Range {
    uint32_t sequence = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
  };
  // Where the lists lie.
  struct Storage {
    uint32_t* row_sequence = nullptr;
    uint32_t* first_row = nullptr;  // [sequences]
    QueryBlock* query_blocks = nullptr;
    Range* conv_ranges = nullptr;
    Range* scan_ranges = nullptr;

    static uint32_t QueryBlocksMax(const ForwardLimits& limits);
    static uint32_t ConvRangesMax(const ModelShape& shape, const ForwardLimits& limits);
    static uint32_t ScanRangesMax(const ModelShape& shape, const ForwardLimits& limits);
  };

  StepPlan(const ModelShape& shape, const ForwardLimits& limits, int threads,
           const Storage& storage)
      : shape_(shape), limits_(limits), threads_(static_cast<uint32_t>(threads)), at_(storage) {}

  void Build(std::span<const SequenceStep> steps);

  std::span<const SequenceStep> steps() const { return steps_; }
  uint32_t rows() const { return rows_; }
  uint32_t threads() const { return threads_; }
  uint32_t sequence_of(uint32_t row) const { return at_.row_sequence[row]; }
  uint32_t first_row(uint32_t sequence) const { return at_.first_row[sequence]; }
  uint32_t position_of(uint32_t row) const {
    const uint32_t sequence = sequence_of(row);
    return steps_[sequence].position + (row - first_row(sequence));
  }
  std::span<const QueryBlock> query_blocks() const { return {at_.query_blocks, query_blocks_}; }
  std::span<const Range> conv_ranges() const { return {at_.conv_ranges, conv_ranges_}; }
  std::span<const Range> scan_ranges() const { return {at_.scan_ranges, scan_ranges_}; }

  // Rows of one task when a row costs about `elements` elements of work.
  uint32_t RowsPerTask(uint64_t elements) const;

 private:
  void PlaceRows();
  void CutQueryBlocks();
  uint32_t CutRanges(uint32_t width, uint32_t step, uint64_t floor, Range* ranges) const;

  const ModelShape& shape_;
  const ForwardLimits& limits_;
  const uint32_t threads_;
  const Storage at_;
  std::span<const SequenceStep> steps_;
  uint32_t rows_ = 0;
  uint32_t query_blocks_ = 0;
  uint32_t conv_ranges_ = 0;
  uint32_t scan_ranges_ = 0;
};

}  // namespace tessera
