#pragma once

#include "engine/models/model_config.hpp"
#include "io/model_files/config_reader.hpp"

namespace pagoda::io {

/// Reads rope_theta and rope_scaling, or the object rope_parameters that newer files have for both. A scaling that is
/// not built is unsupported. config.head_dim and config.max_position_embeddings are known before.
void read_rope(ConfigReader& reader, models::ModelConfig& config);

}  // namespace pagoda::io
