// SPDX-License-Identifier: Apache-2.0
//
// Receipt folds the final-norm row of each sampled token, in order, into 64 bits:
//
//   r ← xxh3_64(row as fp32 little-endian, seed = r),  r0 = 0
//
// Equal receipts mean that the same bits were computed, whatever ran beside them.
//
// Threads: a value.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tessera {

class Receipt {
 public:
  void Fold(std::span<const float> norm_row);
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

// 16 lower-case hex digits.
std::string ReceiptHex(uint64_t value);

}  // namespace tessera
