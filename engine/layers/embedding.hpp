#pragma once

#include <cstdint>

#include "engine/layers/activations.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/linear.hpp"
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

  const kernels::WeightMatrix& table() const { return table_; }

 private:
  void issue(ForwardPass& pass, const std::int32_t* ids, float* out, bool accumulate) const;

  kernels::WeightMatrix table_;
};

/// Scores of the vocabulary for the rows of the batch that ask for them.
class LmHead {
 public:
  LmHead() = default;
  explicit LmHead(Linear projection) : projection_(std::move(projection)) {}

  /// hidden: [num_tokens, in_features of the projection]; logits: [num_logit_rows, vocab_size].
  void operator()(ForwardPass& pass, const Activations& activations, const float* hidden, float* logits) const;

 private:
  Linear projection_;
};

}  // namespace pagoda::layers
