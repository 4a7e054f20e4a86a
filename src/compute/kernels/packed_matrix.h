// SPDX-License-Identifier: Apache-2.0
//
// PackedMatrix is a weight matrix laid out for the GEMM kernels: panels of 16 output columns, so
// that vector lanes run along the outputs, in groups of 4 panels. One layout serves every
// instruction set.
//
// A panel is a sequence of units, k ascending; a group stores unit 0 of its 4 panels, then unit 1
// of each, and so on. So a product of 64 columns reads memory strictly forward: bf16 weights then
// arrive at 31.8 GB/s, against 27.7 as streams side by side (one core, which can read 33).
//
//   f32, f16   1 input:            [16] in the file's own type
//   bf16       2 inputs:           [16][2]
//   q8_0       2 blocks of 32:     f16 d[2][16] | u8 w+128 [2][8][16][4]
//   q4_0       2 blocks of 32:     f16 d[2][16] | nibbles [2][4][16][4]
//   q4_k       a block of 256:     f16 d[16] dmin[16] | u8 scale[8][16] | u8 min[2][16][4] |
//                                  nibbles [8][4][16][4]
//   q6_k       a block of 256:     f16 d[16], 32 bytes unused | i8 scale[16][16] | 4 quarters:
//                                  nibbles [8][16][4], pairs of bits [4][16][4]
//
// Nibbles [4][16][4] are 32 inputs of each output: byte e of vector j has input 4j + e in its low
// half and 16 + 4j + e in its high one. A quarter of q6_k is 64 inputs, so 32 in each half; byte e
// of vector i of its pairs has the upper two bits of input 16f + 4i + e at bit 2f. So unpacking is
// a shift and a mask. A unit has as many bytes as the file's blocks, but for the scales of q4_k,
// which are a byte each here (2.8 % more), and the unused ones of q6_k (1 %).
//
// n is padded to 64 and k to the type's unit, with zero bytes. Of a short last block of q8_0 and
// q4_0 the whole block is packed: the activations it meets there are zeros.
// A view of part of k may start at any unit, so group_stride_bytes does not follow from k.
//
// PackedMatrix is a view; whoever packed owns the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/tensor/quant_blocks.h"

namespace tessera {

enum class WeightType : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ4_0, kQ4_K, kQ6_K };
inline constexpr WeightType kWeightTypes[] = {
    WeightType::kF32,  WeightType::kF16,  WeightType::kBF16, WeightType::kQ8_0,
    WeightType::kQ4_0, WeightType::kQ4_K, WeightType::kQ6_K};

// "f32", "bf16", "q8_0" …: as GGUF names it, in lower case.
constexpr const char* WeightTypeName(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return "f32";
    case WeightType::kF16:
      return "f16";
    case WeightType::kBF16:
      return "bf16";
    case WeightType::kQ8_0:
      return "q8_0";
    case WeightType::kQ4_0:
      return "q4_0";
    case WeightType::kQ4_K:
      return "q4_k";
    case WeightType::kQ6_K:
      return "q6_k";
  }
  return "?";
}

// How activations are rounded before they meet weights of a type: kInt8 per block of 32, kInt8K per
// block of 256.
enum class InputForm : uint8_t { kF32, kBF16, kInt8, kInt8K };

constexpr InputForm InputFormOf(WeightType type) {
  switch (type) {
    case WeightType::kBF16:
      return InputForm::kBF16;
    case WeightType::kQ8_0:
    case WeightType::kQ4_0:
      return InputForm::kInt8;
    case WeightType::kQ4_K:
    case WeightType::kQ6_K:
      return InputForm::kInt8K;
    case WeightType::kF32:
    case WeightType::kF16:
      return InputForm::kF32;
  }
  return InputForm::kF32;
}

inline constexpr uint32_t kPanelColumns = 16;
inline constexpr uint32_t kGroupPanels = 4;
inline constexpr uint32_t kGroupColumns = kGroupPanels * kPanelColumns;

