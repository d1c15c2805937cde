#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace pagoda::kernels {

/// Limit of the CPU time of this process, set by cgroups.
struct CpuQuota {
  double cpus = 0;    ///< seconds of CPU time per second
  std::string limit;  ///< file of the cgroup that sets the limit, with its numbers
};

/// Returns the smallest quota of the process's cgroup and the cgroups above it (version 2: cpu.max; version 1:
/// cpu.cfs_quota_us and cpu.cfs_period_us), or nullopt without a limit. `root` is the folder that contains proc and
/// sys/fs/cgroup; tests pass another folder.
std::optional<CpuQuota> cpu_quota(const std::filesystem::path& root = "/");

}  // namespace pagoda::kernels
