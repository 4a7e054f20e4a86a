// SPDX-License-Identifier: Apache-2.0
#include "port/cpu.h"

#include <cpuid.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "port/cgroup.h"

namespace tessera {
namespace {

constexpr int kCpusMax = 1 << 20;  // Linux can be built for 8,192

// __builtin_cpu_supports of clang 14 does not know it.
bool HasF16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

CpuFeatures Detect() {
  __builtin_cpu_init();
  CpuFeatures f;
  f.x86_64_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                __builtin_cpu_supports("bmi2") && HasF16c();
  f.avx512 = f.x86_64_v3 && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
  f.avx512_vnni = f.avx512 && __builtin_cpu_supports("avx512vnni");
  f.avx512_bf16 = f.avx512 && __builtin_cpu_supports("avx512bf16");
  return f;
}

// CPUs in the affinity mask; the kernel refuses (EINVAL) one smaller than its own.
int AllowedCpuCount() {
  for (int cpus = CPU_SETSIZE; cpus <= kCpusMax; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(cpus));
    if (set == nullptr) return 1;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(cpus));
    CPU_ZERO_S(bytes, set);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    const bool too_small = !known && errno == EINVAL;
    const int count = known ? CPU_COUNT_S(bytes, set) : 1;
    CPU_FREE(set);
    if (!too_small) return std::max(count, 1);
  }
  return 1;
}

}  // namespace

const CpuFeatures& DetectCpu() {
  static const CpuFeatures features = Detect();
  return features;
}

std::string CpuModelName() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

int UsableCpuCount() {
  const auto allowed = static_cast<uint64_t>(AllowedCpuCount());
  return static_cast<int>(std::min(allowed, CgroupCpuCount().value_or(allowed)));
}

}  // namespace tessera
