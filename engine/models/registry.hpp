#pragma once

#include <memory>

#include "engine/models/model.hpp"

namespace pagoda::models {

// One factory per model file; registry.cpp maps architecture names to them. `config` and `limits` have been checked.

Result<std::unique_ptr<Model>> create_llama(const ModelConfig& config, const WeightSource& weights,
                                            std::shared_ptr<kernels::Device> device, const ModelLimits& limits);

}  // namespace pagoda::models
