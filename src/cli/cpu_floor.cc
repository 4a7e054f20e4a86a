// SPDX-License-Identifier: Apache-2.0
//
// Refuses a CPU below x86-64-v3 (AVX2, FMA, F16C, BMI2: Haswell, Zen 1), which the rest of the
// program is compiled for, with a message instead of an illegal instruction. This file alone is
// compiled for the baseline, and its check runs before any other static constructor.
#include <cpuid.h>
#include <unistd.h>

namespace {

constexpr char kMessage[] =
    "tessera: this CPU lacks AVX2, FMA, F16C or BMI2; x86-64-v3 (Haswell, Zen 1 or newer) is "
    "needed\n";
constexpr int kExitFailed = 1;

// Not every compiler's __builtin_cpu_supports knows it.
bool HasF16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

__attribute__((constructor(101))) void RefuseOldCpu() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && HasF16c()) {
    return;
  }
  // Nothing can be done about a message that cannot be written.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kMessage, sizeof(kMessage) - 1);
  ::_exit(kExitFailed);
}

}  // namespace
