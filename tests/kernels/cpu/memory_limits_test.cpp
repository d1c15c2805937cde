#include "kernels/cpu/memory_limits.hpp"

#include <cstddef>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/temporary_folder.hpp"

namespace pagoda::kernels {
namespace {

using testing::HasSubstr;

constexpr std::size_t kMib = std::size_t{1} << 20;
constexpr const char* kUnlimitedV1 = "9223372036854771712\n";

/// Uses an artificial /proc and /sys/fs/cgroup of a machine with 8 GiB free.
class MemoryLimitsTest : public testing::Test {
 protected:
  MemoryLimitsTest() {
    write("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1000 kB\nMemAvailable:    8388608 kB\n");
  }

  void write(const std::string& name, const std::string& content) {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    folder_.write(name, content);
  }

  void write_bytes(const std::string& name, std::size_t mib) { write(name, std::to_string(mib * kMib) + "\n"); }

  void cgroup_is(const std::string& lines) { write("proc/self/cgroup", lines); }

  /// Writes one cgroup2 mount, as systemd creates it.
  void mount_v2(const std::string& root = "/", const std::string& point = "/sys/fs/cgroup") {
    write("proc/self/mountinfo",
          "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
          "30 23 0:26 " +
              root + " " + point + " rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n");
  }

  void mount_v1(const std::string& root = "/") {
    write("proc/self/mountinfo",
          "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
          "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
          "35 31 0:32 " +
              root +
              " /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
              "41 31 0:38 / /sys/fs/cgroup/unified rw shared:10 - cgroup2 cgroup2 rw\n");
  }

  void cgroup_v2(const std::string& folder, const std::string& max, std::size_t current_mib,
                 std::size_t cache_mib = 0) {
    write(folder + "/memory.max", max + "\n");
    write_bytes(folder + "/memory.current", current_mib);
    const auto half = std::to_string(cache_mib * kMib / 2);
    write(folder + "/memory.stat",
          "anon 4096\nfile 99999999999\ninactive_file " + half + "\nactive_file " + half + "\n");
  }

  void cgroup_v1(const std::string& folder, const std::string& limit, std::size_t usage_mib,
                 std::size_t cache_mib = 0) {
    write(folder + "/memory.limit_in_bytes", limit);
    write_bytes(folder + "/memory.usage_in_bytes", usage_mib);
    write(folder + "/memory.stat", "inactive_file 77777777777\ntotal_inactive_file " +
                                       std::to_string(cache_mib * kMib) + "\ntotal_active_file 0\n");
  }

  std::size_t available_mib() const { return available_memory(folder_.path()).bytes / kMib; }
  std::string limit() const { return available_memory(folder_.path()).limit; }

  static std::string bytes(std::size_t mib) { return std::to_string(mib * kMib); }

