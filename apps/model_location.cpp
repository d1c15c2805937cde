#include "apps/model_location.hpp"

#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "io/model_files/model_location.hpp"

namespace pagoda::apps {
namespace {

namespace fs = std::filesystem;

/// Returns the folder that an environment variable names, with ~ expanded; empty if it is not set.
fs::path folder_of_variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return {};
  const fs::path path(value);
  const char* home = std::getenv("HOME");
  return *path.begin() == "~" && home != nullptr ? fs::path(home) / path.lexically_relative("~") : path;
}

/// Returns the caches as the hub's own programs find them: the first variable that is set decides.
std::vector<fs::path> hub_caches() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const auto cache = folder_of_variable(name); !cache.empty()) return {cache};
  }
  if (const auto home = folder_of_variable("HF_HOME"); !home.empty()) return {home / "hub"};
  if (const auto cache = folder_of_variable("XDG_CACHE_HOME"); !cache.empty()) return {cache / "huggingface" / "hub"};
  if (const auto home = folder_of_variable("HOME"); !home.empty()) return {home / ".cache" / "huggingface" / "hub"};
  return {};
}

}  // namespace

Status locate_models(EngineConfig& config) {
  if (Status status = locate_model(config.model); !status) return status;
  const auto speculation = parse_speculation_config(config.speculative_config.text);
  if (!speculation || !speculation->has_draft_model()) return {};
  auto json = nlohmann::json::parse(config.speculative_config.text);
  auto model = json["model"].get<std::string>();
  if (Status status = locate_model(model); !status) {
    return fail(status.error().code, "speculative_config: " + status.error().message, "speculative_config");
  }
  json["model"] = model;
  config.speculative_config.text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return {};
}

Status locate_model(std::string& model) {
  if (model.empty()) return {};
  auto located = io::locate_model(model, hub_caches());
  if (!located) return fail(std::move(located.error()));
  model = located->string();
  return {};
}

}  // namespace pagoda::apps
