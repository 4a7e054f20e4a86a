// SPDX-License-Identifier: Apache-2.0
#include "port/cgroup.h"

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace tessera {
namespace {

using Reader = std::function<std::optional<uint64_t>(const std::string& group)>;

// A file that begins with a number; nothing when it is absent or says "max" or -1.
std::optional<uint64_t> Number(const std::string& path) {
  std::ifstream in(path);
  int64_t value = 0;
  if (in >> value && value >= 0) return static_cast<uint64_t>(value);
  return std::nullopt;
}

// The number after the word `name` in a file; 0 when absent.
uint64_t Field(const std::string& path, const std::string& name) {
  std::ifstream in(path);
  for (std::string word; in >> word;) {
    uint64_t value = 0;
    if (word == name && in >> value) return value;
  }
  return 0;
}

bool Lists(std::string_view controllers, std::string_view name) {
  while (!controllers.empty()) {
    const size_t comma = std::min(controllers.find(','), controllers.size());
    if (controllers.substr(0, comma) == name) return true;
    controllers.remove_prefix(std::min(comma + 1, controllers.size()));
  }
  return false;
}

// The process's path in the hierarchy of `controller`, or of version 2 when it is ""; a line is
// "5:cpu,cpuacct:/a/b", of version 2 "0::/a/b". "/" when there is none.
std::string GroupPath(const std::string& root, std::string_view controller) {
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string_view names = std::string_view(line).substr(first + 1, second - first - 1);
    if (controller.empty() ? names.empty() : Lists(names, controller)) {
      return line.substr(second + 1);
    }
  }
  return "/";
}

// The least that `read` finds in the directories from `mount` + `path` up to `mount`.
std::optional<uint64_t> LeastUpward(const std::string& mount, std::string path,
                                    const Reader& read) {
  // Outside this namespace: nothing of it is under the mount.
  if (path.find("/..") != std::string::npos) path = "/";
  std::optional<uint64_t> least;
  while (true) {
    while (path.ends_with('/')) path.pop_back();
    if (const auto value = read(mount + path)) least = std::min(least.value_or(*value), *value);
    if (path.empty()) return least;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

// Over version 2, alone or beside version 1, and the hierarchy of `controller` of version 1.
std::optional<uint64_t> Least(const std::string& root, const std::string& controller,
                              const Reader& version2, const Reader& version1) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::optional<uint64_t> least;
  for (const auto& value :
       {LeastUpward(mount, GroupPath(root, ""), version2),
        LeastUpward(mount + "/unified", GroupPath(root, ""), version2),
        LeastUpward(mount + "/" + controller, GroupPath(root, controller), version1)}) {
    if (value) least = std::min(least.value_or(*value), *value);
  }
  return least;
}

// `prefix`: of the names in memory.stat that cover the groups below too.
std::optional<uint64_t> Available(const std::string& limit_path, const std::string& use_path,
                                  const std::string& stat_path, const std::string& prefix) {
  const auto limit = Number(limit_path);
  const auto use = Number(use_path);
  if (!limit || !use) return std::nullopt;
  // Cached files count as use, but make way: after a build they can fill the whole limit.
  const uint64_t cached =
      Field(stat_path, prefix + "inactive_file") + Field(stat_path, prefix + "active_file");
  const uint64_t held = *use - std::min(*use, cached);
  return *limit - std::min(*limit, held);
}

std::optional<uint64_t> Cpus(std::optional<uint64_t> quota, std::optional<uint64_t> period) {
  if (!quota || !period || *period == 0) return std::nullopt;
  return std::max<uint64_t>(1, DivideUp(*quota, *period));
}

}  // namespace

std::optional<uint64_t> CgroupAvailableBytes(const std::string& root) {
  return Least(
      root, "memory",
      [](const std::string& group) {
        return Available(group + "/memory.max", group + "/memory.current", group + "/memory.stat",
                         "");
      },
      [](const std::string& group) {
        return Available(group + "/memory.limit_in_bytes", group + "/memory.usage_in_bytes",
                         group + "/memory.stat", "total_");
      });
}

std::optional<uint64_t> CgroupCpuCount(const std::string& root) {
  return Least(
      root, "cpu",
      [](const std::string& group) -> std::optional<uint64_t> {
        std::ifstream in(group + "/cpu.max");  // "max 100000" or "250000 100000"
        uint64_t quota = 0;
        uint64_t period = 0;
        if (in >> quota >> period) return Cpus(quota, period);
        return std::nullopt;
      },
      [](const std::string& group) {
        return Cpus(Number(group + "/cpu.cfs_quota_us"), Number(group + "/cpu.cfs_period_us"));
      });
}

}  // namespace tessera
