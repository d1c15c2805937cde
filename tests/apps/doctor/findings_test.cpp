#include "apps/doctor/findings.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pagoda::apps {
namespace {

using testing::HasSubstr;

constexpr std::size_t kGib = std::size_t{1} << 30;

/// A machine on which nothing is amiss.
MachineFacts good_machine() {
  MachineFacts facts;
  facts.build = {.version = "1.2.3", .compiler = "GCC 12", .tls = "OpenSSL 3.0", .core_binding = true};
  facts.processor.name = "Fast 9000";
  facts.processor.is_x86 = true;
  facts.processor.kernel_sets = {"scalar", "avx2", "avx512"};
  facts.processor.chosen_set = "avx512";
  facts.cores = {.allowed_cpus = 8, .online_cpus = 8, .cores = 8};
  facts.memory = {.total_bytes = 64 * kGib,
                  .available_bytes = 60 * kGib,
                  .limit = "the machine's free memory",
                  .huge_pages = "madvise"};
  facts.files = {.soft = 65536, .hard = 65536, .wanted_connections = 2048};
  return facts;
}

/// The findings of a topic that ask for something.
std::vector<Finding> complaints(const MachineFacts& facts, const std::string& topic) {
  auto findings = examine(facts);
  std::erase_if(findings, [&](const Finding& f) { return f.topic != topic || f.severity == Severity::good; });
  return findings;
}

Finding the_complaint(const MachineFacts& facts, const std::string& topic) {
  auto found = complaints(facts, topic);
  EXPECT_EQ(found.size(), 1U) << topic;
  return found.empty() ? Finding{} : found.front();
}

TEST(Doctor, finds_nothing_to_do_on_a_good_machine) {
  const auto findings = examine(good_machine());
  EXPECT_TRUE(would_run(findings));
  for (const auto& finding : findings) {
    EXPECT_EQ(finding.severity, Severity::good) << finding.topic << ": " << finding.what;
    EXPECT_FALSE(finding.what.empty());
    EXPECT_FALSE(finding.why.empty()) << finding.topic;
  }
}

TEST(Doctor, tells_what_to_do_wherever_something_runs_slowly_or_not) {
  auto facts = good_machine();
  facts.build.is_optimised = false;
  facts.processor.chosen_set = "scalar";
  facts.processor.kernel_sets = {"scalar"};
  facts.processor.governors = {"powersave"};
  facts.processor.frequency_driver = "acpi-cpufreq";
  facts.cores.wanted_threads = 64;
  facts.cores.quota_cpus = 1.5;
  facts.memory.available_bytes = 1 << 20;
  facts.memory.huge_pages = "never";
  facts.files.soft = 10;
  facts.gpu.is_wanted = true;
  facts.ports = {{"http", "127.0.0.1:80", "Permission denied"}};
  facts.model = ModelFacts{.path = "m", .problem = "m has no config.json"};
  std::size_t num_complaints = 0;
  for (const auto& finding : examine(facts)) {
    if (finding.severity != Severity::slow && finding.severity != Severity::fatal) continue;
    ++num_complaints;
    EXPECT_FALSE(finding.why.empty()) << finding.topic;
    EXPECT_FALSE(finding.todo.empty()) << finding.topic;
  }
  EXPECT_EQ(num_complaints, 11U);
}

TEST(Doctor, says_that_an_instruction_set_is_missing) {
  auto facts = good_machine();
  facts.processor.wanted_set = "neon";
  facts.processor.chosen_set = "";
  const auto finding = the_complaint(facts, "processor");
  EXPECT_EQ(finding.severity, Severity::fatal);
  EXPECT_THAT(finding.what, HasSubstr("neon"));
  EXPECT_THAT(finding.todo, HasSubstr("scalar, avx2, avx512"));
}

TEST(Doctor, warns_of_avx512_where_it_lowers_the_frequency) {
  auto facts = good_machine();
  facts.processor.is_intel = true;
  facts.processor.family = 6;
  facts.processor.model = 85;
  EXPECT_THAT(the_complaint(facts, "processor").todo, HasSubstr("--cpu-isa avx2"));
  facts.processor.model = 143;
  EXPECT_TRUE(complaints(facts, "processor").empty());
}

TEST(Doctor, says_that_the_matrix_unit_is_idle) {
  auto facts = good_machine();
  facts.processor.has_matrix_unit = true;
  EXPECT_THAT(the_complaint(facts, "processor").what, HasSubstr("AMX"));
  facts.processor.kernel_sets.emplace_back("avx512_amx");
  facts.processor.chosen_set = "avx512_amx";
  EXPECT_TRUE(complaints(facts, "processor").empty());
}

TEST(Doctor, takes_powersave_for_slow_only_where_it_is) {
  auto facts = good_machine();
  facts.processor.governors = {"powersave"};
  facts.processor.frequency_driver = "intel_pstate";
  EXPECT_TRUE(complaints(facts, "frequency").empty());
  facts.processor.frequency_driver = "intel_cpufreq";
  EXPECT_EQ(the_complaint(facts, "frequency").severity, Severity::slow);
}

TEST(Doctor, proposes_the_threads_that_a_quota_holds) {
  auto facts = good_machine();
  facts.cores.quota_cpus = 2.5;
  facts.cores.quota_limit = "cpu.max of the cgroup /sys/fs/cgroup/a";
  facts.cores.default_threads = 2;
  EXPECT_TRUE(complaints(facts, "cpu quota").empty());
  facts.cores.wanted_threads = 3;
  const auto finding = the_complaint(facts, "cpu quota");
  EXPECT_EQ(finding.todo, "--threads 2");
  EXPECT_THAT(finding.what, HasSubstr("cpu.max of the cgroup /sys/fs/cgroup/a"));
  facts.cores.wanted_threads = 2;
  EXPECT_TRUE(complaints(facts, "cpu quota").empty());
  facts.cores.wanted_threads = 1;
  facts.cores.quota_cpus = 0.5;
  EXPECT_TRUE(complaints(facts, "cpu quota").empty()) << "fewer threads than one there are not";
}

TEST(Doctor, says_why_a_process_has_fewer_cpus_than_the_machine) {
  auto facts = good_machine();
  facts.cores.allowed_cpus = facts.cores.cores = facts.cores.default_threads = 1;
  const auto findings = examine(facts);
  const auto cores = std::ranges::find(findings, "cores", &Finding::topic);
  ASSERT_NE(cores, findings.end());
  EXPECT_THAT(cores->what, HasSubstr("1 CPU of 8 by the affinity mask of the process"));
}

TEST(Doctor, names_the_limit_that_leaves_too_little_memory) {
  auto facts = good_machine();
  facts.memory.available_bytes = std::size_t{100} << 20;
  facts.memory.limit = "memory.max of the cgroup /x 512 MiB, 412 MiB in use";
  const auto finding = the_complaint(facts, "memory");
  EXPECT_EQ(finding.severity, Severity::fatal);
  EXPECT_THAT(finding.what, HasSubstr("memory.max of the cgroup /x"));
}

TEST(Doctor, counts_the_files_that_connections_take) {
  auto facts = good_machine();
  facts.files = {.soft = 1024, .hard = 4096, .wanted_connections = 2048};
  EXPECT_THAT(the_complaint(facts, "open files").todo, HasSubstr("ulimit -n 2112"));
  facts.files.hard = 1024;
  EXPECT_THAT(the_complaint(facts, "open files").todo, HasSubstr("ulimit -Hn 2112"));
  facts.files.wanted_connections = 960;
  EXPECT_TRUE(complaints(facts, "open files").empty());
}

TEST(Doctor, misses_a_gpu_only_where_one_is_wanted_or_seen) {
  auto facts = good_machine();
  facts.gpu.problem = "this build has no CUDA backend";
  EXPECT_TRUE(complaints(facts, "gpu").empty());
  facts.gpu.present = {"NVIDIA L4"};
  EXPECT_EQ(the_complaint(facts, "gpu").severity, Severity::note);
  EXPECT_THAT(the_complaint(facts, "gpu").todo, HasSubstr("scripts/build cuda"));
  facts.gpu.is_wanted = true;
  EXPECT_EQ(the_complaint(facts, "gpu").severity, Severity::fatal);
  facts.gpu = {.in_build = true, .usable = {"cuda 0: NVIDIA L4"}, .is_wanted = true};
  EXPECT_TRUE(complaints(facts, "gpu").empty());
  facts.gpu.is_wanted = false;
  EXPECT_EQ(the_complaint(facts, "gpu").todo, "--device cuda");
}

TEST(Doctor, does_not_run_where_a_port_is_taken) {
  auto facts = good_machine();
  facts.ports = {{"listen", "127.0.0.1:7070", ""}, {"http", "127.0.0.1:8000", "Address already in use"}};
  EXPECT_THAT(the_complaint(facts, "port").what, HasSubstr("--http 127.0.0.1:8000"));
  EXPECT_FALSE(would_run(examine(facts)));
}

TEST(Doctor, tells_how_much_of_the_model_must_be_read) {
  auto facts = good_machine();
  facts.model = ModelFacts{.path = "m", .file_bytes = 4 * kGib, .cached_bytes = kGib, .needed_bytes = 6 * kGib};
  EXPECT_EQ(the_complaint(facts, "model disk").severity, Severity::note);
  EXPECT_THAT(the_complaint(facts, "model disk").what, HasSubstr("25 %"));
  facts.model->filesystem = "nfs";
  EXPECT_EQ(the_complaint(facts, "model disk").severity, Severity::slow);
  facts.model->cached_bytes = 4 * kGib;
  EXPECT_TRUE(complaints(facts, "model disk").empty());
  EXPECT_TRUE(would_run(examine(facts)));
}

TEST(Doctor, speaks_to_people_and_to_programs) {
  auto facts = good_machine();
  facts.memory.huge_pages = "never";
  const auto findings = examine(facts);
  const auto text = as_text(findings);
  EXPECT_THAT(text, HasSubstr("slow  huge pages  transparent huge pages: never\n"));
  EXPECT_THAT(text, HasSubstr("do:  echo madvise > /sys/kernel/mm/transparent_hugepage/enabled\n"));
  EXPECT_THAT(text, HasSubstr("Pagoda would run here.\n"));
  const auto json = nlohmann::json::parse(as_json(findings));
  EXPECT_EQ(json.at("runs"), true);
  ASSERT_EQ(json.at("findings").size(), findings.size());
  for (const char* key : {"topic", "severity", "what", "why", "todo"}) {
    EXPECT_TRUE(json.at("findings").at(0).at(key).is_string()) << key;
  }
}

}  // namespace
}  // namespace pagoda::apps
