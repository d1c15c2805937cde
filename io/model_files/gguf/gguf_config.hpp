#pragma once

#include <nlohmann/json.hpp>

#include "engine/models/model_spec.hpp"
#include "engine/request/sampling_defaults.hpp"
#include "io/model_files/gguf/gguf_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The model that a GGUF file describes. A key of its architecture that is not known is unsupported, since it may
/// change what the model computes. Errors: as parse_hf_config, with the file's keys.
Result<models::ModelSpec> read_gguf_spec(const GgufFile& file);

/// The same as a config.json says it, but for the factors of rope_freqs.weight, which are a rope_scaling of
/// rope_type "factors", and "packed_qkv" of Baichuan, which are Pagoda's own. Errors: as read_gguf_spec.
Result<nlohmann::json> gguf_as_hf_config(const GgufFile& file);

/// What the file recommends for sampling (general.sampling.*). Errors: bad_config.
Result<SamplingDefaults> read_gguf_sampling_defaults(const GgufFile& file);
/// The same under the keys of generation_config.json. Errors: bad_file.
Result<nlohmann::json> gguf_as_generation_config(const GgufFile& file);

}  // namespace pagoda::io
