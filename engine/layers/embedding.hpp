#pragma once

#include <cstdint>

#include "engine/layers/forward_pass.hpp"
#include "engine/layers/weight_loader.hpp"

namespace pagoda::layers {

/// A row of the table for each id.
class Embedding {
 public:
  Embedding() = default;
  /// Takes `weight` [vocab_size, width] of the loader's module.
  Embedding(const WeightLoader& loader, std::int64_t vocab_size, std::int64_t width);

  /// The same without the first `rows`: id 0 gives what was row `rows`.
  Embedding without_first(std::int64_t rows) const;

  /// ids: [num_tokens]; out: [num_tokens, width].
  void operator()(ForwardPass& pass, const std::int32_t* ids, float* out) const { issue(pass, ids, out, false); }
  /// out += the rows of ids.
  void add(ForwardPass& pass, const std::int32_t* ids, float* out) const { issue(pass, ids, out, true); }

 private:
  void issue(ForwardPass& pass, const std::int32_t* ids, float* out, bool accumulate) const;

  kernels::WeightMatrix table_;
};

}  // namespace pagoda::layers
