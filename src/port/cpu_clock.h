// SPDX-License-Identifier: Apache-2.0
//
// Time that the calling thread has run for: it stands still while the thread waits or another one
// has its CPU.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <ctime>

namespace tessera {

inline uint64_t ThreadCpuNs() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace tessera
