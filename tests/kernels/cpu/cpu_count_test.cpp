#include "kernels/cpu/cpu_count.hpp"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temporary_folder.hpp"

namespace pagoda::kernels {
namespace {

UsableCpus with_quota(double cpus) {
  return {.online = 8, .allowed = 8, .quota = CpuQuota{cpus, "cpu.max"}};
}

TEST(UsableCpus, HaveAThreadEachWithinTheQuota) {
  EXPECT_EQ((UsableCpus{.online = 8, .allowed = 8, .quota = {}}.default_threads()), 8);
  EXPECT_EQ(with_quota(0.5).default_threads(), 1);
  EXPECT_EQ(with_quota(1).default_threads(), 1);
  EXPECT_EQ(with_quota(2.5).default_threads(), 2);
  EXPECT_EQ(with_quota(8).default_threads(), 8);
  EXPECT_EQ(with_quota(64).default_threads(), 8);
  EXPECT_EQ(with_quota(6).threads_for(4), 4);
  EXPECT_EQ(with_quota(3).threads_for(4), 3);
}

TEST(UsableCpus, TakeTheQuotaOfTheCgroup) {
  const test::TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& content) {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    folder.write(name, content);
  };
  write("proc/self/cgroup", "0::/a\n");
  write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/a/cpu.max", "100000 100000\n");
  EXPECT_EQ(usable_cpus(folder.path()).default_threads(), 1);
}

/// Returns the exit status of a child process that is bound to one CPU; 0: the child detects exactly one CPU.
int threads_on_one_cpu() {
  const pid_t child = fork();
  if (child == 0) {
    cpu_set_t before;
    CPU_ZERO(&before);
    sched_getaffinity(0, sizeof before, &before);
    int first = 0;
    while (!CPU_ISSET(first, &before)) ++first;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0) _exit(100);
    _exit(usable_cpus().allowed == 1 && usable_cpus().default_threads() == 1 ? 0 : 101);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 102;
}

TEST(UsableCpus, AreThoseOfTheAffinityMask) {
  EXPECT_EQ(threads_on_one_cpu(), 0);
  EXPECT_GE(usable_cpus().online, usable_cpus().allowed);
}

}  // namespace
}  // namespace pagoda::kernels
