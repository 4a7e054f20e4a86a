// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/random.h"
#include "compute/kernels/avx2.h"
#include "compute/kernels/avx512.h"
#include "compute/kernels/kernel_table.h"
#include "compute/tensor/number_formats.h"
#include "port/cpu.h"
#include "port/float_environment.h"

namespace tessera {
namespace {

// 64k lanes in all, in blocks of one kind of operands each.
constexpr uint32_t kSelfTestBlock = 1024;
constexpr uint32_t kSelfTestBlocks = 64;

enum class Operands { kNormal, kNearEqual, kDenormal, kAnyExponent };

// A finite bf16 in the high half of a word.
uint32_t Operand(Random* random, Operands kind) {
  const uint32_t bits = static_cast<uint32_t>(random->Next()) & 0xFFFF0000u;
  const uint32_t sign = bits & 0x80000000u;
  const uint32_t fraction = bits & 0x007F0000u;
  const uint32_t exponent = (bits >> 23) & 0xFFu;
  switch (kind) {
    case Operands::kNormal:  // 2^-16 … 2^15
      return sign | (111 + exponent % 32) << 23 | fraction;
    case Operands::kNearEqual:  // products of either sign cancel to their last bits
      return sign | 127u << 23 | (fraction & 0x00030000u);
    case Operands::kDenormal:  // denormal operands, zeros, and products around 2^-126
      return sign | (exponent % 4 == 0 ? 0 : 32 + exponent % 64) << 23 | fraction;
    case Operands::kAnyExponent:
      return sign | (exponent == 255 ? 0 : exponent) << 23 | fraction;
  }
  return 0;
}

bool SameLane(float got, float want) {
  return std::bit_cast<uint32_t>(got) == std::bit_cast<uint32_t>(want) ||
         (std::isnan(got) && std::isnan(want));
}

// One block of vdpbf16ps against the fma chain that the other tables compute.
bool BlockAgrees(Random* random, Operands kind) {
  uint32_t a[kSelfTestBlock], b[kSelfTestBlock];
  float acc[kSelfTestBlock], want[kSelfTestBlock];
  for (uint32_t i = 0; i < kSelfTestBlock; ++i) {
    a[i] = Operand(random, kind) | Operand(random, kind) >> 16;
    b[i] = Operand(random, kind) | Operand(random, kind) >> 16;
    acc[i] = std::bit_cast<float>(Operand(random, kind));
    const auto even = [](uint32_t pair) { return std::bit_cast<float>(pair << 16); };
    const auto odd = [](uint32_t pair) { return std::bit_cast<float>(pair & 0xFFFF0000u); };
    want[i] = std::fma(even(a[i]), even(b[i]), std::fma(odd(a[i]), odd(b[i]), acc[i]));
  }
  kernels::avx512::DotBf16(a, b, kSelfTestBlock, acc);
  for (uint32_t i = 0; i < kSelfTestBlock; ++i) {
    if (!SameLane(acc[i], want[i])) return false;
  }
  return true;
}

bool SelfTest() {
  ScopedFloatEnvironment environment;
  Random random(0x7E55E7A);
  for (uint32_t block = 0; block < kSelfTestBlocks; ++block) {
    if (!BlockAgrees(&random, static_cast<Operands>(block % 4))) return false;
  }
  return true;
}

enum class Avx512State { kWorks, kAbsent, kDisagrees };

Avx512State ExamineAvx512() {
  const CpuFeatures& cpu = DetectCpu();
  if (!cpu.avx512 || !cpu.avx512_vnni || !cpu.avx512_bf16) return Avx512State::kAbsent;
  return SelfTest() ? Avx512State::kWorks : Avx512State::kDisagrees;
}

Avx512State Avx512StateOnce() {
  static const Avx512State state = ExamineAvx512();
  return state;
}

KernelChoice ChooseAvx512() {
  switch (Avx512StateOnce()) {
    case Avx512State::kWorks:
      return {Avx512Kernels(), "avx512: bf16 dot product passed its self-test on 65536 lanes"};
    case Avx512State::kAbsent:
      return {nullptr, "this CPU lacks AVX-512 with bf16 and VNNI"};
    case Avx512State::kDisagrees:
      return {nullptr,
              "vdpbf16ps of this CPU differs from the fma chain in the start-up self-test"};
  }
  return {};
}

KernelChoice ChooseAvx2() {
  if (Avx2Kernels() == nullptr) return {nullptr, "this CPU lacks AVX2, FMA or F16C"};
  return {Avx2Kernels(), "avx2: asked for"};
}

KernelChoice ChooseBest() {
  if (Avx512Kernels() != nullptr) return ChooseAvx512();
  const bool absent = Avx512StateOnce() == Avx512State::kAbsent;
  if (Avx2Kernels() != nullptr) {
    return {Avx2Kernels(),
            absent ? "avx2: this CPU lacks AVX-512 with bf16 and VNNI"
                   : "avx2: vdpbf16ps of this CPU differs from the fma chain in the start-up "
                     "self-test"};
  }
  return {&ScalarKernels(), "scalar: this CPU lacks AVX2, FMA or F16C"};
}

}  // namespace

const KernelTable* Avx2Kernels() {
  return DetectCpu().x86_64_v3 ? &kernels::avx2::Table() : nullptr;
}

const KernelTable* Avx512Kernels() {
  return Avx512StateOnce() == Avx512State::kWorks ? &kernels::avx512::Table() : nullptr;
}

std::vector<const KernelTable*> AvailableKernels() {
  std::vector<const KernelTable*> tables = {&ScalarKernels()};
  for (const KernelTable* table : {Avx2Kernels(), Avx512Kernels()}) {
    if (table != nullptr) tables.push_back(table);
  }
  return tables;
}

KernelChoice ChooseKernels(const char* isa_override) {
  const std::string_view name = isa_override == nullptr ? "" : isa_override;
  if (name.empty()) return ChooseBest();
  if (name == "scalar") return {&ScalarKernels(), "scalar: asked for"};
  if (name == "avx2") return ChooseAvx2();
  if (name == "avx512") return ChooseAvx512();
  return {nullptr, "unknown instruction set; use scalar, avx2 or avx512"};
}

}  // namespace tessera
