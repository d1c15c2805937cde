#pragma once

/// How much memory a process may still take, as the Linux files under /proc and /sys/fs/cgroup tell it.

#include <cstddef>
#include <filesystem>
#include <string>

namespace pagoda::kernels {

/// Address space that is kept for threads that start later: stacks and an arena of the allocator, which nobody counts
/// as memory. Without it a thread that cannot start would be what tells of the limit.
inline constexpr std::size_t kAddressSpaceOfThreads = std::size_t{192} << 20;

struct AvailableMemory {
  std::size_t bytes = 0;
  std::string limit;  ///< which limit leaves so little, with its numbers, for messages
};

/// The smallest of what these leave: the machine (MemAvailable), the limits of the process's memory cgroup and of the
/// cgroups above it as far as they are mounted (version 2: memory.max and memory.high; version 1:
/// memory.limit_in_bytes), and RLIMIT_AS less kAddressSpaceOfThreads. The file cache that a cgroup is charged with
/// counts as free, as it does in MemAvailable: the kernel gives it up first. Files that are missing or that say no
/// limit limit nothing. `root`: the folder that proc and sys/fs/cgroup (or wherever mountinfo says) lie under; "/" but
/// in tests.
AvailableMemory available_memory(const std::filesystem::path& root = "/");

}  // namespace pagoda::kernels
