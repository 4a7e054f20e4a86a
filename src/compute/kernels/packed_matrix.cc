// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/packed_matrix.h"

#include <cstring>

#include "base/bytes.h"
#include "base/check.h"

namespace tessera {
namespace {

constexpr uint32_t kLanes = 16;
constexpr uint32_t kBlock = 32;  // of q8_0: an f16 scale, then 32 int8
constexpr size_t kBlockFileBytes = 2 + 32;
// Inputs packed per pass over the 16 rows of a panel: at most 64·16·4 B = 4 KiB are being written.
constexpr uint32_t kPassInputs = 64;

size_t GroupBytes(WeightType type, uint32_t k) {
  const PackedUnit unit = PackedUnitOf(type);
  return DivideUp(k, unit.k) * unit.bytes * kGroupPanels;
}

// Inputs [begin, end) of one output, to its lane of a panel whose units hold kInputs.
template <size_t kBytes, uint32_t kInputs>
void PackElements(const std::byte* row, uint32_t begin, uint32_t end, uint32_t lane,
                  std::byte* panel) {
  constexpr size_t kUnitStride = kGroupPanels * kLanes * kInputs * kBytes;
  for (uint32_t i = begin; i < end; ++i) {
    const size_t at = i / kInputs * kUnitStride + (lane * kInputs + i % kInputs) * kBytes;
    std::memcpy(panel + at, row + size_t{i} * kBytes, kBytes);
  }
}

// Whole blocks: what a file has beyond k meets activations that are zero.
void PackQ8Row(const std::byte* row, uint32_t begin, uint32_t end, uint32_t lane,
               std::byte* panel) {
  constexpr PackedUnit kUnit = PackedUnitOf(WeightType::kQ8_0);
  for (uint32_t b = begin / kBlock; b * kBlock < end; ++b) {
    const std::byte* block = row + b * kBlockFileBytes;
    std::byte* unit = panel + size_t{b / 2} * kGroupPanels * kUnit.bytes;
    std::memcpy(unit + (b % 2 * kLanes + lane) * 2, block, 2);
    std::byte* to = unit + 64 + (b % 2 * 8 * kLanes + lane) * 4;
    for (uint32_t j = 0; j < 8; ++j) {
      uint32_t four;
      std::memcpy(&four, block + 2 + 4 * j, 4);
      four ^= 0x80808080u;  // + 128
      std::memcpy(to + j * kLanes * 4, &four, 4);
    }
  }
}

}  // namespace

size_t PackedBytesNeeded(WeightType type, uint32_t n, uint32_t k) {
  return DivideUp(n, kGroupPanels * kLanes) * GroupBytes(type, k);
}

PackedMatrix DescribePacked(WeightType type, uint32_t n, uint32_t k, const std::byte* storage) {
  return {type, n, k, storage, GroupBytes(type, k)};
}

void PackRows(WeightType type, uint32_t n, uint32_t k, uint32_t first, uint32_t rows,
              const std::byte* data, size_t row_bytes, std::byte* storage) {
  TESSERA_CHECK(uint64_t{first} + rows <= n);
  const size_t group_bytes = GroupBytes(type, k);
  const size_t unit_bytes = PackedUnitOf(type).bytes;
  for (uint32_t row = 0; row < rows;) {
    const uint32_t panel_index = (first + row) / kLanes;
    const uint32_t lane = (first + row) % kLanes;
    const uint32_t count = rows - row < kLanes - lane ? rows - row : kLanes - lane;
    std::byte* panel = storage + panel_index / kGroupPanels * group_bytes +
                       panel_index % kGroupPanels * unit_bytes;
    for (uint32_t begin = 0; begin < k; begin += kPassInputs) {
      const uint32_t end = k - begin < kPassInputs ? k : begin + kPassInputs;
      for (uint32_t i = 0; i < count; ++i) {
        const std::byte* from = data + (row + i) * row_bytes;
        switch (type) {
          case WeightType::kF32:
            PackElements<4, 1>(from, begin, end, lane + i, panel);
            break;
          case WeightType::kF16:
            PackElements<2, 1>(from, begin, end, lane + i, panel);
            break;
          case WeightType::kBF16:
            PackElements<2, 2>(from, begin, end, lane + i, panel);
            break;
          case WeightType::kQ8_0:
            PackQ8Row(from, begin, end, lane + i, panel);
            break;
        }
      }
    }
    row += count;
  }
}

}  // namespace tessera
