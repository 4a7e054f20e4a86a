// SPDX-License-Identifier: Apache-2.0
//
// What this CPU offers, as the kernels need to know it.
#pragma once

#include <string>

namespace tessera {

struct CpuFeatures {
  bool x86_64_v3 = false;    // AVX2, FMA, F16C, BMI2: the floor of every build
  bool avx512 = false;       // F, BW, DQ, VL
  bool avx512_vnni = false;  // vpdpbusd
  bool avx512_bf16 = false;  // vdpbf16ps
};

// Detected once; the operating system's saving of the registers is included.
const CpuFeatures& DetectCpu();

// "AMD EPYC 9V74 80-Core Processor", or "unknown".
std::string CpuModelName();

// Logical CPUs this process may run on, at most its control groups' CPU quota (rounded up), at
// least 1: threads beyond the quota make all of them wait, in the middle of a step.
int UsableCpuCount();

}  // namespace tessera
