// SPDX-License-Identifier: Apache-2.0
#include "verify/libxsmm_product.h"

#include <fmt/format.h>
#include <libxsmm.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/bytes.h"
#include "base/check.h"
#include "port/cpu.h"

namespace tessera {
namespace {

constexpr uint32_t kBlockOutputs = 64;

// libxsmm maps pages that are writable and executable and then takes the writing away.
std::string WhyNoExecutableMemory() {
  const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* page =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const bool allowed = page != MAP_FAILED && mprotect(page, bytes, PROT_READ | PROT_EXEC) == 0;
  const int error = errno;
  if (page != MAP_FAILED) munmap(page, bytes);
  if (allowed) return "";
  return fmt::format("this process may not have executable memory ({})", std::strerror(error));
}

// Outputs [first, first + 64) as [k / 2][64][2], missing ones and a missing last input zero.
void PackBlock(const LibxsmmOperands& operands, uint32_t first, std::vector<uint16_t>* block) {
  std::fill(block->begin(), block->end(), uint16_t{0});
  const uint32_t outputs = std::min(kBlockOutputs, operands.n - first);
  for (uint32_t n = 0; n < outputs; ++n) {
    const uint16_t* row = operands.weights.data() + size_t{first + n} * operands.k;
    for (uint32_t i = 0; i < operands.k; ++i) {
      (*block)[(size_t{i / 2} * kBlockOutputs + n) * 2 + i % 2] = row[i];
    }
  }
}

std::vector<uint16_t> PadRows(const LibxsmmOperands& operands, uint32_t padded_k) {
  std::vector<uint16_t> rows(size_t{operands.rows} * padded_k, 0);
  for (uint32_t row = 0; row < operands.rows; ++row) {
    std::copy_n(operands.activations.data() + size_t{row} * operands.k, operands.k,
                &rows[size_t{row} * padded_k]);
  }
  return rows;
}

// In its words: column-major C[64 × rows] = A[64 × k] · B[k × rows], A in pairs of k.
libxsmm_bsmmfunction MakeKernel(uint32_t rows, uint32_t k) {
  const float alpha = 1, beta = 0;
  const int flags = LIBXSMM_GEMM_FLAG_VNNI_A;
  const int prefetch = LIBXSMM_PREFETCH_NONE;
  const auto m = static_cast<libxsmm_blasint>(kBlockOutputs);
  const auto depth = static_cast<libxsmm_blasint>(k);
  return libxsmm_bsmmdispatch(m, static_cast<libxsmm_blasint>(rows), depth, &m, &depth, &m, &alpha,
                              &beta, &flags, &prefetch);
}

}  // namespace

std::string WhyNoLibxsmm() {
  const CpuFeatures& cpu = DetectCpu();
  if (!cpu.avx512 || !cpu.avx512_bf16) return "this CPU has no AVX-512 with bf16";
  std::string why = WhyNoExecutableMemory();
  if (!why.empty()) return why;
  libxsmm_init();
  // LIBXSMM_TARGET in the environment may ask for less than the CPU has.
  if (libxsmm_get_target_archid() < LIBXSMM_X86_AVX512_CPX) {
    return fmt::format("it makes code for {}, which has no bf16 dot product",
                       libxsmm_get_target_arch());
  }
  return "";
}

std::vector<float> LibxsmmProduct(const LibxsmmOperands& operands) {
  const auto k = static_cast<uint32_t>(RoundUp(operands.k, 2));
  const libxsmm_bsmmfunction kernel = MakeKernel(operands.rows, k);
  if (kernel == nullptr) return {};
  const std::vector<uint16_t> activations = PadRows(operands, k);
  std::vector<uint16_t> block(size_t{k} * kBlockOutputs);
  std::vector<float> output(size_t{operands.rows} * kBlockOutputs);
  std::vector<float> product(size_t{operands.rows} * operands.n);
  for (uint32_t first = 0; first < operands.n; first += kBlockOutputs) {
    PackBlock(operands, first, &block);
    kernel(block.data(), activations.data(), output.data());
    const uint32_t outputs = std::min(kBlockOutputs, operands.n - first);
    for (uint32_t row = 0; row < operands.rows; ++row) {
      std::copy_n(&output[size_t{row} * kBlockOutputs], outputs,
                  &product[size_t{row} * operands.n + first]);
    }
  }
  return product;
}

}  // namespace tessera
