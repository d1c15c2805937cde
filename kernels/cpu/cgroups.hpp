#pragma once

/// Folders of the cgroups of this process, in which its limits are read.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pagoda::kernels {

enum class CgroupVersion : std::uint8_t { v1, v2 };

struct CgroupFolder {
  CgroupVersion version = CgroupVersion::v2;
  std::string path;  ///< path in the process's mount namespace, such as /sys/fs/cgroup/system.slice/pagoda.service
};

/// Returns the folders of the process's cgroup and of the cgroups above it, as far as they are mounted, innermost
/// first: first the version 1 hierarchy that has `controller` ("memory", "cpu"), then version 2. `root` is the folder
/// that contains proc; tests pass another folder.
std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace pagoda::kernels
