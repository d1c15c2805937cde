#include "kernels/cpu/memory_limits.hpp"

#include <algorithm>
#include <limits>
#include <string_view>

#include <unistd.h>

#include "kernels/cpu/cgroups.hpp"
#include "kernels/cpu/proc_files.hpp"

namespace pagoda::kernels {
namespace {

namespace fs = std::filesystem;

class Search {
 public:
  explicit Search(const fs::path& root) : root_(root) {}

  AvailableMemory smallest() {
    of_machine();
    for (const auto& cgroup : cgroup_folders("memory", root_)) of_cgroup(cgroup.version, cgroup.path);
    of_address_space();
    return std::move(smallest_);
  }

 private:
  static std::string mib(std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

  fs::path at(const std::string& absolute) const { return below_root(root_, absolute); }

  void left(std::size_t bytes, std::string limit) {
    if (bytes < smallest_.bytes) smallest_ = {bytes, std::move(limit)};
  }

  void of_machine() {
    constexpr std::size_t kKib = 1024;
    const auto total = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES))) *
                       static_cast<std::size_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
    const auto kib = number_after(at("/proc/meminfo"), "MemAvailable:");
    left(kib ? *kib * kKib : total, "the machine's free memory");
  }

  void of_cgroup(CgroupVersion version, const std::string& folder) {
    const bool is_v2 = version == CgroupVersion::v2;
    const fs::path path = at(folder);
    const auto charged = number_in_file(path / (is_v2 ? "memory.current" : "memory.usage_in_bytes"));
    if (!charged) return;  // the top of version 2, or a hierarchy without the memory controller
    const std::string prefix = is_v2 ? "" : "total_";  // without the prefix, version 1 excludes the cgroups below
    std::size_t cache = 0;
    for (const char* list : {"inactive_file", "active_file"}) {
      cache += number_after(path / "memory.stat", prefix + list).value_or(0);
    }
    const std::size_t used = *charged - std::min(*charged, cache);
    const auto limit_in = [&](const char* file) {
      const auto limit = number_in_file(path / file);
      if (!limit) return;
      left(*limit - std::min(*limit, used),
           std::string(file) + " of the cgroup " + folder + " " + mib(*limit) + ", " + mib(used) + " in use");
    };
    if (is_v2) {
      limit_in("memory.max");
      limit_in("memory.high");  // above this limit the kernel throttles the process almost to a standstill
    } else {
      limit_in("memory.limit_in_bytes");
    }
  }

  void of_address_space() {
    constexpr std::string_view kName = "Max address space";
    for (const auto& line : lines_of(at("/proc/self/limits"))) {
      if (!line.starts_with(kName)) continue;
      const auto words = words_of(line.substr(kName.size()));  // soft limit, hard limit, unit
      const auto limit = words.empty() ? std::nullopt : number_in(words.front());
      const auto sizes = words_of(first_line_of(at("/proc/self/statm")));
      const auto pages = sizes.empty() ? std::nullopt : number_in(sizes.front());
      if (!limit || !pages) continue;
      const std::size_t used = *pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
      const std::size_t unused = *limit - std::min(*limit, used);
      left(unused - std::min(unused, kAddressSpaceOfThreads),
           "RLIMIT_AS " + mib(*limit) + ", " + mib(used) + " in use, " + mib(kAddressSpaceOfThreads) + " for threads");
    }
  }

  fs::path root_;
  AvailableMemory smallest_{std::numeric_limits<std::size_t>::max(), ""};
};

}  // namespace

AvailableMemory available_memory(const std::filesystem::path& root) {
  return Search(root).smallest();
}

}  // namespace pagoda::kernels
