#include "apps/packed_cache_folder.hpp"

#include <cstdlib>

#include <spdlog/spdlog.h>

#include "io/packed_cache/packed_cache.hpp"

namespace pagoda::apps {
namespace {

/// Returns the folder that an environment variable names; empty if it is not set, or has no absolute path.
std::filesystem::path folder_of_variable(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value == '/' ? std::filesystem::path(value) : std::filesystem::path();
}

}  // namespace

std::filesystem::path packed_cache_folder() {
  const auto below = std::filesystem::path("pagoda") / "packed";
  if (const auto caches = folder_of_variable("XDG_CACHE_HOME"); !caches.empty()) return caches / below;
  const auto home = folder_of_variable("HOME");
  return home.empty() ? home : home / ".cache" / below;
}

std::string chosen_packed_cache(const std::string& value, std::string_view device) {
  if (value != kAutomaticCache) return value;
  const auto folder = packed_cache_folder();
  if (device != "cpu" || folder.empty()) return "off";
  if (const Status usable = io::PackedCache::check(folder); !usable) {
    spdlog::info("packed weights are not kept: {}", usable.error().message);
    return "off";
  }
  return folder.string();
}

}  // namespace pagoda::apps
