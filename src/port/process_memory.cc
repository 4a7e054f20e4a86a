// SPDX-License-Identifier: Apache-2.0
#include "port/process_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

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
  struct Group {
    const char* limit;
    const char* use;
    const char* stat;
    const char* prefix;  // of the names in stat that cover the groups below too
  };
  for (const Group& g : {Group{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                               "/sys/fs/cgroup/memory.stat", ""},
                         Group{"/sys/fs/cgroup/memory/memory.limit_in_bytes",
                               "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                               "/sys/fs/cgroup/memory/memory.stat", "total_"}}) {
    const auto limit = CgroupNumber(g.limit);
    const auto use = CgroupNumber(g.use);
    if (!limit || !use) continue;
    // Cached files count as use, but make way: after a build they can fill the whole limit.
    const uint64_t cached = Field(g.stat, std::string(g.prefix) + "inactive_file") +
                            Field(g.stat, std::string(g.prefix) + "active_file");
    const uint64_t held = *use - std::min(*use, cached);
    available = std::min(available, *limit - std::min(*limit, held));
  }
  return available;
}

}  // namespace tessera
