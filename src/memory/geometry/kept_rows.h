// SPDX-License-Identifier: Apache-2.0
//
// KeptRows is the part of a budget that keeps final-norm rows: one fp32 row of the model's width,
// rounded up to 64 bytes, is a unit, and ⌊budget / 100 / unit⌋ of them are carved before an
// organisation cuts the rest into pools. With a kept row, an identical prompt runs only the output
// head. Falcon-H1-7B: d = 3072, a unit of 12 KiB, 873 of them in 1 GiB.
//
// K1  PoolBytes(b) + Units(b) · unit_bytes() = b, and Units(b) · unit_bytes() <= b / 100.
// K2  BudgetFor(n) is the least b with PoolBytes(b) >= n; 2^64-1 when that is beyond 64 bits.
// K3  PoolBytes is not monotone: a budget that reaches a multiple of 100 units carves one more, so
//     BudgetFor(n) <= b does not say that n fits b. Ask PoolBytes(b) >= n.
// K4  When the row of every checkpoint is kept, at most one each, a model whose checkpoint takes 100
//     units or more never runs out of them before it runs out of checkpoints. So it is with every
//     geometry in named_geometries.h that has recurrent layers, but LFM2, whose checkpoints are
//     of 80 KiB and whose rows of 8 KiB.
//
// Threads: a value; pure functions of it.
#pragma once

#include <cstdint>

namespace tessera {

class KeptRows {
 public:
  KeptRows() = default;  // reuse is off: no rows are kept
  // Rows of `width` values, the model's d; 0 keeps none.
  explicit KeptRows(uint32_t width);

  uint64_t unit_bytes() const { return unit_bytes_; }  // 0: none are kept
  uint64_t Units(uint64_t budget_bytes) const;
  // What is left for the pools of the organisation.
  uint64_t PoolBytes(uint64_t budget_bytes) const;
  uint64_t BudgetFor(uint64_t pool_bytes) const;

 private:
  uint64_t unit_bytes_ = 0;
};

}  // namespace tessera
