// SPDX-License-Identifier: Apache-2.0
//
// PackedMatrix is a weight matrix laid out for the GEMM kernels: panels of 16 output columns, so that
// vector lanes run along the outputs, in groups of 4 panels. One layout serves every instruction set.
//
// A panel is a sequence of units, k ascending; a group stores unit 0 of its 4 panels, then unit 1 of
// each, and so on. So a product of 64 columns reads memory strictly forward, which takes up to 15 %
// less time than 4 or 8 streams side by side (docs/performance.md).
//
//   f32, f16   1 input:            [16] in the file's own type
//   bf16       2 inputs:           [16][2]
//   q8_0       2 blocks of 32:     f16 d[2][16] | u8 w+128 [2][8][16][4]
//   q4_0       2 blocks of 32:     f16 d[2][16] | nibbles [2][4][16][4]
//   q4_k       a block of 256:     f16 d[16] dmin[16] | u8 scale[8][16] | u8 min[2][16][4] |
//                                  nibbles [8][4][16][4]
//   q6_k       a block of 256:     f16 d[16], 32 bytes unused | i8 scale[16][16] |
//                                  4 times (nibbles [8][16][4], pairs of bits [4][16][4])
//
// Nibbles [4][16][4] are 32 inputs of each output: byte e of vector j has input 4j + e in its low
// half and 16 + 4j + e in its high one. Those of q6_k are 64 inputs, 32 in each half; byte e of
// vector i of its pairs has the upper bits of inputs 16f + 4i + e at bit 2f. So unpacking is a
// shift and a mask, and a unit has no more bytes than the file (q6_k: 1 % more).
//
// n is padded to 64 and k to the type's unit with zeros, that of the quantised types to their blocks.
// A view of part of k may start at any unit, so group_stride_bytes is apart from k.
//
// PackedMatrix is a view; whoever packed owns the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

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
    default:
      return InputForm::kF32;
  }
}

// The inputs that lie together in a panel, and their bytes for its 16 outputs.
struct PackedUnit {
  uint32_t k;
  uint32_t bytes;
};
constexpr PackedUnit PackedUnitOf(WeightType type) {
  switch (type) {
    case WeightType::kF32:
      return {1, 16 * 4};
    case WeightType::kF16:
      return {1, 16 * 2};
    case WeightType::kBF16:
      return {2, 2 * 16 * 2};
    case WeightType::kQ8_0:
      return {64, 2 * 16 * 2 + 64 * 16};
    case WeightType::kQ4_0:
      return {64, 2 * 16 * 2 + 64 * 16 / 2};
    case WeightType::kQ4_K:
      return {256, 2 * 16 * 2 + 2 * 8 * 16 + 256 * 16 / 2};
    case WeightType::kQ6_K:
      return {256, 2 * 16 * 2 + 16 * 16 + 256 * 16 * 6 / 8};
  }
  return {};
}

inline constexpr uint32_t kGroupPanels = 4;

struct PackedMatrix {
  WeightType type = WeightType::kF32;
  uint32_t n = 0;  // outputs
  uint32_t k = 0;  // inputs
  const std::byte* groups = nullptr;
  size_t group_stride_bytes = 0;

  uint32_t panel_count() const { return (n + 15) / 16; }
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

// Packs `rows` consecutive outputs, from output `first` of the matrix on, out of row-major file data
// (rows `row_bytes` apart, blocks along k). `storage` holds PackedBytesNeeded(type, n, k) zeroed
// bytes. Several calls may fill one matrix (a fused one, or in parallel by multiples of 64 rows).
void PackRows(WeightType type, uint32_t n, uint32_t k, uint32_t first, uint32_t rows,
              const std::byte* data, size_t row_bytes, std::byte* storage);
PackedMatrix DescribePacked(WeightType type, uint32_t n, uint32_t k, const std::byte* storage);

}  // namespace tessera
