#pragma once

#include <cstdint>
#include <filesystem>

namespace pagoda::kernels {

/// How often the kernel has killed a process for lack of memory: in this process's cgroup and those above it (version
/// 2: memory.events; version 1: memory.oom_control), and on the machine (/proc/vmstat). The sum rises with each such
/// kill; it is 0 where nothing counts them. `root`: the folder that proc and sys/fs/cgroup lie under; "/" but in tests.
std::int64_t num_oom_kills(const std::filesystem::path& root = "/");

}  // namespace pagoda::kernels
