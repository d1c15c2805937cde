#include "kernels/cpu/oom_kills.hpp"

#include "kernels/cpu/cgroups.hpp"
#include "kernels/cpu/proc_files.hpp"

namespace pagoda::kernels {

std::int64_t num_oom_kills(const std::filesystem::path& root) {
  std::size_t count = number_after(below_root(root, "/proc/vmstat"), "oom_kill").value_or(0);
  for (const auto& cgroup : cgroup_folders("memory", root)) {
    const char* file = cgroup.version == CgroupVersion::v2 ? "memory.events" : "memory.oom_control";
    count += number_after(below_root(root, cgroup.path) / file, "oom_kill").value_or(0);
  }
  return static_cast<std::int64_t>(count);
}

}  // namespace pagoda::kernels
