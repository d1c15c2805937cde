#pragma once

#include <filesystem>
#include <string_view>

#include "engine/request/sampling_defaults.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The sampling fields of a generation_config.json that vLLM takes over: temperature, top_p, top_k, min_p,
/// repetition_penalty and max_new_tokens; the rest (do_sample too) is left alone. Errors: bad_config, with file and
/// key, for a value that no request could have either.
Result<SamplingDefaults> parse_sampling_defaults(std::string_view json, std::string_view file_name);

/// Of `model_dir`/generation_config.json; without the file there are none.
Result<SamplingDefaults> load_sampling_defaults(const std::filesystem::path& model_dir);

}  // namespace pagoda::io
