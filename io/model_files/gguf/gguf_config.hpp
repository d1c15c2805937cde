#pragma once

#include "engine/models/model_spec.hpp"
#include "engine/request/sampling_defaults.hpp"
#include "io/model_files/gguf/gguf_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The model that a GGUF file describes. A key of its architecture that is not known is unsupported, since it may
/// change what the model computes. Errors: as parse_hf_config, with the file's keys.
Result<models::ModelSpec> read_gguf_spec(const GgufFile& file);

/// What the file recommends for sampling (general.sampling.*). Errors: bad_config.
Result<SamplingDefaults> read_gguf_sampling_defaults(const GgufFile& file);

}  // namespace pagoda::io
