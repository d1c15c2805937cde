#pragma once

#include <cstdint>
#include <vector>

#include "engine/layers/forward_batch.hpp"
#include "engine/models/model_config.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// The slopes of ALiBi (Press et al. 2022) for each head: the geometric sequence 2^(-8/n), 2^(-16/n), ... for n heads,
/// and for a number that is no power of two those of the next lower power, followed by every other one of twice that
/// power.
std::vector<float> alibi_slopes(std::int64_t num_heads);

/// The constants in a device's memory by which a model's attention knows positions; shared by all its layers.
class PositionTables {
 public:
  PositionTables() = default;
  /// What `config.positions` asks for, up to limits.max_model_len. Errors: out_of_memory.
  static Result<PositionTables> create(kernels::Device& device, const models::ModelConfig& config,
                                       const ModelLimits& limits);
  /// Bytes that create allocates.
  static std::int64_t bytes(const models::ModelConfig& config, const ModelLimits& limits);

  // Device memory, valid as long as the tables live, also after a move.
  const float* cos_sin() const { return cos_sin_.as<float>(); }            ///< [max_model_len, head_dim], or null
  const float* alibi_slopes() const { return alibi_slopes_.as<float>(); }  ///< [num_heads], or null

 private:
  kernels::Buffer cos_sin_;
  kernels::Buffer alibi_slopes_;
};

}  // namespace pagoda::layers
