#include "apps/doctor/probe.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/version.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::apps {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A made-up /proc and /sys.
class DoctorProbe : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& content) {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    folder_.write(name, content);
  }

  test::TemporaryFolder folder_;
};

TEST_F(DoctorProbe, reads_the_processor_and_its_governors) {
  write("proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\nmodel name\t: Xeon "
        "Z\n\nprocessor\t: 1\n");
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  write("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate\n");
  write("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
  write("sys/devices/system/cpu/online", "0-1\n");
  const auto cpu = probe_processor("", folder_.path());
  EXPECT_EQ(cpu.name, "Xeon Z");
  EXPECT_TRUE(cpu.is_intel);
  EXPECT_EQ(cpu.family, 6);
  EXPECT_EQ(cpu.model, 85);
  EXPECT_THAT(cpu.governors, ElementsAre("powersave"));
  EXPECT_EQ(cpu.frequency_driver, "intel_pstate");
  EXPECT_EQ(cpu.kernel_sets.front(), "scalar");
  EXPECT_FALSE(cpu.chosen_set.empty());
  EXPECT_TRUE(probe_processor("avx1024", folder_.path()).chosen_set.empty());
}

TEST_F(DoctorProbe, reads_the_memory_and_its_pages) {
  write("proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n");
  write("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  write("proc/sys/vm/overcommit_memory", "2\n");
  const auto memory = probe_memory(folder_.path());
  EXPECT_EQ(memory.total_bytes, std::size_t{16} << 30);
  EXPECT_EQ(memory.available_bytes, std::size_t{8} << 30);
  EXPECT_EQ(memory.huge_pages, "never");
  EXPECT_EQ(memory.overcommit, 2);
}

TEST_F(DoctorProbe, reads_the_quota_of_the_cgroup) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  const auto cores = probe_cores(3, folder_.path());
  ASSERT_TRUE(cores.quota_cpus);
  EXPECT_DOUBLE_EQ(*cores.quota_cpus, 1.5);
  EXPECT_THAT(cores.quota_limit, HasSubstr("/sys/fs/cgroup/a:"));
  EXPECT_EQ(cores.wanted_threads, 3);
  EXPECT_EQ(cores.default_threads, 1);
  EXPECT_GE(cores.allowed_cpus, 1);
}

TEST_F(DoctorProbe, sees_a_gpu_by_its_driver) {
  write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 17\n");
  write("proc/driver/nvidia/gpus/0000:01:00.0/information", "Model: \t\t NVIDIA L4\nIRQ:   3\n");
  const auto gpu = probe_gpu(EngineConfig(), folder_.path());
  EXPECT_EQ(gpu.driver, "535.161.08");
  EXPECT_THAT(gpu.present, ElementsAre("NVIDIA L4"));
  EXPECT_EQ(gpu.usable.empty(), !gpu.problem.empty());
  EXPECT_TRUE(probe_gpu(EngineConfig(), folder_.path() / "nothing").driver.empty());
}

TEST_F(DoctorProbe, counts_what_the_page_cache_holds_of_a_file) {
  const auto file = folder_.write("weights", std::string(100'000, 'x'));
  EXPECT_EQ(cached_bytes_of(file), 100'000U) << "what was just written is there";
  EXPECT_EQ(cached_bytes_of(folder_.path() / "missing"), 0U);
  EXPECT_EQ(cached_bytes_of(folder_.write("empty", "")), 0U);
}

TEST_F(DoctorProbe, says_why_a_model_cannot_be_served) {
  EngineConfig config;
  config.model = (folder_.path() / "none").string();
  EXPECT_THAT(probe_model(config).problem, HasSubstr("none"));
  config.model = PAGODA_SOURCE_DIR "/examples/models/pagoda-stories";
  config.kv_cache_memory = 0.01;
  const auto model = probe_model(config);
  EXPECT_EQ(model.problem, "");
  EXPECT_GT(model.file_bytes, 1U << 20);
  EXPECT_GT(model.needed_bytes, 1U << 20);
}

TEST_F(DoctorProbe, knows_its_build) {
  const auto build = probe_build();
  EXPECT_EQ(build.version, version());
  EXPECT_THAT(build.tls, HasSubstr("OpenSSL 3"));
}

}  // namespace
}  // namespace pagoda::apps
