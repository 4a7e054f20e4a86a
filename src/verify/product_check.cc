// SPDX-License-Identifier: Apache-2.0
#include "verify/product_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <utility>

#include "base/bytes.h"
#include "base/random.h"
#include "compute/model/for_each_matrix.h"
#include "compute/tensor/number_formats.h"
#include "verify/table_product.h"

namespace tessera {
namespace {

// Rows per call. One, two and an odd number take the paths of a decode step, 16 and more a chunk's.
constexpr uint32_t kCallRows[] = {1, 2, 7, 16, 24};
constexpr uint32_t kRows = 24;

// One input and two; tails of outputs and inputs; more than one tile of either.
constexpr ProductShape kOwnShapes[] = {{1, 1},    {16, 2},   {17, 33},  {40, 64},
                                       {65, 96},  {33, 255}, {70, 256}, {80, 514},
                                       {48, 768}, {9, 1024}, {130, 320}};

// Outputs of a large matrix are so many that their product with k stays below this.
constexpr uint32_t kWeightsMax = 1 << 18;
constexpr uint32_t kQuickWeightsMax = 1 << 13;

// What the oracles say of one case.
struct Wanted {
  ProductOracle oracle;
  std::vector<float> outputs;  // [rows][n]
};

// bf16 operands for libxsmm, changed as the form says: swapping both partners of every pair makes
// its odd product our even one.
struct Bf16Operands {
  std::vector<uint16_t> activations;  // [rows][k]
  std::vector<uint16_t> weights;      // [n][k]
  uint32_t k;
};

Bf16Operands OperandsOf(const ProductCase& c, uint32_t begin, uint32_t end, bool swap_pairs) {
  Bf16Operands operands{{}, {}, end - begin};
  const auto partner = [&](uint32_t i) {
    const uint32_t other = begin + ((i - begin) ^ 1u);
    return swap_pairs && other < end ? other : i;
  };
  for (uint32_t row = 0; row < c.rows; ++row) {
    for (uint32_t i = begin; i < end; ++i) {
      operands.activations.push_back(FloatToBf16(c.Activations(row)[partner(i)]));
    }
  }
  for (uint32_t n = 0; n < c.shape.n; ++n) {
    for (uint32_t i = begin; i < end; ++i) {
      const std::byte* at = c.WeightRow(n) + size_t{partner(i)} * 2;
      operands.weights.push_back(static_cast<uint16_t>(std::to_integer<uint32_t>(at[0]) |
                                                       std::to_integer<uint32_t>(at[1]) << 8));
    }
  }
  return operands;
}

std::string Describe(const ProductCase& c, uint32_t call_rows, size_t index, float wanted,
                     float found) {
  return fmt::format(
      "{} × {}, {} values, {} rows a call, row {}, output {}: expected {:08x}, got {:08x}",
      c.shape.n, c.shape.k, ProductValuesName(c.values), call_rows, index / c.shape.n,
      index % c.shape.n, std::bit_cast<uint32_t>(wanted), std::bit_cast<uint32_t>(found));
}

void Compare(const ProductCase& c, uint32_t call_rows, const std::vector<float>& wanted,
             const std::vector<float>& found, ProductComparison* comparison) {
  comparison->outputs += found.size();
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::bit_cast<uint32_t>(wanted[i]) == std::bit_cast<uint32_t>(found[i])) continue;
    if (comparison->differing++ == 0) {
      comparison->first = Describe(c, call_rows, i, wanted[i], found[i]);
    }
  }
}

uint64_t Differing(const std::vector<float>& a, const std::vector<float>& b) {
  uint64_t differing = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    differing += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]) ? 1 : 0;
  }
  return differing;
}

class Checker {
 public:
  explicit Checker(const ProductCheckOptions& options) : options_(options) {
    check_.no_libxsmm = WhyNoLibxsmm();
    for (const ProductShape& shape : options.model_shapes) AddShape(shape);
    check_.model_shapes = static_cast<uint32_t>(check_.shapes.size());
    for (const ProductShape& shape : kOwnShapes) AddShape(shape);
  }

  ProductCheck Run() {
    const auto start = std::chrono::steady_clock::now();
    for (const ProductType& type : ProductTypes()) {
      for (uint32_t shape = 0; shape < check_.shapes.size(); ++shape) CheckShape(type, shape);
    }
    if (check_.libxsmm_cases == 0 && check_.libxsmm_refused > 0) {
      check_.no_libxsmm = fmt::format("it makes no kernel for {}", check_.first_refused);
    }
    check_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(check_);
  }

