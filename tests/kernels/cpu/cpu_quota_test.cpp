#include "kernels/cpu/cpu_quota.hpp"

#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace pagoda::kernels {
namespace {

using testing::HasSubstr;

/// Uses an artificial /proc and /sys/fs/cgroup.
class CpuQuotaTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    folder_.write(name, content);
  }

  std::optional<CpuQuota> quota() const { return cpu_quota(folder_.path()); }

  test::TemporaryFolder folder_;
};

TEST_F(CpuQuotaTest, is_none_where_nothing_limits) {
  EXPECT_FALSE(quota());
  write("proc/self/cgroup", "0::/a\n");
  write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  EXPECT_FALSE(quota());
  write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
  EXPECT_FALSE(quota());
}

TEST_F(CpuQuotaTest, of_version_2_is_the_smallest_up_to_the_top) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
  EXPECT_DOUBLE_EQ(quota()->cpus, 4);
  write("sys/fs/cgroup/a/cpu.max", "50000 100000\n");
  EXPECT_DOUBLE_EQ(quota()->cpus, 0.5);
  EXPECT_THAT(quota()->limit, HasSubstr("cpu.max of the cgroup /sys/fs/cgroup/a: 50000 of 100000"));
}

TEST_F(CpuQuotaTest, of_version_1_has_two_files_and_a_hierarchy_of_its_own) {
  write("proc/self/cgroup", "5:memory:/other\n4:cpu,cpuacct:/docker/x\n");
  write("proc/self/mountinfo",
        "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/memory/docker/x/cpu.cfs_quota_us", "1000\n");
  EXPECT_FALSE(quota());
  write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "250000\n");
  EXPECT_DOUBLE_EQ(quota()->cpus, 2.5);
}

}  // namespace
}  // namespace pagoda::kernels
