// SPDX-License-Identifier: Apache-2.0
//
// What the control groups of this process leave it, version 1 and 2. A limit holds for its group
// and for all below, so each is the least over the path from the process's group up to the mount:
// a service's own group is usually several levels down, and the limit may stand on any.
//
// In a container without a cgroup namespace /proc/self/cgroup names a path of the host that is not
// under the mount; its groups are absent here, and the mount itself is the container's group.
//
// `root` is put before /proc and /sys: "" but in tests. Threads: any.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tessera {

// The least of limit less use; files cached count as free. Nothing when no group has a limit.
std::optional<uint64_t> CgroupAvailableBytes(const std::string& root = "");

// The least of quota / period, rounded up, at least 1. Nothing when no group has a quota.
std::optional<uint64_t> CgroupCpuCount(const std::string& root = "");

}  // namespace tessera
