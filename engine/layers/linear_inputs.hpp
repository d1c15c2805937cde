#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/layers/rows.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// A linear layer whose weight is the tensor `<name>.weight` [out_features, in_features] of a checkpoint; or, where it
/// is `transposed` and the checkpoint does not hold it derived, [in_features, out_features].
struct LinearModule {
  std::string name;  ///< "model.layers.0.mlp.up_proj" for example
  std::int64_t out_features = 0;
  bool transposed = false;
};

/// Sees what goes into the linear layers of a model that runs (ForwardBatch::linear_inputs), on a device that computes
/// on the host. Called on the stream's thread.
class LinearInputs {
 public:
  virtual ~LinearInputs() = default;

  /// `modules` are about to be computed from the same x [num_rows, in_features]. An error ends the run.
  virtual Status see(kernels::Stream& stream, std::span<const LinearModule> modules, const Rows& x,
                     std::int64_t num_rows, std::int64_t in_features) = 0;
};

}  // namespace pagoda::layers
