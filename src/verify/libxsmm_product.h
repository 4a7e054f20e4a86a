// SPDX-License-Identifier: Apache-2.0
//
// The bf16 product by libxsmm's just-in-time kernels: code of other people, generated while we run,
// that must give the contract's bits. It is an oracle of the exactness matrix and nothing else.
//
// libxsmm 1.17 keeps one k-ascending chain per output when a block has at least 17 outputs in one
// tile; in smaller ones it spreads k over several accumulators. So outputs are multiplied in blocks
// of 64, padded with zero weights (docs/decisions/0006).
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera {

// Why it cannot be used: not part of this build, no bf16 dot product on this CPU, no executable
// memory for this process. Empty when it can. Asked before every use, for libxsmm itself ends the
// process when it is refused executable memory.
std::string WhyNoLibxsmm();

struct LibxsmmOperands {
  uint32_t rows = 0, n = 0, k = 0;
  std::span<const uint16_t> activations;  // bf16 [rows][k]
  std::span<const uint16_t> weights;      // bf16 [n][k]
};
// [rows][n]; empty when it makes no kernel for the shape. WhyNoLibxsmm() must have been empty.
std::vector<float> LibxsmmProduct(const LibxsmmOperands& operands);

}  // namespace tessera
