#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/models/model_spec.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The spec of a Hugging Face model folder as its config and its tensors say it together: a head that differs from the
/// embedding is used although config.json ties the two, and a folder without a head ties them although config.json does
/// not, as transformers and vLLM do. Without files of weights the spec is that of config.json. Errors: as
/// load_hf_config; bad_file for a folder without the embedding.
Result<models::ModelSpec> load_folder_spec(const std::filesystem::path& folder);

/// Where that differs from config.json, and which tensors are left out, each as a sentence; none of a folder that
/// cannot be read.
std::vector<std::string> folder_remarks(const std::filesystem::path& folder);

}  // namespace pagoda::io
