#pragma once

#include <filesystem>
#include <string_view>

#include "engine/request/sampling_defaults.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Reads the sampling fields of a generation_config.json that vLLM uses: temperature, top_p, top_k, min_p,
/// repetition_penalty and max_new_tokens; the others (do_sample too) are ignored. Errors: bad_config, with file and
/// key, for a value that is invalid in a request too.
Result<SamplingDefaults> parse_sampling_defaults(std::string_view json, std::string_view file_name);

/// Reads `model_dir`/generation_config.json. Without the file there are no defaults.
Result<SamplingDefaults> load_sampling_defaults(const std::filesystem::path& model_dir);

}  // namespace pagoda::io
