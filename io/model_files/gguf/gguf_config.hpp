#pragma once

#include <nlohmann/json.hpp>

#include "engine/models/model_spec.hpp"
#include "engine/request/sampling_defaults.hpp"
#include "io/model_files/gguf/gguf_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

// Keys of Pagoda's own in the config of a GGUF file. A family reads them; no folder has them.
inline constexpr const char* kNormsIncludeOne = "norm_weights_include_one";  ///< true: norms are stored with 1 added
inline constexpr const char* kPackedQkv = "packed_qkv";  ///< false: queries, keys and values have a tensor each

/// Returns the spec of the model that a GGUF file describes. An unknown key of its architecture is unsupported, since
/// the key may change what the model computes. Errors: as parse_hf_config, with the file's keys.
Result<models::ModelSpec> read_gguf_spec(const GgufFile& file);

/// Returns the model of read_gguf_spec as a config.json. Three parts are Pagoda's own: the keys above, and the factors
/// of rope_freqs.weight, which are a rope_scaling of rope_type "factors". Errors: as read_gguf_spec.
Result<nlohmann::json> gguf_as_hf_config(const GgufFile& file);

/// Returns the sampling values that the file recommends (general.sampling.*). Errors: bad_config.
Result<SamplingDefaults> read_gguf_sampling_defaults(const GgufFile& file);
/// Returns these values under the keys of generation_config.json. Errors: bad_file.
Result<nlohmann::json> gguf_as_generation_config(const GgufFile& file);

/// Returns whether two specs have the same windows, positions, factors and softcaps of attention in each layer.
bool has_same_attention(const models::ModelSpec& a, const models::ModelSpec& b);

}  // namespace pagoda::io
