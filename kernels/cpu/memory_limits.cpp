#include "kernels/cpu/memory_limits.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <vector>

#include <unistd.h>

namespace pagoda::kernels {
namespace {

namespace fs = std::filesystem;

enum class CgroupVersion : std::uint8_t { v1, v2 };

/// Where a hierarchy of memory cgroups is mounted.
struct CgroupMount {
  CgroupVersion version = CgroupVersion::v2;
  std::string root;   ///< the cgroup that the mount shows at its top
  std::string point;  ///< the folder where it does
};

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(std::move(line));
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream words(line);
  return {std::istream_iterator<std::string>(words), {}};
}

bool lists(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

/// None for "max", "unlimited" and whatever else is no number.
std::optional<std::size_t> number_in(std::string_view text) {
  std::size_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::size_t> number_in_file(const fs::path& path) {
  const auto lines = lines_of(path);
  return lines.empty() ? std::nullopt : number_in(lines.front());
}

/// The number that stands after `key` in a file of lines "key number ...".
std::optional<std::size_t> number_after(const fs::path& path, std::string_view key) {
  for (const auto& line : lines_of(path)) {
    const auto words = words_of(line);
    if (words.size() >= 2 && words[0] == key) return number_in(words[1]);
  }
  return std::nullopt;
}

/// A path of mountinfo, in which a space, a tab, a line end and a backslash are written as \ooo.
std::string unescaped(std::string_view text) {
  std::string path;
  const auto is_octal = [](char c) { return c >= '0' && c <= '7'; };
  while (!text.empty()) {
    if (text[0] == '\\' && text.size() >= 4 && std::ranges::all_of(text.substr(1, 3), is_octal)) {
      path += static_cast<char>((text[1] - '0') * 64 + (text[2] - '0') * 8 + (text[3] - '0'));
      text.remove_prefix(4);
    } else {
      path += text[0];
      text.remove_prefix(1);
    }
  }
  return path;
}

/// Lines of mountinfo: id, parent, device, root, mount point, options, any number of tags, "-", type, source, options.
std::vector<CgroupMount> cgroup_mounts(const fs::path& mountinfo) {
  std::vector<CgroupMount> mounts;
  for (const auto& line : lines_of(mountinfo)) {
    const auto words = words_of(line);
    const auto dash = std::ranges::find(words, "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    const bool is_v2 = dash[1] == "cgroup2";
    const bool is_v1 = dash[1] == "cgroup" && lists(dash[3], "memory");
    if (!is_v1 && !is_v2) continue;
    mounts.push_back({is_v2 ? CgroupVersion::v2 : CgroupVersion::v1, unescaped(words[3]), unescaped(words[4])});
  }
  return mounts;
}

/// The process's cgroup in one hierarchy. Lines are "id:controllers:path"; version 2 has no controllers.
std::optional<std::string> cgroup_of_process(const fs::path& file, CgroupVersion version) {
  for (const auto& line : lines_of(file)) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const bool is_it = version == CgroupVersion::v1 ? lists(controllers, "memory") : line.starts_with("0::");
    if (is_it) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// What of `path` lies below `root`; none when it does not. A process outside of its cgroup namespace has a path with
/// "..", which nothing here shows.
std::optional<std::string> below(const std::string& path, std::string root) {
  if (root.ends_with('/')) root.pop_back();
  if (!path.starts_with(root) || (path.size() > root.size() && path[root.size()] != '/')) return std::nullopt;
  if ((path + "/").find("/../") != std::string::npos) return std::nullopt;
  return path.substr(root.size());
}

class Search {
 public:
  explicit Search(const fs::path& root) : root_(root) {}

  AvailableMemory smallest() {
    of_machine();
    for (const CgroupVersion version : {CgroupVersion::v1, CgroupVersion::v2}) of_cgroups(version);
    of_address_space();
    return std::move(least_);
  }

 private:
  static std::string mib(std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

  fs::path at(const std::string& absolute) const { return root_ / fs::path(absolute).relative_path(); }

  void left(std::size_t bytes, std::string limit) {
    if (bytes < least_.bytes) least_ = {bytes, std::move(limit)};
  }

  void of_machine() {
    constexpr std::size_t kKib = 1024;
    const auto total = static_cast<std::size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES))) *
                       static_cast<std::size_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
    const auto kib = number_after(at("/proc/meminfo"), "MemAvailable:");
    left(kib ? *kib * kKib : total, "the machine's free memory");
  }

  /// The process's own cgroup and those above it.
  void of_cgroups(CgroupVersion version) {
    const auto path = cgroup_of_process(at("/proc/self/cgroup"), version);
    if (!path) return;
    std::vector<CgroupMount> mounts = cgroup_mounts(at("/proc/self/mountinfo"));
    std::erase_if(mounts, [&](const CgroupMount& mount) { return mount.version != version; });
    // A mount may show other cgroups than the process's; where all do, as within some containers, the top of a mount is
    // what the process was put under.
    const bool some_hold = std::ranges::any_of(mounts, [&](const auto& m) { return below(*path, m.root).has_value(); });
    for (const auto& mount : mounts) {
      auto rest = below(*path, mount.root);
      if (!rest && some_hold) continue;
      for (std::string cgroup = rest.value_or("");;) {
        of_cgroup(version, mount.point + cgroup);
        if (cgroup.empty()) break;
        cgroup.resize(std::min(cgroup.rfind('/'), cgroup.size() - 1));
      }
    }
  }

  void of_cgroup(CgroupVersion version, const std::string& folder) {
    const bool is_v2 = version == CgroupVersion::v2;
    const fs::path path = at(folder);
    const auto charged = number_in_file(path / (is_v2 ? "memory.current" : "memory.usage_in_bytes"));
    if (!charged) return;  // the top of version 2, or a hierarchy without the memory controller
    const std::string prefix = is_v2 ? "" : "total_";  // without it, version 1 leaves out the cgroups below
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
      limit_in("memory.high");  // above it the kernel slows the process down until it hardly runs
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
      const auto statm = lines_of(at("/proc/self/statm"));
      const auto sizes = statm.empty() ? std::vector<std::string>{} : words_of(statm.front());
      const auto pages = sizes.empty() ? std::nullopt : number_in(sizes.front());
      if (!limit || !pages) continue;
      const std::size_t used = *pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
      const std::size_t unused = *limit - std::min(*limit, used);
      left(unused - std::min(unused, kAddressSpaceOfThreads),
           "RLIMIT_AS " + mib(*limit) + ", " + mib(used) + " in use, " + mib(kAddressSpaceOfThreads) + " for threads");
    }
  }

  fs::path root_;
  AvailableMemory least_{std::numeric_limits<std::size_t>::max(), ""};
};

}  // namespace

AvailableMemory available_memory(const std::filesystem::path& root) {
  return Search(root).smallest();
}

}  // namespace pagoda::kernels
