#pragma once

#include <filesystem>
#include <optional>

#include "kernels/cpu/cpu_quota.hpp"

namespace pagoda::kernels {

/// CPUs that this process may use.
struct UsableCpus {
  int online = 1;                 ///< of the machine
  int allowed = 1;                ///< in the affinity mask of the process (taskset, cpuset cgroups)
  std::optional<CpuQuota> quota;  ///< of its cgroups

  /// Compute threads to start by default where `candidates` CPUs or cores might each have one: no more than the quota
  /// has time for, since a thread that waits for the next period makes all others wait.
  int threads_for(int candidates) const;
  int default_threads() const { return threads_for(allowed); }
};

/// `root`: as for cpu_quota.
UsableCpus usable_cpus(const std::filesystem::path& root = "/");

}  // namespace pagoda::kernels