 private:
  void AddShape(ProductShape shape) {
    const uint32_t weights_max = options_.quick ? kQuickWeightsMax : kWeightsMax;
    const uint32_t most = std::max(weights_max / shape.k, options_.quick ? 32u : 64u);
    if (shape.n > most) shape.n = most / 16 * 16 + shape.n % 16;  // the tail stays
    const auto& shapes = check_.shapes;
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) {
      check_.shapes.push_back(shape);
    }
  }

  // Quick: two kinds of values a shape, so that two shapes have them all.
  void CheckShape(const ProductType& type, uint32_t shape) {
    const uint32_t kinds = static_cast<uint32_t>(std::size(kProductValues));
    for (uint32_t kind = 0; kind < kinds; ++kind) {
      if (options_.quick && kind / 2 != shape % 2) continue;
      const uint64_t seed = CounterRandom(
          options_.seed, (uint64_t{shape} * kinds + kind) << 8 | static_cast<uint64_t>(type.file));
      CheckCase(type, MakeProductCase(type.file, check_.shapes[shape], kRows, kProductValues[kind],
                                      seed));
    }
  }

  std::vector<float> LibxsmmPart(const ProductCase& c, uint32_t begin, uint32_t end,
                                 bool swap_pairs) const {
    const Bf16Operands operands = OperandsOf(c, begin, end, swap_pairs);
    return options_.libxsmm({.rows = c.rows,
                             .n = c.shape.n,
                             .k = operands.k,
                             .activations = operands.activations,
                             .weights = operands.weights});
  }

  // Empty when it makes no kernel for the shape.
  std::vector<float> ByLibxsmm(const ProductCase& c, ProductForm form) const {
    const uint32_t k = c.shape.k;
    if (form != ProductForm::kHalvesAdded) {
      return LibxsmmPart(c, 0, k, form == ProductForm::kPairsSwapped);
    }
    std::vector<float> sum = LibxsmmPart(c, 0, k / 4 * 2, false);
    const std::vector<float> second = LibxsmmPart(c, k / 4 * 2, k, false);
    if (sum.size() != second.size()) return {};
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += second[i];
    return sum;
  }

  std::vector<float> ByOracle(ProductOracle oracle, const ProductCase& c, ProductForm form) const {
    return oracle == ProductOracle::kChain ? ChainProduct(c, form) : ByLibxsmm(c, form);
  }

  void AskLibxsmm(const ProductCase& c, std::vector<Wanted>* wanted) {
    std::vector<float> outputs = ByLibxsmm(c, ProductForm::kContract);
    if (!outputs.empty()) {
      ++check_.libxsmm_cases;
      wanted->push_back({ProductOracle::kLibxsmm, std::move(outputs)});
    } else if (check_.libxsmm_refused++ == 0) {
      check_.first_refused = fmt::format("{} × {}", c.shape.n, c.shape.k);
    }
  }

  void CheckCase(const ProductType& type, const ProductCase& c) {
    std::vector<Wanted> wanted = {{ProductOracle::kChain, ChainProduct(c, ProductForm::kContract)}};
    if (type.file == GgufTensorType::kBF16 && check_.no_libxsmm.empty()) {
      AskLibxsmm(c, &wanted);
    }
    const PackedProduct packed(type.packed, c);
    std::vector<float> found;
    for (const KernelTable* kernels : options_.kernels) {
      for (uint32_t call_rows : kCallRows) {
        found = packed.Multiply(*kernels, call_rows);
        for (const Wanted& want : wanted) {
          Compare(c, call_rows, want.outputs, found, ComparisonOf(*kernels, c.type, want.oracle));
        }
      }
    }
    for (const Wanted& want : wanted) RunControls(c, want.oracle, found);
  }

  void RunControls(const ProductCase& c, ProductOracle oracle, const std::vector<float>& found) {
    for (ProductForm form : WrongProductForms()) {
      if (!ProductFormDiffers(form, c)) continue;
      ProductControl* control = ControlOf(c.type, oracle, form);
      // Enough to know: the wrong forms take as long as the right one.
      if (control->noticed()) continue;
      const std::vector<float> wrong = ByOracle(oracle, c, form);
      control->outputs += wrong.size();
      control->differing += Differing(wrong, found);
    }
  }

  ProductComparison* ComparisonOf(const KernelTable& kernels, GgufTensorType type,
                                  ProductOracle oracle) {
    for (ProductComparison& comparison : check_.comparisons) {
      if (comparison.kernels == kernels.isa && comparison.type == type &&
          comparison.oracle == oracle) {
        return &comparison;
      }
    }
    ProductComparison& added = check_.comparisons.emplace_back();
    added.kernels = kernels.isa;
    added.type = type;
    added.oracle = oracle;
    return &added;
  }

  ProductControl* ControlOf(GgufTensorType type, ProductOracle oracle, ProductForm form) {
    for (ProductControl& control : check_.controls) {
      if (control.type == type && control.oracle == oracle && control.form == form) return &control;
    }
    check_.controls.push_back({.type = type, .oracle = oracle, .form = form});
    return &check_.controls.back();
  }

  const ProductCheckOptions& options_;
  ProductCheck check_;
};

}  // namespace

std::string_view ProductOracleName(ProductOracle oracle) {
  return oracle == ProductOracle::kChain ? "fma chain" : "libxsmm";
}

uint64_t ProductCheck::outputs() const {
  uint64_t outputs = 0;
  for (const ProductComparison& comparison : comparisons) outputs += comparison.outputs;
  return outputs;
}

bool ProductCheck::failed() const {
  return std::any_of(comparisons.begin(), comparisons.end(),
                     [](const ProductComparison& c) { return c.differing > 0; }) ||
         std::any_of(controls.begin(), controls.end(),
                     [](const ProductControl& control) { return !control.noticed(); });
}

std::vector<ProductShape> MatrixShapes(const Model& model) {
  std::vector<ProductShape> shapes;
  ForEachMatrix(model, [&](const PackedMatrix& matrix) {
    const ProductShape shape{matrix.n, matrix.k};
    if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
  });
  return shapes;
}

ProductCheck CheckProducts(const ProductCheckOptions& options) { return Checker(options).Run(); }

}  // namespace tessera
