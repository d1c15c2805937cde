#include "kernels/cpu/cgroups.hpp"

#include <algorithm>
#include <optional>

#include "kernels/cpu/proc_files.hpp"

namespace pagoda::kernels {
namespace {

namespace fs = std::filesystem;

/// Mount point of a hierarchy of cgroups.
struct CgroupMount {
  CgroupVersion version = CgroupVersion::v2;
  std::string root;   ///< the cgroup at the top of the mount
  std::string point;  ///< the folder where it is mounted
};

bool lists(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const auto comma = std::min(list.find(','), list.size());
    if (list.substr(0, comma) == word) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

/// Decodes a path of mountinfo, in which a space, a tab, a line end and a backslash are written as \ooo.
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

/// Reads the mounts of cgroups from mountinfo. A line has these words: id, parent, device, root, mount point, options,
/// any number of tags, "-", type, source, options.
std::vector<CgroupMount> cgroup_mounts(const fs::path& mountinfo, std::string_view controller) {
  std::vector<CgroupMount> mounts;
  for (const auto& line : lines_of(mountinfo)) {
    const auto words = words_of(line);
    const auto dash = std::ranges::find(words, "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    const bool is_v2 = dash[1] == "cgroup2";
    const bool is_v1 = dash[1] == "cgroup" && lists(dash[3], controller);
    if (!is_v1 && !is_v2) continue;
    mounts.push_back({is_v2 ? CgroupVersion::v2 : CgroupVersion::v1, unescaped(words[3]), unescaped(words[4])});
  }
  return mounts;
}

/// Returns the process's cgroup in one hierarchy. Lines are "id:controllers:path"; version 2 has no controllers.
std::optional<std::string> cgroup_of_process(const fs::path& file, CgroupVersion version, std::string_view controller) {
  for (const auto& line : lines_of(file)) {
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const auto controllers = std::string_view(line).substr(first + 1, second - first - 1);
    const bool is_it = version == CgroupVersion::v1 ? lists(controllers, controller) : line.starts_with("0::");
    if (is_it) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// Returns the part of `path` below `root`, or nullopt if `path` is not below it. The path of a process outside of its
/// cgroup namespace contains ".."; no mount shows such a cgroup.
std::optional<std::string> below(const std::string& path, std::string root) {
  if (root.ends_with('/')) root.pop_back();
  if (!path.starts_with(root) || (path.size() > root.size() && path[root.size()] != '/')) return std::nullopt;
  if ((path + "/").find("/../") != std::string::npos) return std::nullopt;
  return path.substr(root.size());
}

void add_folders(CgroupVersion version, std::string_view controller, const fs::path& root,
                 std::vector<CgroupFolder>& folders) {
  const auto path = cgroup_of_process(below_root(root, "/proc/self/cgroup"), version, controller);
  if (!path) return;
  std::vector<CgroupMount> mounts = cgroup_mounts(below_root(root, "/proc/self/mountinfo"), controller);
  std::erase_if(mounts, [&](const CgroupMount& mount) { return mount.version != version; });
  // A mount may show cgroups other than the process's. If all mounts do, as in some containers, the top of a mount is
  // the cgroup that limits the process.
  const bool some_hold = std::ranges::any_of(mounts, [&](const auto& m) { return below(*path, m.root).has_value(); });
  for (const auto& mount : mounts) {
    auto rest = below(*path, mount.root);
    if (!rest && some_hold) continue;
    for (std::string cgroup = rest.value_or("");;) {
      folders.push_back({version, mount.point + cgroup});
      if (cgroup.empty()) break;
      cgroup.resize(std::min(cgroup.rfind('/'), cgroup.size() - 1));
    }
  }
}

}  // namespace

std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const fs::path& root) {
  std::vector<CgroupFolder> folders;
  for (const CgroupVersion version : {CgroupVersion::v1, CgroupVersion::v2}) {
    add_folders(version, controller, root, folders);
  }
  return folders;
}

}  // namespace pagoda::kernels
