#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "kernels/result.hpp"

namespace pagoda::io {

/// Returns the model folder or the file for `model`:
///   - a folder models--ORG--NAME of the cache of Hugging Face's hub: the snapshot of its main branch, or its only one;
///   - a folder without a config.json that holds one GGUF model: the file, or the first of its parts;
///   - every other path: the path itself, even if it does not exist.
/// Errors: bad_config for a folder of the first two kinds in which the model is not clear.
Result<std::filesystem::path> locate_model(const std::filesystem::path& model);

/// Locates a model, as above. `model` may also be a repository ORG/NAME of the hub; an existing path has priority.
/// `hub_caches`: the folders that hold folders models--ORG--NAME; the first match counts. Errors also: bad_config for a
/// repository that no cache has.
Result<std::filesystem::path> locate_model(const std::filesystem::path& model,
                                           std::span<const std::filesystem::path> hub_caches);

/// Returns ORG/NAME for a folder models--ORG--NAME/snapshots/HASH of the hub's cache.
std::optional<std::string> hub_name(const std::filesystem::path& folder);

}  // namespace pagoda::io
