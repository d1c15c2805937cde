#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/layers/rows.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// A linear layer whose weight is the tensor `<name>.weight` of a checkpoint. The tensor is [out_features,
/// in_features]; or [in_features, out_features] if the layer is `transposed` and the checkpoint does not hold the
/// derived weight.
struct LinearModule {
  std::string name;  ///< for example "model.layers.0.mlp.up_proj"
  std::int64_t out_features = 0;
  bool transposed = false;
};

/// Receives the inputs of the linear layers of a running model (ForwardBatch::linear_inputs), on a device that computes
/// on the host. Called on the stream's thread.
class LinearInputs {
 public:
  virtual ~LinearInputs() = default;

  /// Called before `modules` are computed from x [num_rows, in_features], which they share. An error ends the run.
  virtual Status see(kernels::Stream& stream, std::span<const LinearModule> modules, const Rows& x,
                     std::int64_t num_rows, std::int64_t in_features) = 0;
};

}  // namespace pagoda::layers
