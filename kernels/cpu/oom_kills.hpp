#pragma once

#include <cstdint>
#include <filesystem>

namespace pagoda::kernels {

/// Returns how often the kernel has killed a process for lack of memory: the sum of the counts of this process's cgroup
/// and the cgroups above it (version 2: memory.events; version 1: memory.oom_control) and of the machine
/// (/proc/vmstat). The sum rises with each such kill; it is 0 if the system has no such counters. `root` is the folder
/// that contains proc and sys/fs/cgroup; tests pass another folder.
std::int64_t num_oom_kills(const std::filesystem::path& root = "/");

}  // namespace pagoda::kernels
