#pragma once

/// Where the cgroups of this process lie, for those who read its limits.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace pagoda::kernels {

enum class CgroupVersion : std::uint8_t { v1, v2 };

struct CgroupFolder {
  CgroupVersion version = CgroupVersion::v2;
  std::string path;  ///< as the process sees it: /sys/fs/cgroup/system.slice/pagoda.service
};

/// The folders of the process's cgroup and of those above it, as far as they are mounted, innermost first: those of
/// the hierarchy of version 1 that has `controller` ("memory", "cpu"), then those of version 2. `root`: the folder
/// that /proc lies under; "/" but in tests.
std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const std::filesystem::path& root = "/");

}  // namespace pagoda::kernels
