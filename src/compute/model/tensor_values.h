// SPDX-License-Identifier: Apache-2.0
//
// The values of a tensor row as fp32, for what is read by element: norms, biases, convolution taps
// and embedding rows. Each value is exact for F32, F16 and BF16; for Q8_0 it is q·d rounded once.
//
// Also: which tensor types are weights the GEMM kernels know. A type joins by a line in each
// function.
//
// Threads: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "compute/gguf/gguf_types.h"
#include "compute/kernels/packed_matrix.h"

namespace tessera {

inline constexpr std::string_view kMatrixTypes = "F32, F16, BF16, Q8_0";
inline constexpr std::string_view kSmallTensorTypes = "F32, F16, BF16";

// nullopt: a matrix of this type cannot be packed.
std::optional<WeightType> WeightTypeOf(GgufTensorType type);
bool IsSmallTensorType(GgufTensorType type);

// `count` values from the start of a row in the file's form; whole blocks.
void ReadRow(WeightType type, const std::byte* row, uint32_t count, float* values);
// The values of output `row` of a packed matrix, k of them: the same as ReadRow gives for the row
// it was packed from.
void ReadPackedRow(const PackedMatrix& matrix, uint32_t row, float* values);

}  // namespace tessera
