// SPDX-License-Identifier: Apache-2.0
#include "bench/invariance_bench.h"

#include <fmt/format.h>

#include <memory>
#include <string_view>

#include "base/bytes.h"
#include "bench/gemm_operands.h"
#include "bench/gemm_variants.h"

namespace tessera {
namespace {

constexpr uint32_t kRows[] = {1, 4, 8, 24, 96};
constexpr uint32_t kRowsMax = 96;
constexpr uint32_t kMemoryInputs = 3072;
constexpr uint32_t kCacheInputs = 1024;
constexpr uint64_t kCacheBytes = 512 * kKiB;

using Operands = std::shared_ptr<GemmOperands>;

// The same bytes serve in either form of the matrix.
GemmVariantArgs VariantArgs(const GemmArgs& args, const std::byte* weights) {
  GemmVariantArgs made;
  made.panels = weights;
  made.rows = weights;
  made.n = args.weights->n;
  made.k = args.weights->k;
  made.input = static_cast<const uint16_t*>(args.input.data);
  made.input_stride = args.input.row_stride_bytes / sizeof(uint16_t);
  made.count = args.rows;
  made.output = args.output;
  return made;
}

InvarianceCase MakeCase(const KernelTable& kernels, Crew& crew, const Operands& operands,
                        const std::byte* weights, const GemmVariant& variant, uint32_t rows,
                        bool memory) {
  InvarianceCase made;
  made.rows = rows;
  made.from = memory ? "memory" : "L2";
  made.variant = variant.name;
  const auto args = [=] { return operands->Args(rows, 0, operands->matrix().panel_count()); };
  for (BenchCase* bench : {&made.pair.base, &made.pair.candidate}) {
    bench->name = fmt::format("invariance.{}.m{}.{}", made.from, rows, variant.name);
    bench->from = made.from;
    bench->crew = &crew;
    bench->floor = operands->FloorOf(rows, memory);
  }
  made.pair.base.call = [=, run = variant.run](int) { run(VariantArgs(args(), weights)); };
  made.pair.candidate.call = [=, gemm = kernels.gemm](int) { gemm(args()); };
  return made;
}

}  // namespace

std::vector<InvarianceCase> MakeInvarianceCases(const KernelTable& kernels, Crew& crew,
                                                const BenchMemory& memory) {
  std::vector<InvarianceCase> cases;
  if (std::string_view(kernels.isa) != "avx512") return cases;
  for (bool from_memory : {true, false}) {
    const uint32_t k = from_memory ? kMemoryInputs : kCacheInputs;
    const uint64_t bytes = from_memory ? memory.matrix_bytes() : kCacheBytes;
    const uint32_t n = GemmOperands::OutputsOf(WeightType::kBF16, k, bytes);
    const auto operands = std::make_shared<GemmOperands>(kernels, WeightType::kBF16, n, k, kRowsMax,
                                                         memory.weights());
    for (uint32_t rows : kRows) {
      for (const GemmVariant& variant : Avx512GemmVariants()) {
        cases.push_back(
            MakeCase(kernels, crew, operands, memory.weights(), variant, rows, from_memory));
      }
    }
  }
  return cases;
}

}  // namespace tessera
