// SPDX-License-Identifier: Apache-2.0
#include "port/cgroup.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tessera {
namespace {

class Cgroup : public ::testing::Test {
 protected:
  ~Cgroup() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }

  const std::string root_ =
      std::filesystem::temp_directory_path() / ("tessera-cgroup-test-" + std::to_string(getpid()));
};

TEST_F(Cgroup, Version2TakesTheLeastOfAllLevelsOfTheOwnPath) {
  Write("/proc/self/cgroup", "0::/system.slice/tessera.service");
  const std::string slice = "/sys/fs/cgroup/system.slice";
  Write(slice + "/tessera.service/memory.max", "max");
  Write(slice + "/tessera.service/memory.current", "100");
  Write(slice + "/memory.max", "5000");
  Write(slice + "/memory.current", "1500");
  Write(slice + "/memory.stat", "anon 800\nfile 700\ninactive_file 300\nactive_file 200");
  Write(slice + "/other.service/memory.max", "10");
  Write(slice + "/other.service/memory.current", "1");
  EXPECT_EQ(CgroupAvailableBytes(root_), 5000u - 1000);
  Write(slice + "/tessera.service/memory.max", "600");
  EXPECT_EQ(CgroupAvailableBytes(root_), 500u);
  // More in use than the limit, which was lowered: nothing is left.
  Write(slice + "/tessera.service/memory.current", "900");
  EXPECT_EQ(CgroupAvailableBytes(root_), 0u);
}

TEST_F(Cgroup, Version1IsReadInTheControllersOwnHierarchy) {
  Write("/proc/self/cgroup", "9:memory:/jobs/a\n4:cpuset:/\n3:cpu,cpuacct:/jobs/b\n0::/");
  const std::string memory = "/sys/fs/cgroup/memory";
  Write(memory + "/memory.limit_in_bytes", "9223372036854771712");
  Write(memory + "/memory.usage_in_bytes", "7");
  Write(memory + "/jobs/a/memory.limit_in_bytes", "4000");
  Write(memory + "/jobs/a/memory.usage_in_bytes", "3000");
  Write(memory + "/jobs/a/memory.stat", "inactive_file 1\ntotal_inactive_file 500");
  EXPECT_EQ(CgroupAvailableBytes(root_), 1500u);
  const std::string cpu = "/sys/fs/cgroup/cpu";
  Write(cpu + "/cpu.cfs_quota_us", "-1");
  Write(cpu + "/cpu.cfs_period_us", "100000");
  EXPECT_EQ(CgroupCpuCount(root_), std::nullopt);
  Write(cpu + "/jobs/b/cpu.cfs_quota_us", "250000");
  Write(cpu + "/jobs/b/cpu.cfs_period_us", "100000");
  EXPECT_EQ(CgroupCpuCount(root_), 3u);
}

TEST_F(Cgroup, ACpuQuotaIsRoundedUpAndTheLeastWins) {
  Write("/proc/self/cgroup", "0::/a/b");
  EXPECT_EQ(CgroupCpuCount(root_), std::nullopt);
  Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  Write("/sys/fs/cgroup/a/cpu.max", "400000 100000");
  EXPECT_EQ(CgroupCpuCount(root_), 4u);
  Write("/sys/fs/cgroup/a/b/cpu.max", "150000 100000");
  EXPECT_EQ(CgroupCpuCount(root_), 2u);
  Write("/sys/fs/cgroup/a/b/cpu.max", "1000 100000");
  EXPECT_EQ(CgroupCpuCount(root_), 1u);
}

TEST_F(Cgroup, APathThatIsNotUnderTheMountLeavesTheMountItself) {
  for (const char* path : {"/docker/0123", "/../../host", "/", ""}) {
    Write("/proc/self/cgroup", std::string("0::") + path);
    Write("/sys/fs/cgroup/memory.max", "1000");
    Write("/sys/fs/cgroup/memory.current", "400");
    EXPECT_EQ(CgroupAvailableBytes(root_), 600u) << path;
  }
}

TEST_F(Cgroup, WithoutGroupsThereIsNoLimit) {
  EXPECT_EQ(CgroupAvailableBytes(root_), std::nullopt);
  EXPECT_EQ(CgroupCpuCount(root_), std::nullopt);
}

}  // namespace
}  // namespace tessera
