#pragma once

#include <memory>

#include "engine/models/model.hpp"

namespace pagoda::models {

/// What a model is made of. `config` and `limits` have been checked; `weights` must outlive the model.
struct ModelParts {
  const ModelConfig& config;
  const weights::WeightSource& weights;
  std::shared_ptr<kernels::Device> device;
  layers::ModelLimits limits;
};

// One factory per model file; registry.cpp maps architecture names to them. Errors as create_model.

Result<std::unique_ptr<Model>> create_baichuan(const ModelParts& parts);
Result<std::unique_ptr<Model>> create_gpt2(const ModelParts& parts);
Result<std::unique_ptr<Model>> create_llama(const ModelParts& parts);
Result<std::unique_ptr<Model>> create_mistral(const ModelParts& parts);
Result<std::unique_ptr<Model>> create_opt(const ModelParts& parts);
Result<std::unique_ptr<Model>> create_qwen2(const ModelParts& parts);
Result<std::unique_ptr<Model>> create_qwen3(const ModelParts& parts);

}  // namespace pagoda::models
