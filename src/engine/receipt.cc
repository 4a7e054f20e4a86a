// SPDX-License-Identifier: Apache-2.0
#include "engine/receipt.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>

namespace tessera {

void Receipt::Fold(std::span<const float> norm_row) {
  static_assert(std::endian::native == std::endian::little);
  value_ = XXH3_64bits_withSeed(norm_row.data(), norm_row.size_bytes(), value_);
}

std::string ReceiptHex(uint64_t value) { return fmt::format("{:016x}", value); }

}  // namespace tessera
