#include "engine/layers/attention.hpp"

#include <cmath>
#include <utility>

namespace pagoda::layers {

Attention::Attention(std::int64_t layer, const AttentionShape& shape, Linear qkv, Linear output)
    : layer_(layer), shape_(shape), qkv_(std::move(qkv)), output_(std::move(output)) {}

kernels::KvCacheView Attention::cache_of_layer(const models::KvCache& cache) const {
  kernels::KvCacheView view{.base = cache.base,
                            .num_blocks = cache.num_blocks,
                            .block_size = cache.block_size,
                            .num_kv_heads = shape_.num_kv_heads,
                            .head_dim = shape_.head_dim,
                            .dtype = cache.dtype};
  const std::int64_t layer_bytes = 2 * view.part_bytes();
  view.block_bytes = shape_.num_layers * layer_bytes;
  view.base += layer_ * layer_bytes;
  return view;
}

void Attention::operator()(ForwardPass& pass, const Activations& activations) const {
  using kernels::Ops;
  const auto& batch = pass.batch();
  const auto cache = cache_of_layer(pass.cache());
  const std::int64_t row = qkv_.out_features();
  float* query = activations.qkv;
  float* key = query + shape_.query_width();
  const float* value = key + shape_.kv_width();

  qkv_(pass, activations.hidden, pass.num_tokens(), activations.qkv);
  if (shape_.rotary != nullptr) {
    pass.run(&Ops::rotary, {.positions = batch.positions,
                            .num_tokens = pass.num_tokens(),
                            .query = query,
                            .key = key,
                            .query_stride = row,
                            .key_stride = row,
                            .num_heads = shape_.num_heads,
                            .num_kv_heads = shape_.num_kv_heads,
                            .head_dim = shape_.head_dim,
                            .rotary_dim = shape_.rotary->rotary_dim(),
                            .cos_sin = shape_.rotary->cos_sin()});
  }
  pass.run(&Ops::store_kv, {.key = key,
                            .value = value,
                            .key_stride = row,
                            .value_stride = row,
                            .slot_mapping = batch.slot_mapping,
                            .num_tokens = pass.num_tokens(),
                            .cache = cache});
  pass.run(&Ops::paged_attention, {.query = query,
                                   .query_stride = row,
                                   .num_heads = shape_.num_heads,
                                   .query_start = batch.query_start,
                                   .context_len = batch.context_len,
                                   .block_tables = batch.block_tables,
                                   .max_blocks = batch.max_blocks,
                                   .num_sequences = batch.num_sequences,
                                   .cache = cache,
                                   .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.head_dim))),
                                   .window = shape_.window,
                                   .out = activations.attention});
  output_(pass, activations.attention, pass.num_tokens(), activations.hidden);
}

}  // namespace pagoda::layers
