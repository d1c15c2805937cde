#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace pagoda::apps {

/// Value of --packed-cache that stands for packed_cache_folder().
inline constexpr const char* kAutomaticCache = "auto";

/// Returns the folder pagoda/packed in the user's cache folder (XDG_CACHE_HOME, or ~/.cache); empty if the environment
/// has neither.
std::filesystem::path packed_cache_folder();

/// Returns EngineConfig::packed_cache for a value of --packed-cache: the value itself or, for "auto",
/// packed_cache_folder(); "off" if this folder cannot be used, which is logged, or if `device` is a GPU. Makes no
/// folder: the loading of weights does.
std::string chosen_packed_cache(const std::string& value, std::string_view device);

}  // namespace pagoda::apps
