// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <memory>

#include "base/bytes.h"
#include "bench/gemm_operands.h"
#include "bench/kernel_cases.h"

namespace tessera {
namespace {

constexpr uint32_t kRows[] = {1, 2, 4, 6, 8, 12, 16, 24, 48, 96};
constexpr uint32_t kRowsMax = 96;
constexpr uint32_t kMemoryInputs = 3072;
// 512 KiB of bf16: half of the smallest L2 with AVX-512.
constexpr uint32_t kCacheInputs = 1024;
constexpr uint64_t kCacheBytes = 512 * kKiB;

constexpr uint32_t kPanelStep = 8;

// Whole groups of kPanelStep panels for each member, as even as can be.
uint32_t FirstPanel(uint32_t panels, int member, int members) {
  const uint32_t steps = panels / kPanelStep;
  return static_cast<uint32_t>(member) * steps / static_cast<uint32_t>(members) * kPanelStep;
}

BenchCase MakeCase(const KernelBenchContext& context, WeightType type, uint32_t rows, bool memory) {
  BenchCase bench;
  const char* from = memory ? "memory" : "L2";
  bench.name = fmt::format("gemm.{}.{}.m{}", WeightTypeName(type), from, rows);
  bench.from = from;
  bench.crew = &context.crew;
  return bench;
}

void AddFromMemory(const KernelBenchContext& context, WeightType type,
                   std::vector<BenchCase>* cases) {
  const uint32_t n = GemmOperands::OutputsOf(type, kMemoryInputs, context.memory.matrix_bytes());
  const auto operands = std::make_shared<GemmOperands>(context.kernels, type, n, kMemoryInputs,
                                                       kRowsMax, context.memory.weights());
  const int members = context.crew.threads();
  for (uint32_t rows : kRows) {
    BenchCase bench = MakeCase(context, type, rows, true);
    bench.floor = operands->FloorOf(rows, true);
    bench.call = [=, gemm = context.kernels.gemm](int member) {
      const uint32_t panels = operands->matrix().panel_count();
      gemm(operands->Args(rows, FirstPanel(panels, member, members),
                          FirstPanel(panels, member + 1, members)));
    };
    cases->push_back(std::move(bench));
  }
}

void AddFromCache(const KernelBenchContext& context, WeightType type,
                  std::vector<BenchCase>* cases) {
  const uint32_t n = GemmOperands::OutputsOf(type, kCacheInputs, kCacheBytes);
  const int members = context.crew.threads();
  auto operands = std::make_shared<std::vector<GemmOperands>>();
  const uint64_t part = context.memory.matrix_bytes() / static_cast<uint64_t>(members);
  for (int member = 0; member < members; ++member) {
    const uint64_t at = part * static_cast<uint64_t>(member) / 64 * 64;
    operands->emplace_back(context.kernels, type, n, kCacheInputs, kRowsMax,
                           context.memory.weights() + at);
  }
  for (uint32_t rows : kRows) {
    BenchCase bench = MakeCase(context, type, rows, false);
    bench.floor = operands->front().FloorOf(rows, false) * members;
    bench.call = [=, gemm = context.kernels.gemm](int member) {
      GemmOperands& mine = (*operands)[static_cast<size_t>(member)];
      gemm(mine.Args(rows, 0, mine.matrix().panel_count()));
    };
    cases->push_back(std::move(bench));
  }
}

}  // namespace

void AddGemmCases(const KernelBenchContext& context, std::vector<BenchCase>* cases) {
  for (WeightType type : kWeightTypes) {
    AddFromMemory(context, type, cases);
    AddFromCache(context, type, cases);
  }
}

}  // namespace tessera
