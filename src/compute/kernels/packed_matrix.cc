// SPDX-License-Identifier: Apache-2.0
#include "compute/kernels/packed_matrix.h"

#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "compute/tensor/quant_blocks.h"

namespace tessera {
namespace {

// Inputs packed per pass over the 16 rows of a panel: at most 256·16·4 B = 16 KiB are being
// written.
constexpr uint32_t kPassInputs = 256;
static_assert(kPassInputs % kSuperBlock == 0);

size_t GroupBytes(WeightType type, uint32_t k) {
  const PackedUnit unit = PackedUnitOf(type);
  return DivideUp(k, unit.k) * unit.bytes * kGroupPanels;
}

// Inputs [begin, end) of one output, to its lane of a panel whose units hold kInputs.
template <size_t kBytes, uint32_t kInputs>
void PackElements(const std::byte* row, uint32_t begin, uint32_t end, uint32_t lane,
                  std::byte* panel) {
  constexpr size_t kUnitStride = kGroupPanels * kPanelColumns * kInputs * kBytes;
  for (uint32_t i = begin; i < end; ++i) {
    const size_t at = i / kInputs * kUnitStride + (lane * kInputs + i % kInputs) * kBytes;
    std::memcpy(panel + at, row + size_t{i} * kBytes, kBytes);
  }
}

// The 4 bytes of one output's lane in a vector of 64.
void Put(std::byte* vectors, uint32_t vector, uint32_t lane, uint32_t four) {
  std::memcpy(vectors + (vector * kPanelColumns + lane) * 4, &four, 4);
}
uint32_t Four(const void* bytes) {
  uint32_t four;
  std::memcpy(&four, bytes, 4);
  return four;
}

// The types of blocks of 32, two to a unit: file bytes after the half of d, in fours; `flip` adds
// 128 to each byte of q8_0. q4_0's nibbles lie in the file as they do here.
template <uint32_t kFours, uint32_t kFlip>
void PackHalfUnit(const std::byte* block, uint32_t lane, uint32_t half, std::byte* unit) {
  std::memcpy(unit + half * kUnitHalfBytes + lane * 2, block, 2);
  std::byte* vectors = unit + kUnitBody + half * kFours * kPanelColumns * 4;
  for (uint32_t j = 0; j < kFours; ++j) Put(vectors, j, lane, Four(block + 2 + 4 * j) ^ kFlip);
}

void PackQ8_0(const std::byte* block, uint32_t lane, uint32_t half, std::byte* unit) {
  PackHalfUnit<8, 0x80808080u>(block, lane, half, unit);
}
void PackQ4_0(const std::byte* block, uint32_t lane, uint32_t half, std::byte* unit) {
  PackHalfUnit<4, 0>(block, lane, half, unit);
}

void PackQ4K(const std::byte* block, uint32_t lane, uint32_t, std::byte* unit) {
  const Q4KIntegers k = UnpackQ4K(block);
  std::memcpy(unit + lane * 2, block, 2);
  std::memcpy(unit + kUnitHalfBytes + lane * 2, block + 2, 2);
  std::byte* scales = unit + Q4KUnit::kScales;
  for (uint32_t s = 0; s < 8; ++s) scales[s * kPanelColumns + lane] = std::byte{k.scales[s]};
  for (uint32_t s = 0; s < 8; s += 4) Put(unit + Q4KUnit::kMins, s / 4, lane, Four(k.mins + s));
  std::byte* vectors = unit + Q4KUnit::kWeights;
  for (uint32_t s = 0; s < 8; ++s) {
    for (uint32_t j = 0; j < 4; ++j) {
      const uint8_t* q = k.q + s * 32 + j * 4;
      Put(vectors, s * 4 + j, lane, Four(q) | Four(q + 16) << 4);
    }
  }
}

void PackQ6K(const std::byte* block, uint32_t lane, uint32_t, std::byte* unit) {
  const Q6KIntegers k = UnpackQ6K(block);
  std::memcpy(unit + lane * 2, block + 208, 2);
  for (uint32_t s = 0; s < 16; ++s) {
    unit[Q6KUnit::kScales + s * kPanelColumns + lane] = static_cast<std::byte>(k.scales[s]);
  }
  constexpr uint32_t kLow = 0x0F0F0F0Fu;
  constexpr uint32_t kPair = 0x03030303u;
  std::byte* vectors = unit + Q6KUnit::kWeights;
  for (uint32_t quarter = 0; quarter < 4; ++quarter, vectors += Q6KUnit::kQuarterBytes) {
    const uint8_t* q = k.q + quarter * 64;
    for (uint32_t i = 0; i < 8; ++i) {
      Put(vectors, i, lane, (Four(q + 4 * i) & kLow) | (Four(q + 32 + 4 * i) & kLow) << 4);
    }
    for (uint32_t i = 0; i < 4; ++i) {
      uint32_t pairs = 0;
      for (uint32_t f = 0; f < 4; ++f) {
        pairs |= (Four(q + 16 * f + 4 * i) >> 4 & kPair) << (2 * f);
      }
      Put(vectors + Q6KUnit::kPairs, i, lane, pairs);
    }
  }
}

// Inputs [begin, end) of one output in whole blocks: what a file has beyond k meets activations
// that are zero.
template <uint32_t kBlock, size_t kBlockFileBytes, class Pack>
void PackBlocks(WeightType type, const std::byte* row, uint32_t begin, uint32_t end, uint32_t lane,
                std::byte* panel, Pack pack) {
  const PackedUnit unit = PackedUnitOf(type);
  for (uint32_t input = begin; input < end; input += kBlock) {
    pack(row + input / kBlock * kBlockFileBytes, lane, input % unit.k / kBlock,
         panel + size_t{input / unit.k} * kGroupPanels * unit.bytes);
  }
}

void PackInputs(WeightType type, const std::byte* row, uint32_t begin, uint32_t end, uint32_t lane,
                std::byte* panel) {
  switch (type) {
    case WeightType::kF32:
      return PackElements<4, 1>(row, begin, end, lane, panel);
    case WeightType::kF16:
      return PackElements<2, 1>(row, begin, end, lane, panel);
    case WeightType::kBF16:
      return PackElements<2, 2>(row, begin, end, lane, panel);
    case WeightType::kQ8_0:
      return PackBlocks<kSmallBlock, 34>(type, row, begin, end, lane, panel, PackQ8_0);
    case WeightType::kQ4_0:
      return PackBlocks<kSmallBlock, 18>(type, row, begin, end, lane, panel, PackQ4_0);
    case WeightType::kQ4_K:
      return PackBlocks<kSuperBlock, 144>(type, row, begin, end, lane, panel, PackQ4K);
    case WeightType::kQ6_K:
      return PackBlocks<kSuperBlock, 210>(type, row, begin, end, lane, panel, PackQ6K);
  }
}

}  // namespace

size_t PackedBytesNeeded(WeightType type, uint32_t n, uint32_t k) {
  return DivideUp(n, kGroupColumns) * GroupBytes(type, k);
}

PackedMatrix DescribePacked(WeightType type, uint32_t n, uint32_t k, const std::byte* storage) {
  return {type, n, k, storage, GroupBytes(type, k)};
}

void PackRows(WeightType type, uint32_t n, uint32_t k, uint32_t first, uint32_t rows,
              const std::byte* data, size_t row_bytes, std::byte* storage) {
  TESSERA_CHECK(uint64_t{first} + rows <= n);
  TESSERA_CHECK(InputFormOf(type) != InputForm::kInt8K || k % kSuperBlock == 0);
  const size_t group_bytes = GroupBytes(type, k);
  const size_t unit_bytes = PackedUnitOf(type).bytes;
  for (uint32_t row = 0; row < rows;) {
    const uint32_t panel_index = (first + row) / kPanelColumns;
    const uint32_t lane = (first + row) % kPanelColumns;
    const uint32_t count = rows - row < kPanelColumns - lane ? rows - row : kPanelColumns - lane;
    std::byte* panel = storage + panel_index / kGroupPanels * group_bytes +
                       panel_index % kGroupPanels * unit_bytes;
    for (uint32_t begin = 0; begin < k; begin += kPassInputs) {
      const uint32_t end = k - begin < kPassInputs ? k : begin + kPassInputs;
      for (uint32_t i = 0; i < count; ++i) {
        PackInputs(type, data + (row + i) * row_bytes, begin, end, lane + i, panel);
      }
    }
    row += count;
  }
}

}  // namespace tessera
