// SPDX-License-Identifier: Apache-2.0
//
// InputRows holds the activation rows a group of matrices reads, in each form its weight types want
// (numerics R0b): fp32 as computed, bf16, int8 with a scale per 32 or 256 elements. Prepare rounds
// one row into the forms that are asked for, once, however many matrices read it.
//
// Threads: calls for different rows may run at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/bytes.h"
#include "compute/kernels/kernel_table.h"
#include "compute/kernels/packed_matrix.h"

namespace tessera {

// Which forms a group of matrices needs.
struct FormSet {
  bool bf16 = false;
  bool int8 = false;
  bool int8_k = false;

  static FormSet Of(std::initializer_list<const PackedMatrix*> matrices) {
    FormSet forms;
    for (const PackedMatrix* matrix : matrices) {
      forms.bf16 |= matrix->input_form() == InputForm::kBF16;
      forms.int8 |= matrix->input_form() == InputForm::kInt8;
      forms.int8_k |= matrix->input_form() == InputForm::kInt8K;
    }
    return forms;
  }
  FormSet operator|(FormSet other) const {
    return {bf16 || other.bf16, int8 || other.int8, int8_k || other.int8_k};
  }
};

struct InputRows {
  // Rows start at multiples of 64 bytes, so that no two share a cache line.
  static constexpr size_t Stride(uint32_t k, size_t element_bytes) {
    return RoundUp(RoundUp(k, 32) * element_bytes, 64) / element_bytes;
  }

  uint32_t k = 0;
  float* f32 = nullptr;
  size_t f32_stride = 0;
  uint16_t* bf16 = nullptr;
  int8_t* int8 = nullptr;
  float* scales = nullptr;  // of blocks of 32
  int32_t* sums = nullptr;
  // Per block of 256; null where k is no multiple of it, and so no row of a K type.
  int8_t* int8_k = nullptr;
  float* k_scales = nullptr;
  int32_t* k_sums = nullptr;

  size_t bf16_stride() const { return Stride(k, 2); }
  size_t int8_stride() const { return Stride(k, 1); }
  size_t block_stride() const { return Stride(static_cast<uint32_t>(DivideUp(k, 32)), 4); }

  uint32_t super_blocks() const { return k % 256 == 0 ? k / 256 : 0; }
  size_t super_block_stride() const { return Stride(super_blocks(), 4); }
  size_t k_sum_stride() const { return Stride(super_blocks() * kKSumWords, 4); }

  float* Row(uint32_t row) const { return f32 + row * f32_stride; }
  // From the fp32 row to the other forms.
  void Prepare(const KernelTable& kernels, FormSet forms, uint32_t row) const;
  GemmInput For(InputForm form) const;
};

}  // namespace tessera
