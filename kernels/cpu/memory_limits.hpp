#pragma once

/// The memory that a process can still allocate, from the Linux files under /proc and /sys/fs/cgroup.

#include <cstddef>
#include <filesystem>
#include <string>

namespace pagoda::kernels {

/// Bytes of address space reserved for threads that start later: stacks and an arena of the allocator, which are not
/// counted as memory elsewhere. Without the reserve, the limit would show up as a thread that cannot start.
inline constexpr std::size_t kAddressSpaceOfThreads = std::size_t{192} << 20;

struct AvailableMemory {
  std::size_t bytes = 0;
  std::string limit;  ///< description, for messages, of the limit that determines `bytes`, with its numbers
};

/// Returns the smallest amount that these limits leave: the machine (MemAvailable), the limits of the process's memory
/// cgroup and of the cgroups above it as far as they are mounted (version 2: memory.max and memory.high; version 1:
/// memory.limit_in_bytes), and RLIMIT_AS less kAddressSpaceOfThreads. The file cache that is charged to a cgroup counts
/// as free, as in MemAvailable, because the kernel frees it first. Files that are missing or contain no limit are
/// ignored. `root` is the folder that contains proc and the mount points of cgroups (sys/fs/cgroup, or those in
/// mountinfo); tests pass another folder.
AvailableMemory available_memory(const std::filesystem::path& root = "/");

}  // namespace pagoda::kernels
