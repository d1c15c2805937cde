#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "kernels/result.hpp"

namespace pagoda::io {

/// The model folder or the file that `model` means:
/// - a folder models--ORG--NAME as the cache of Hugging Face's hub has them: the snapshot of its main branch, or its
/// only
///   snapshot;
/// - a folder without a config.json that holds one GGUF model: the file, or the first of its parts;
/// - every other path: itself, whether it is there or not.
/// Errors: bad_config for a folder of the first two kinds in which the model cannot be told.
Result<std::filesystem::path> locate_model(const std::filesystem::path& model);

/// The same, where `model` may also be a repository of the hub, ORG/NAME, and a path wins. `hub_caches`: the folders
/// that hold the folders models--ORG--NAME, best first. More errors: bad_config for a repository that none of them has.
Result<std::filesystem::path> locate_model(const std::filesystem::path& model,
                                           std::span<const std::filesystem::path> hub_caches);

/// ORG/NAME for a folder models--ORG--NAME/snapshots/HASH of the hub's cache.
std::optional<std::string> hub_name(const std::filesystem::path& folder);

}  // namespace pagoda::io
