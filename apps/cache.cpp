#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "apps/command.hpp"
#include "apps/packed_cache_folder.hpp"
#include "io/packed_cache/packed_cache.hpp"

namespace pagoda::apps {
namespace {

struct CacheOptions {
  std::string folder = packed_cache_folder().string();
  bool json = false;
};

/// Returns the cache; null if there is no such folder. Errors: bad_config; those of PackedCache::open.
Result<std::shared_ptr<const io::PackedCache>> open_cache(const CacheOptions& options) {
  if (options.folder.empty()) {
    return fail(ErrorCode::bad_config, "neither XDG_CACHE_HOME nor HOME is set: name the folder with --packed-cache",
                "packed_cache");
  }
  std::error_code error;
  if (!std::filesystem::exists(options.folder, error) && !error) return nullptr;
  return io::PackedCache::open(options.folder);
}

/// Returns a time as 2026-11-29T14:05:00Z.
std::string text_of(std::filesystem::file_time_type time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(std::chrono::file_clock::to_sys(time));
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)));
}

int list(const CacheOptions& options) {
  const auto cache = open_cache(options);
  if (!cache) return exit_with(cache.error());
  std::int64_t total = 0;
  const auto entries = *cache != nullptr ? (*cache)->list() : std::vector<io::PackedCache::Entry>();
  for (const auto& entry : entries) {
    total += entry.bytes;
    if (options.json) {
      const nlohmann::ordered_json line{{"model", entry.model},
                                        {"bytes", entry.bytes},
                                        {"last_used", text_of(entry.last_used)},
                                        {"file", entry.file.string()}};
      std::printf("%s\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    } else {
      std::printf("%8.1f MiB  %s  %s\n", static_cast<double>(entry.bytes) / (1 << 20), text_of(entry.last_used).c_str(),
                  entry.model.empty() ? "(not readable)" : entry.model.c_str());
    }
  }
  if (!options.json) {
    std::printf("%8.1f MiB  in %s\n", static_cast<double>(total) / (1 << 20), options.folder.c_str());
  }
  return kExitOk;
}

int clear(const CacheOptions& options) {
  const auto cache = open_cache(options);
  if (!cache) return exit_with(cache.error());
  const auto freed = *cache != nullptr ? (*cache)->clear() : Result<std::int64_t>(0);
  if (!freed) return exit_with(freed.error());
  if (options.json) {
    std::printf("%s\n", nlohmann::ordered_json{{"freed_bytes", *freed}}.dump().c_str());
  } else {
    std::printf("%.1f MiB freed in %s\n", static_cast<double>(*freed) / (1 << 20), options.folder.c_str());
  }
  return kExitOk;
}

}  // namespace

Command add_cache(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "cache", "List or clear the packed weights that --packed-cache keeps");
  app->require_subcommand(1);
  const auto options = std::make_shared<CacheOptions>();
  const auto add = [&](const char* name, const char* help) {
    auto* part = add_subcommand(*app, name, help);
    part->add_option("--packed-cache", options->folder, "The folder")->capture_default_str();
    part->add_flag("--json", options->json, "Print JSON");
    return part;
  };
  const auto* const shows = add("list", "The models whose packed weights are kept, those used last first");
  add("clear", "Remove all packed weights");
  return {app, [options, shows] { return shows->parsed() ? list(*options) : clear(*options); }};
}

}  // namespace pagoda::apps
