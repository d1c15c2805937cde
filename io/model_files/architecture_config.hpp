#pragma once

#include "engine/models/model_config.hpp"
#include "io/model_files/config_reader.hpp"

namespace pagoda::io {

/// Reads the keys of `config.architecture`, as that architecture spells them and with the defaults that transformers
/// gives it. An architecture that is not known is rejected with the list of those that are.
void read_architecture_config(ConfigReader& reader, models::ModelConfig& config);

}  // namespace pagoda::io
