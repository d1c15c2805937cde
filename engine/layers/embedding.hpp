#pragma once

#include <cstdint>

#include "engine/layers/activations.hpp"
#include "engine/layers/forward_pass.hpp"
#include "engine/layers/linear.hpp"
#include "engine/layers/weight_loader.hpp"

namespace pagoda::layers {

/// A row of the table for each token id.
class Embedding {
 public:
  Embedding() = default;
  /// Takes `weight` [vocab_size, width] of the loader's module.
  Embedding(const WeightLoader& loader, std::int64_t vocab_size, std::int64_t width);

  /// out: [num_tokens, width], the rows of the batch's token ids.
  void operator()(ForwardPass& pass, float* out) const;

  const kernels::WeightMatrix& table() const { return table_; }

 private:
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