// Where the parts of a quantised unit begin. First, for all of them, the f16: of a type with blocks
// of 32 the d of the first block, then of the second; of q4_k d, then dmin; of q6_k d.
inline constexpr uint32_t kUnitHalfBytes = 2 * kPanelColumns;  // an f16 of each output
inline constexpr uint32_t kUnitBody = 2 * kUnitHalfBytes;      // what follows them
struct Q4KUnit {
  static constexpr uint32_t kScales = kUnitBody;
  static constexpr uint32_t kMins = kScales + 8 * kPanelColumns;
  static constexpr uint32_t kWeights = kMins + 8 * kPanelColumns;
  static constexpr uint32_t kSubBytes = 32 * kPanelColumns / 2;  // the nibbles of a sub-block
  static constexpr uint32_t kBytes = kWeights + 8 * kSubBytes;
};
struct Q6KUnit {
  static constexpr uint32_t kScales = kUnitBody;
  static constexpr uint32_t kWeights = kScales + 16 * kPanelColumns;
  static constexpr uint32_t kPairs = 64 * kPanelColumns / 2;  // in a quarter, after its nibbles
  static constexpr uint32_t kQuarterBytes = kPairs + 64 * kPanelColumns / 4;
  static constexpr uint32_t kBytes = kWeights + 4 * kQuarterBytes;
};
static_assert(Q4KUnit::kMins == 192 && Q4KUnit::kWeights == 320 && Q4KUnit::kBytes == 2368);
static_assert(Q6KUnit::kWeights == 320 && Q6KUnit::kQuarterBytes == 768);
static_assert(Q6KUnit::kBytes == 3392);

// The inputs that lie together in a panel, and their bytes for its 16 outputs.
struct PackedUnit {
  uint32_t k;
  uint32_t bytes;
};
constexpr PackedUnit PackedUnitOf(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return {1, kPanelColumns * 4};
    case WeightType::kF16:
      return {1, kPanelColumns * 2};
    case WeightType::kBF16:
      return {2, kPanelColumns * 2 * 2};
    case WeightType::kQ8_0:
      return {2 * kSmallBlock, kUnitBody + 2 * kSmallBlock * kPanelColumns};
    case WeightType::kQ4_0:
      return {2 * kSmallBlock, kUnitBody + 2 * kSmallBlock * kPanelColumns / 2};
    case WeightType::kQ4_K:
      return {kSuperBlock, Q4KUnit::kBytes};
    case WeightType::kQ6_K:
      return {kSuperBlock, Q6KUnit::kBytes};
  }
  return {};
}

struct PackedMatrix {
  WeightType type = WeightType::kF32;
  uint32_t n = 0;  // outputs
  uint32_t k = 0;  // inputs
  const std::byte* groups = nullptr;
  size_t group_stride_bytes = 0;

  uint32_t panel_count() const { return (n + kPanelColumns - 1) / kPanelColumns; }
  // Unit 0 of a panel; the next is unit_stride_bytes() further.
  const std::byte* Panel(uint32_t panel) const {
    return groups + panel / kGroupPanels * group_stride_bytes +
           panel % kGroupPanels * PackedUnitOf(type).bytes;
  }
  size_t unit_stride_bytes() const { return size_t{kGroupPanels} * PackedUnitOf(type).bytes; }
  InputForm input_form() const { return InputFormOf(type); }
};

// Bytes PackRows needs for an n × k matrix.
size_t PackedBytesNeeded(WeightType type, uint32_t n, uint32_t k);

// Packs `rows` consecutive outputs, from output `first` of the matrix on, out of row-major file
// data (rows `row_bytes` apart, blocks along k). k of a K type is a multiple of 256. `storage`
// holds PackedBytesNeeded(type, n, k) zeroed bytes. Several calls may fill one matrix (a fused one,
// or in parallel by multiples of kGroupColumns rows).
void PackRows(WeightType type, uint32_t n, uint32_t k, uint32_t first, uint32_t rows,
              const std::byte* data, size_t row_bytes, std::byte* storage);
PackedMatrix DescribePacked(WeightType type, uint32_t n, uint32_t k, const std::byte* storage);

}  // namespace tessera
