#pragma once

#include <filesystem>
#include <optional>

#include "kernels/cpu/cpu_quota.hpp"

namespace pagoda::kernels {

/// Numbers of CPUs that this process may use.
struct UsableCpus {
  int online = 1;                 ///< CPUs of the machine that are online
  int allowed = 1;                ///< CPUs in the affinity mask of the process (taskset, cpuset cgroups)
  std::optional<CpuQuota> quota;  ///< CPU quota of the process's cgroups; nullopt = no limit

  /// Returns the default number of compute threads for `candidates` CPUs or cores, at most one thread each. The quota
  /// limits the number, because a thread that waits for the next period makes all others wait.
  int threads_for(int candidates) const;
  int default_threads() const { return threads_for(allowed); }
};

/// Counts the CPUs. `root` is passed to cpu_quota.
UsableCpus usable_cpus(const std::filesystem::path& root = "/");

}  // namespace pagoda::kernels
