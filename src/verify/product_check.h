// SPDX-License-Identifier: Apache-2.0
//
// CheckProducts holds every kernel table's matrix products against oracles that share nothing with
// it: the plain chain of product_oracle.h for every weight type, libxsmm for bf16. Cells of the
// matrix are compared with a reference that the same kernels made; here the reference is the
// contract's own text.
//
// The oracle multiplies all rows once; a table multiplies them in calls of 1, 2, 7, 16 and all
// rows, its inputs rounded by itself, and each time every output must have the oracle's bits. Then
// each control: the oracle adds up in a wrong way, and the comparison must notice.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "compute/kernels/kernel_table.h"
#include "compute/model/model.h"
#include "verify/libxsmm_product.h"
#include "verify/product_case.h"
#include "verify/product_oracle.h"

namespace tessera {

enum class ProductOracle : uint8_t { kChain, kLibxsmm };
std::string_view ProductOracleName(ProductOracle oracle);

// All products of one weight type by one table against one oracle.
struct ProductComparison {
  std::string kernels;
  GgufTensorType type = GgufTensorType::kF32;
  ProductOracle oracle = ProductOracle::kChain;
  uint64_t outputs = 0;
  uint64_t differing = 0;
  std::string first;  // the first that differs: shape, values, place, both bit patterns
};

// One wrong form of one oracle; noticed when the fastest table's outputs differ from it anywhere.
struct ProductControl {
  GgufTensorType type = GgufTensorType::kF32;
  ProductOracle oracle = ProductOracle::kChain;
  ProductForm form = ProductForm::kContract;
  uint64_t outputs = 0;
  uint64_t differing = 0;

  bool noticed() const { return differing > 0; }
};

struct ProductCheck {
  std::vector<ProductShape> shapes;
  uint32_t model_shapes = 0;  // so many of them are the given model's
  std::vector<ProductComparison> comparisons;
  std::vector<ProductControl> controls;
  std::string no_libxsmm;        // why libxsmm was no oracle; empty when it was
  uint32_t libxsmm_cases = 0;    // that it multiplied
  uint32_t libxsmm_refused = 0;  // that it made no kernel for; the other oracle had them alone
  std::string first_refused;     // "n × k"
  double seconds = 0;

  uint64_t outputs() const;
  bool failed() const;  // a difference, or a control that was not noticed
};

struct ProductCheckOptions {
  // [0] slow but simple, the last the fastest; controls use the last.
  std::span<const KernelTable* const> kernels;
  std::vector<ProductShape> model_shapes;
  bool quick = false;
  uint64_t seed = 1;
  std::vector<float> (*libxsmm)(const LibxsmmOperands&) = LibxsmmProduct;  // tests replace it
};

// The shapes of the model's matrices, each once.
std::vector<ProductShape> MatrixShapes(const Model& model);

ProductCheck CheckProducts(const ProductCheckOptions& options);

}  // namespace tessera
