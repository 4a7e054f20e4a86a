// SPDX-License-Identifier: Apache-2.0
//
// The matrix product of the numerics contract as plain loops over single numbers: weights are read
// from the file's bytes, activations are rounded here, every step is one std::fma or one integer
// product. It shares no code with the kernels, their packing or their rounding of activations, so a
// mistake they have in common shows here.
//
//   f32, f16   acc = fma(a_k, w_k, acc), k ascending
//   bf16       activations to bf16; per pair acc = fma(a_odd, w_odd, acc), then the even one
//   q8_0 q4_0  activations to int8 per 32, d_a = amax/127; acc = fma(float(dot), d_w·d_a, acc)
//   q4_k q6_k  activations to int8 per 256; acc = fma(float(Σ scale·dot), d·d_a, acc), then where
//              there are minimums acc = fma(-float(Σ min·Σa), dmin·d_a, acc)
//
// Threads: pure; it sets the float environment itself.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "verify/product_case.h"

namespace tessera {

// How the product is added up: as the contract says, or in one of the ways engines get wrong.
enum class ProductForm : uint8_t {
  kContract,
  kPairsSwapped,      // bf16: the even product of a pair before the odd one
  kHalvesAdded,       // two sums over half the inputs each, then added (split-K)
  kBlocksDescending,  // quantised: the last block first
  kScalePerRow,       // quantised: one activation scale for all inputs of a row
  kScalePerBatch,     // quantised: activation scales from all rows of the batch
};
std::span<const ProductForm> WrongProductForms();
std::string_view ProductFormName(ProductForm form);
// False where the form gives the contract's bits whatever the values are.
bool ProductFormDiffers(ProductForm form, const ProductCase& c);

// [rows][n]. `form` must differ for the case, or be the contract's.
std::vector<float> ChainProduct(const ProductCase& c, ProductForm form);

}  // namespace tessera
