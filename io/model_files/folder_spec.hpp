#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/models/model_spec.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Returns the spec of a Hugging Face model folder by its config and its tensors together, as transformers and vLLM do:
/// a head that differs from the embedding is used even if config.json ties the two, and in a folder without a head the
/// embedding is the head even if config.json does not tie them. Without weight files the spec is that of config.json.
/// Errors: as load_hf_config; bad_file for a folder without the embedding.
Result<models::ModelSpec> load_folder_spec(const std::filesystem::path& folder);

/// Returns a sentence for each difference between load_folder_spec and config.json, and a sentence that lists the
/// tensors that are left out. Returns nothing for a folder that cannot be read.
std::vector<std::string> folder_remarks(const std::filesystem::path& folder);

}  // namespace pagoda::io