  test::TemporaryFolder folder_;
};

TEST_F(MemoryLimitsTest, WithoutLimitsItIsWhatTheMachineHasFree) {
  EXPECT_EQ(available_mib(), 8192U);
  EXPECT_EQ(limit(), "the machine's free memory");
  mount_v2();
  cgroup_is("0::/\n");
  write("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max address space         unlimited            unlimited            bytes     \n");
  write("proc/self/statm", "1000 500 100 10 0 100 0\n");
  EXPECT_EQ(available_mib(), 8192U);
}

TEST_F(MemoryLimitsTest, OfThisMachineItIsSomethingAndSaysWhatLimits) {
  const AvailableMemory here = available_memory();
  EXPECT_GT(here.bytes, kMib);
  EXPECT_LT(here.bytes, std::size_t{1} << 50);
  EXPECT_FALSE(here.limit.empty());
}

TEST_F(MemoryLimitsTest, WithoutAnyFileItIsThePhysicalMemory) {
  const test::TemporaryFolder empty;
  const auto physical =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  EXPECT_EQ(available_memory(empty.path()).bytes, physical);
}

TEST_F(MemoryLimitsTest, V2LeavesItsMaximumLessWhatIsUsedAndNotFileCache) {
  mount_v2();
  cgroup_is("0::/user.slice/job\n");
  cgroup_v2("sys/fs/cgroup/user.slice/job", bytes(2048), 1000, 600);
  EXPECT_EQ(available_mib(), 2048U - 400U);
  EXPECT_EQ(limit(), "memory.max of the cgroup /sys/fs/cgroup/user.slice/job 2048 MiB, 400 MiB in use");
}

TEST_F(MemoryLimitsTest, V2CountsTheLimitsOfAllCgroupsAbove) {
  mount_v2();
  cgroup_is("0::/a/b/c\n");
  cgroup_v2("sys/fs/cgroup/a/b/c", "max", 100);
  cgroup_v2("sys/fs/cgroup/a/b", bytes(4096), 500);
  cgroup_v2("sys/fs/cgroup/a", bytes(3000), 2900);
  cgroup_v2("sys/fs/cgroup/a/b/other", bytes(1), 1);
  EXPECT_EQ(available_mib(), 100U);
  EXPECT_THAT(limit(), HasSubstr("/sys/fs/cgroup/a "));
}

TEST_F(MemoryLimitsTest, V2CountsMemoryHighAsALimit) {
  mount_v2();
  cgroup_is("0::/job\n");
  cgroup_v2("sys/fs/cgroup/job", bytes(4096), 100);
  write("sys/fs/cgroup/job/memory.high", bytes(1100) + "\n");
  EXPECT_EQ(available_mib(), 1000U);
  EXPECT_THAT(limit(), HasSubstr("memory.high"));
  write("sys/fs/cgroup/job/memory.high", "max\n");
  EXPECT_EQ(available_mib(), 3996U);
}

TEST_F(MemoryLimitsTest, AFullCgroupLeavesNothing) {
  mount_v2();
  cgroup_is("0::/job\n");
  cgroup_v2("sys/fs/cgroup/job", bytes(1024), 1025);
  EXPECT_EQ(available_memory(folder_.path()).bytes, 0U);
  cgroup_v2("sys/fs/cgroup/job", bytes(1024), 100, 300);  // counts that were read at different moments
  EXPECT_EQ(available_mib(), 1024U);
}

TEST_F(MemoryLimitsTest, WithinACgroupNamespaceTheTopOfTheMountIsTheProcesssOwn) {
  mount_v2("/");
  cgroup_is("0::/\n");
  cgroup_v2("sys/fs/cgroup", bytes(512), 12);
  EXPECT_EQ(available_mib(), 500U);
}

TEST_F(MemoryLimitsTest, AMountOfAPartOfTheHierarchyShowsThatPart) {
  mount_v2("/docker/1f");
  cgroup_is("0::/docker/1f/inner\n");
  cgroup_v2("sys/fs/cgroup", bytes(2000), 0);
  cgroup_v2("sys/fs/cgroup/inner", bytes(1000), 0);
  EXPECT_EQ(available_mib(), 1000U);
  cgroup_is("0::/docker/1f\n");
  EXPECT_EQ(available_mib(), 2000U);
}

TEST_F(MemoryLimitsTest, AMountThatDoesNotShowTheProcesssCgroupCountsAtItsTop) {
  for (const char* path : {"/docker/1fa", "/../elsewhere", "/docker/1f/../2"}) {
    mount_v2("/docker/1f");
    cgroup_is("0::" + std::string(path) + "\n");
    cgroup_v2("sys/fs/cgroup", bytes(2000), 0);
    EXPECT_EQ(available_mib(), 2000U) << path;
  }
}

TEST_F(MemoryLimitsTest, AMountOfAnotherCgroupIsLeftOutBesideOneThatShowsTheProcesss) {
  mount_v2();
  write("proc/self/mountinfo",
        "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
        "31 23 0:26 /other /mnt/other rw - cgroup2 cgroup2 rw\n");
  cgroup_is("0::/job\n");
  cgroup_v2("sys/fs/cgroup/job", bytes(2000), 0);
  cgroup_v2("mnt/other", bytes(10), 0);
  EXPECT_EQ(available_mib(), 2000U);
}

TEST_F(MemoryLimitsTest, AFolderThatIsMissingDoesNotHideThoseAbove) {
  mount_v2();
  cgroup_is("0::/job/gone\n");
  cgroup_v2("sys/fs/cgroup/job", bytes(700), 0);
  EXPECT_EQ(available_mib(), 700U);
}

TEST_F(MemoryLimitsTest, MountPointsMayHoldSpacesAndColons) {
  mount_v2("/", "/my\\040cgroups");
  cgroup_is("0::/a:b c\n");
  cgroup_v2("my cgroups/a:b c", bytes(600), 0);
  EXPECT_EQ(available_mib(), 600U);
}

TEST_F(MemoryLimitsTest, V1LeavesItsLimitLessWhatIsUsedAndNotFileCacheAlsoAbove) {
  mount_v1();
  cgroup_is("9:name=systemd:/\n4:cpu,memory:/jobs/one\n1:cpu:/elsewhere\n0::/\n");
  cgroup_v1("sys/fs/cgroup/memory", kUnlimitedV1, 9000);
  cgroup_v1("sys/fs/cgroup/memory/jobs", bytes(3000), 2000, 500);
  cgroup_v1("sys/fs/cgroup/memory/jobs/one", kUnlimitedV1, 900);
  EXPECT_EQ(available_mib(), 1500U);
  EXPECT_EQ(limit(), "memory.limit_in_bytes of the cgroup /sys/fs/cgroup/memory/jobs 3000 MiB, 1500 MiB in use");
  cgroup_v1("sys/fs/cgroup/memory/jobs/one", bytes(1000), 900);
  EXPECT_EQ(available_mib(), 100U);
}

TEST_F(MemoryLimitsTest, V1InAContainerWithoutANamespaceOfItsOwn) {
  mount_v1("/docker/1f");
  cgroup_is("4:memory:/docker/1f\n0::/\n");
  cgroup_v1("sys/fs/cgroup/memory", bytes(3000), 1000);
  EXPECT_EQ(available_mib(), 2000U);
}

TEST_F(MemoryLimitsTest, TheAddressSpaceLeavesWhatIsNotMappedAndNotForThreads) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto limit_is = [&](std::size_t mib) {
    write("proc/self/limits",
          "Max cpu time              unlimited            unlimited            seconds   \n"
          "Max address space         " +
              bytes(mib) + "           unlimited            bytes     \n");
  };
  write("proc/self/statm", std::to_string(48 * kMib / page) + " 500 100 10 0 100 0\n");
  limit_is(2240);
  EXPECT_EQ(available_mib(), 2000U);
  EXPECT_EQ(limit(), "RLIMIT_AS 2240 MiB, 48 MiB in use, 192 MiB for threads");
  for (const std::size_t mib : {240U, 100U, 10U}) {
    limit_is(mib);
    EXPECT_EQ(available_memory(folder_.path()).bytes, 0U) << mib;
  }
}

TEST_F(MemoryLimitsTest, TheSmallestOfAllCounts) {
  mount_v2();
  cgroup_is("0::/job\n");
  cgroup_v2("sys/fs/cgroup/job", bytes(1500), 0);
  write("proc/self/limits", "Max address space         " + bytes(1192) + " unlimited bytes\n");
  write("proc/self/statm", "0 0 0 0 0 0 0\n");
  EXPECT_EQ(available_mib(), 1000U);
  write("proc/meminfo", "MemAvailable: 1024 kB\n");
  EXPECT_EQ(available_mib(), 1U);
}

TEST_F(MemoryLimitsTest, FilesThatMakeNoSenseLimitNothing) {
  for (const char* text : {"", "\n", ":", "0:", "0::", "::::\n", "0::relative\n"}) {
    mount_v2();
    cgroup_is(text);
    cgroup_v2("sys/fs/cgroup/job", bytes(1), 0);
    EXPECT_EQ(available_mib(), 8192U) << text;
  }
  cgroup_is("0::/job\n");
  for (const char* text :
       {"", "30 23 - cgroup2", "- cgroup2 a b", "30 23 0:26 / - cgroup2 cgroup2 rw", "a b c d e f -"}) {
    write("proc/self/mountinfo", text);
    EXPECT_EQ(available_mib(), 8192U) << text;
  }
  mount_v2();
  for (const char* text : {"", "-1", "12 MiB", "99999999999999999999999"}) {
    cgroup_v2("sys/fs/cgroup/job", text, 0);
    EXPECT_EQ(available_mib(), 8192U) << text;
  }
}

}  // namespace
}  // namespace pagoda::kernels
