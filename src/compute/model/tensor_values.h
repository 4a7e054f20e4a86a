// SPDX-License-Identifier: Apache-2.0
//
// The values of a tensor row as fp32, for what is read by element: norms, biases, convolution taps
// and embedding rows; and which tensor types are weights the GEMM kernels know. A type joins by a
// line in the list of tensor_values.cc and its name in kMatrixTypes (model_test compares them).
//
//   multiplied as they are   F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q6_K: the value is that of the
//                            file's formula, in fp32
//   dequantised at load      Q4_1, Q5_0, Q5_1, Q5_K, Q2_K, Q3_K: the formula's value rounded to
//                            bf16
//
// A tensor of the second kind is the bf16 tensor it becomes, wherever it is read: an embedding
// table gives the same rows whether the output head is tied to it or not.
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

inline constexpr std::string_view kMatrixTypes =
    "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K";
inline constexpr std::string_view kSmallTensorTypes = "F32, F16, BF16";

// What a matrix of this type is packed as; nullopt: it cannot be.
std::optional<WeightType> WeightTypeOf(GgufTensorType type);
bool IsDequantisedAtLoad(GgufTensorType type);
bool IsSmallTensorType(GgufTensorType type);

// `count` values from the start of a row in the file's form.
void ReadRow(GgufTensorType type, const std::byte* row, uint32_t count, float* values);
// The values of output `row` of a packed matrix, k of them: the same as ReadRow gives for the row
// it was packed from.
void ReadPackedRow(const PackedMatrix& matrix, uint32_t row, float* values);

}  // namespace tessera
