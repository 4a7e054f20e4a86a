// SPDX-License-Identifier: Apache-2.0
#include "port/process_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace tessera {
namespace {

// "VmRSS:   1234 kB" of a /proc file, in bytes; 0 when absent.
uint64_t ProcField(const char* path, const std::string& name) {
  std::ifstream in(path);
  for (std::string word; in >> word;) {
    uint64_t kib = 0;
    if (word == name && in >> kib) return kib * 1024;
  }
  return 0;
}

// A cgroup file with one number; nothing when absent or "max".
std::optional<uint64_t> CgroupNumber(const std::string& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

}  // namespace

uint64_t ResidentBytes() { return ProcField("/proc/self/status", "VmRSS:"); }
uint64_t PeakResidentBytes() { return ProcField("/proc/self/status", "VmHWM:"); }

uint64_t AvailableMemoryBytes() {
  uint64_t available = ProcField("/proc/meminfo", "MemAvailable:");
  struct Pair {
    const char* limit;
    const char* use;
  };
  for (const Pair& p : {Pair{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
                        Pair{"/sys/fs/cgroup/memory/memory.limit_in_bytes",
                             "/sys/fs/cgroup/memory/memory.usage_in_bytes"}}) {
    auto limit = CgroupNumber(p.limit);
    auto use = CgroupNumber(p.use);
    if (limit && use) available = std::min(available, *limit > *use ? *limit - *use : 0);
  }
  return available;
}

}  // namespace tessera
