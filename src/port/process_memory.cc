// SPDX-License-Identifier: Apache-2.0
#include "port/process_memory.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "port/cgroup.h"

namespace tessera {
namespace {

// The number after the word `name` in a file; 0 when absent.
uint64_t Field(const char* path, const std::string& name) {
  std::ifstream in(path);
  for (std::string word; in >> word;) {
    uint64_t value = 0;
    if (word == name && in >> value) return value;
  }
  return 0;
}

// "VmRSS:   1234 kB" of a /proc file, in bytes.
uint64_t ProcField(const char* path, const std::string& name) { return Field(path, name) * 1024; }

}  // namespace

uint64_t ResidentBytes() { return ProcField("/proc/self/status", "VmRSS:"); }
uint64_t PeakResidentBytes() { return ProcField("/proc/self/status", "VmHWM:"); }

uint64_t AvailableMemoryBytes() {
  const uint64_t available = ProcField("/proc/meminfo", "MemAvailable:");
  return std::min(available, CgroupAvailableBytes().value_or(available));
}

}  // namespace tessera
