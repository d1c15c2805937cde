#include "engine/layers/embedding.hpp"

namespace pagoda::layers {

Embedding::Embedding(const WeightLoader& loader, std::int64_t vocab_size, std::int64_t width)
    : table_(loader.matrix("weight", vocab_size, width)) {}

void Embedding::operator()(ForwardPass& pass, float* out) const {
  pass.run(&kernels::Ops::embedding,
           {.token_ids = pass.batch().token_ids, .num_tokens = pass.num_tokens(), .table = table_, .out = out});
}

void LmHead::operator()(ForwardPass& pass, const Activations& activations, const float* hidden, float* logits) const {
  const auto& batch = pass.batch();
  if (batch.num_logit_rows == 0) return;
  pass.run(&kernels::Ops::gather_rows, {.x = hidden,
                                        .rows = batch.logit_rows,
                                        .num_rows = batch.num_logit_rows,
                                        .width = projection_.in_features(),
                                        .out = activations.logit_rows});
  projection_(pass, activations.logit_rows, batch.num_logit_rows, logits);
}

}  // namespace pagoda::layers
