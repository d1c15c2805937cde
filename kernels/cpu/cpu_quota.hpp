#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace pagoda::kernels {

/// CPU time that cgroups let this process have.
struct CpuQuota {
  double cpus = 0;    ///< seconds of CPU time a second
  std::string limit;  ///< which file of which cgroup says so, with its numbers
};

/// The smallest quota of the process's cgroup and of those above it (version 2: cpu.max; version 1: cpu.cfs_quota_us
/// and cpu.cfs_period_us). None where nothing limits it. `root`: the folder that proc and sys/fs/cgroup lie under; "/"
/// but in tests.
std::optional<CpuQuota> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace pagoda::kernels
