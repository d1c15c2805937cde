#pragma once

#include <cstdint>

#include "engine/layers/forward_batch.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// Receives the residual stream of a running model (ForwardBatch::residual_observer). Called on the stream's thread.
class ResidualObserver {
 public:
  virtual ~ResidualObserver() = default;

  /// Called before each layer runs, with its index. rows: [num_tokens, hidden_size], the input of the layer, which
  /// changes it: device memory. Issues what reads them. An error ends the run.
  virtual Status see(kernels::Stream& stream, const ForwardBatch& batch, std::int64_t layer, const float* rows) = 0;
};

}  // namespace pagoda::layers
