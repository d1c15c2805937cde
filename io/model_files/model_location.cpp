#include "io/model_files/model_location.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHubPrefix = "models--";

/// Removes slashes at the end of `path`.
fs::path without_trailing_slash(const fs::path& path) {
  return path.has_filename() || !path.has_relative_path() ? path : path.parent_path();
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    entries.push_back(entry->path());
  }
  std::ranges::sort(entries);
  return entries;
}

/// Returns "a, b and 2 more".
std::string list_of(const std::vector<fs::path>& paths) {
  constexpr std::size_t kMaxNamed = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(paths.size(), kMaxNamed); ++i) {
    text += (i == 0 ? "" : ", ") + paths[i].filename().string();
  }
  return paths.size() > kMaxNamed ? text + " and " + std::to_string(paths.size() - kMaxNamed) + " more" : text;
}

tl::unexpected<Error> bad_location(const fs::path& model, const std::string& reason) {
  return fail(ErrorCode::bad_config, model.string() + ": " + reason, "model");
}

Result<fs::path> snapshot_of(const fs::path& repository) {
  std::string revision;
  std::ifstream(repository / "refs" / "main") >> revision;
  const fs::path snapshots = repository / "snapshots";
  const bool is_name = !revision.empty() && revision.find('/') == std::string::npos && revision.front() != '.';
  if (is_name && is_folder(snapshots / revision)) return snapshots / revision;
  auto all = entries_of(snapshots);
  std::erase_if(all, [](const fs::path& path) { return !is_folder(path); });
  if (all.size() == 1) return all.front();
  if (all.empty()) return bad_location(repository, "the folder of the hub's cache has no snapshot: download it again");
  return bad_location(repository, "the folder of the hub's cache has no refs/main, and several snapshots: name one, " +
                                      (snapshots / all.front().filename()).string() + " for example (there are " +
                                      list_of(all) + ")");
}

/// Returns whether `name` is "NAME-00002-of-00003.gguf" or that of a later part.
bool is_later_part(std::string_view name) {
  constexpr std::string_view kPattern = "-00000-of-00000.gguf";
  if (name.size() < kPattern.size()) return false;
  name.remove_prefix(name.size() - kPattern.size());
  const auto fits = [](char c, char pattern) { return pattern == '0' ? c >= '0' && c <= '9' : c == pattern; };
  return std::ranges::equal(name, kPattern, fits) && !name.starts_with("-00001");
}

/// Returns the file to open for each GGUF model in the folder: of a split model the first part. Image projectors are no
/// models.
std::vector<fs::path> gguf_models_in(const fs::path& folder) {
  auto files = entries_of(folder);
  std::erase_if(files, [](const fs::path& path) {
    const std::string name = path.filename().string();
    return path.extension() != ".gguf" || name.starts_with("mmproj") || is_later_part(name);
  });
  return files;
}

/// Returns whether `name` is ORG/NAME, or NAME alone as for the hub's first models.
bool is_repository_name(std::string_view name) {
  constexpr std::size_t kMaxSize = 192;
  if (name.empty() || name.size() > kMaxSize || std::ranges::count(name, '/') > 1) return false;
  const auto is_plain = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  const auto is_allowed = [&](char c) { return is_plain(c) || c == '-' || c == '.' || c == '/'; };
  const std::string_view last = name.substr(name.find('/') == name.npos ? 0 : name.find('/') + 1);
  return is_plain(name.front()) && !last.empty() && is_plain(last.front()) && std::ranges::all_of(name, is_allowed);
}

}  // namespace

Result<fs::path> locate_model(const fs::path& given) {
  const fs::path model = without_trailing_slash(given);
  std::error_code ignored;
  if (!is_folder(model) || fs::exists(model / "config.json", ignored)) return model;
  if (model.filename().string().starts_with(kHubPrefix) && is_folder(model / "snapshots")) {
    auto snapshot = snapshot_of(model);
    return snapshot ? locate_model(*snapshot) : snapshot;
  }
  const auto files = gguf_models_in(model);
  if (files.size() == 1) return files.front();
  if (files.empty()) return model;
  return bad_location(model, "has no config.json, and several GGUF models: name one, " + files.front().string() +
                                 " for example (there are " + list_of(files) + ")");
}

Result<fs::path> locate_model(const fs::path& model, std::span<const fs::path> hub_caches) {
  std::error_code ignored;
  std::string name = without_trailing_slash(model).string();
  if (fs::exists(model, ignored) || !is_repository_name(name) || name.ends_with(".gguf")) return locate_model(model);
  std::string folder_name(kHubPrefix);
  for (const char c : name) folder_name += c == '/' ? "--" : std::string(1, c);
  std::string places;
  for (const fs::path& cache : hub_caches) {
    if (is_folder(cache / folder_name)) return locate_model(cache / folder_name);
    places += (places.empty() ? "" : ", ") + (cache / folder_name).string();
  }
  if (name.find('/') == std::string::npos) return locate_model(model);
  return bad_location(model,
                      "no such model folder or GGUF file. Names of Hugging Face's hub are looked for in the local "
                      "cache only, and it is not there: " +
                          places);
}

std::optional<std::string> hub_name(const fs::path& folder) {
  const fs::path snapshot = without_trailing_slash(folder.lexically_normal());
  const std::string repository = snapshot.parent_path().parent_path().filename().string();
  if (snapshot.parent_path().filename() != "snapshots" || !repository.starts_with(kHubPrefix)) return std::nullopt;
  std::string name = repository.substr(kHubPrefix.size());
  if (const auto at = name.find("--"); at != std::string::npos) name.replace(at, 2, "/");
  return name;
}

}  // namespace pagoda::io
