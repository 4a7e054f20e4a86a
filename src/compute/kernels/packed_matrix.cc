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

uint32_t StepOf(WeightType type) {
  switch (type) {
    case WeightType::kBF16:
      return 2;
    case WeightType::kQ8_0:
      return kBlock;
    default:
      return 1;
  }
}

size_t ElementBytes(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return 4;
    case WeightType::kQ8_0:
      return 1;
    default:
      return 2;
  }
}

size_t PanelBytes(WeightType type, uint32_t k) {
  return RoundUp(k, StepOf(type)) * kLanes * ElementBytes(type);
}

size_t PanelsBytes(WeightType type, uint32_t n, uint32_t k) {
  return DivideUp(n, kLanes) * PanelBytes(type, k);
}

// Inputs [begin, end) of one output, to its lane of a panel in which `group` consecutive inputs of
// a lane lie together.
template <size_t kBytes>
void PackElements(const std::byte* row, uint32_t begin, uint32_t end, uint32_t lane, uint32_t group,
                  std::byte* panel) {
  for (uint32_t i = begin; i < end; ++i) {
    const size_t at = (size_t{i / group} * kLanes + lane) * group + i % group;
    std::memcpy(panel + at * kBytes, row + size_t{i} * kBytes, kBytes);
  }
}

void PackQ8Row(const std::byte* row, uint32_t begin, uint32_t end, uint32_t k, uint32_t lane,
               std::byte* panel, std::byte* scales) {
  for (uint32_t b = begin / kBlock; b * kBlock < end; ++b) {
    const std::byte* block = row + b * kBlockFileBytes;
    std::memcpy(scales + (size_t{b} * kLanes + lane) * 2, block, 2);
    const uint32_t count = k - b * kBlock < kBlock ? k - b * kBlock : kBlock;
    for (uint32_t i = 0; i < count; ++i) {
      const uint32_t input = b * kBlock + i;
      panel[(size_t{input / 4} * kLanes + lane) * 4 + input % 4] = block[2 + i];
    }
  }
}

}  // namespace

size_t PackedBytesNeeded(WeightType type, uint32_t n, uint32_t k) {
  size_t bytes = RoundUp(PanelsBytes(type, n, k), 64);
  if (type == WeightType::kQ8_0) bytes += DivideUp(n, kLanes) * DivideUp(k, kBlock) * kLanes * 2;
  return bytes;
}

PackedMatrix DescribePacked(WeightType type, uint32_t n, uint32_t k, const std::byte* storage) {
  PackedMatrix m;
  m.type = type;
  m.n = n;
  m.k = k;
  m.panels = storage;
  m.panel_stride_bytes = PanelBytes(type, k);
  if (type == WeightType::kQ8_0) {
    m.scales = reinterpret_cast<const uint16_t*>(storage + RoundUp(PanelsBytes(type, n, k), 64));
    m.scale_panel_stride = DivideUp(k, kBlock) * kLanes;
  }
  return m;
}

void PackRows(WeightType type, uint32_t n, uint32_t k, uint32_t first, uint32_t rows,
              const std::byte* data, size_t row_bytes, std::byte* storage) {
  TESSERA_CHECK(uint64_t{first} + rows <= n);
  const size_t panel_bytes = PanelBytes(type, k);
  std::byte* scales = storage + RoundUp(PanelsBytes(type, n, k), 64);
  const size_t scale_panel_bytes = DivideUp(k, kBlock) * kLanes * 2;
  for (uint32_t row = 0; row < rows;) {
    const uint32_t panel_index = (first + row) / kLanes;
    const uint32_t lane = (first + row) % kLanes;
    const uint32_t count = rows - row < kLanes - lane ? rows - row : kLanes - lane;
    std::byte* panel = storage + panel_index * panel_bytes;
    for (uint32_t begin = 0; begin < k; begin += kPassInputs) {
      const uint32_t end = k - begin < kPassInputs ? k : begin + kPassInputs;
      for (uint32_t i = 0; i < count; ++i) {
        const std::byte* from = data + (row + i) * row_bytes;
        switch (type) {
          case WeightType::kF32:
            PackElements<4>(from, begin, end, lane + i, 1, panel);
            break;
          case WeightType::kF16:
            PackElements<2>(from, begin, end, lane + i, 1, panel);
            break;
          case WeightType::kBF16:
            PackElements<2>(from, begin, end, lane + i, 2, panel);
            break;
          case WeightType::kQ8_0:
            PackQ8Row(from, begin, end, k, lane + i, panel,
                      scales + panel_index * scale_panel_bytes);
            break;
        }
      }
    }
    row += count;
  }
}

}  // namespace tessera
