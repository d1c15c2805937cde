#include "kernels/cpu/cpu_quota.hpp"

#include "kernels/cpu/cgroups.hpp"
#include "kernels/cpu/proc_files.hpp"

namespace pagoda::kernels {
namespace {

/// CPU time per period, both in microseconds.
struct Share {
  std::optional<std::size_t> quota;
  std::optional<std::size_t> period;
  const char* file;
};

Share share_of(CgroupVersion version, const std::filesystem::path& folder) {
  if (version == CgroupVersion::v1) {
    return {number_in_file(folder / "cpu.cfs_quota_us"), number_in_file(folder / "cpu.cfs_period_us"),
            "cpu.cfs_quota_us"};
  }
  const auto words = words_of(first_line_of(folder / "cpu.max"));  // quota or "max", and the period
  if (words.size() != 2) return {std::nullopt, std::nullopt, "cpu.max"};
  return {number_in(words[0]), number_in(words[1]), "cpu.max"};
}

}  // namespace

std::optional<CpuQuota> cpu_quota(const std::filesystem::path& root) {
  std::optional<CpuQuota> smallest;
  for (const auto& cgroup : cgroup_folders("cpu", root)) {
    const Share share = share_of(cgroup.version, below_root(root, cgroup.path));
    if (!share.quota || !share.period || *share.period == 0) continue;
    const double cpus = static_cast<double>(*share.quota) / static_cast<double>(*share.period);
    if (smallest && smallest->cpus <= cpus) continue;
    smallest =
        CpuQuota{cpus, std::string(share.file) + " of the cgroup " + cgroup.path + ": " + std::to_string(*share.quota) +
                           " of " + std::to_string(*share.period) + " microseconds"};
  }
  return smallest;
}

}  // namespace pagoda::kernels
