#include "kernels/cpu/oom_kills.hpp"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace pagoda::kernels {
namespace {

class OomKillsTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    folder_.write(name, content);
  }

  test::TemporaryFolder folder_;
};

TEST_F(OomKillsTest, AreNoneWhereNothingCountsThem) {
  EXPECT_EQ(num_oom_kills(folder_.path()), 0);
}

TEST_F(OomKillsTest, RiseWithThoseOfTheMachineAndOfEachCgroup) {
  write("proc/vmstat", "nr_free_pages 5\noom_kill 3\n");
  EXPECT_EQ(num_oom_kills(folder_.path()), 3);
  write("proc/self/cgroup", "0::/a/b\n");
  write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/a/b/memory.events", "low 0\nhigh 0\nmax 12\noom 2\noom_kill 1\n");
  EXPECT_EQ(num_oom_kills(folder_.path()), 4);
  write("sys/fs/cgroup/a/memory.events", "oom 2\noom_kill 4\n");
  EXPECT_EQ(num_oom_kills(folder_.path()), 8);
}

}  // namespace
}  // namespace pagoda::kernels
