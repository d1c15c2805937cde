#include "engine/layers/attention.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pagoda::layers {

using kernels::Ops;

std::int64_t AttentionShape::kv_bytes(std::int32_t block_size, DType kv_dtype) const {
  const kernels::KvCacheView one_layer{
      .block_size = block_size, .num_kv_heads = num_kv_heads, .head_dim = head_dim, .dtype = kv_dtype};
  return 2 * one_layer.part_bytes();
}

Attention::Attention(const AttentionShape& shape, KvPlace kv, QkvProjection qkv, Linear output)
    : shape_(shape), kv_(kv), qkv_(std::move(qkv)), output_(std::move(output)) {
  PAGODA_ASSERT(qkv_.parts.size() == 3 || (qkv_.parts.size() == 1 && !qkv_.head_norms), "one projection or three");
}

kernels::KvCacheView Attention::cache_of_layer(const KvCache& cache) const {
  return {.base = cache.base + cache.offset_of(kv_.group) + kv_.layer * shape_.kv_bytes(cache.block_size, cache.dtype),
          .block_bytes = cache.block_bytes,
          .num_blocks = cache.num_blocks,
          .block_size = cache.block_size,
          .num_kv_heads = shape_.num_kv_heads,
          .head_dim = shape_.head_dim,
          .dtype = cache.dtype};
}

DType Attention::input_type(const ForwardPass& pass) const {
  const DType type = qkv_.parts.front().input_type(pass);
  const bool same = std::ranges::all_of(qkv_.parts, [&](const Linear& part) { return part.input_type(pass) == type; });
  return same ? type : DType::f32;
}

Attention::Heads Attention::project(ForwardPass& pass, const Rows& hidden, float* out) const {
  const std::int64_t n = pass.num_tokens();
  const std::int64_t query_width = shape_.query_width();
  const std::int64_t kv_width = shape_.kv_width();
  if (qkv_.parts.size() == 1) {
    qkv_.parts.front()(pass, hidden, n, out);
    const std::int64_t row = query_width + 2 * kv_width;
    return {out, out + query_width, out + query_width + kv_width, row, row};
  }
  const Heads heads{out, out + n * query_width, out + n * (query_width + kv_width), query_width, kv_width};
  qkv_.parts[0](pass, hidden, n, heads.query);
  qkv_.parts[1](pass, hidden, n, heads.key);
  qkv_.parts[2](pass, hidden, n, heads.value);
  if (qkv_.head_norms) {
    qkv_.head_norms->query(pass, heads.query, n * shape_.num_heads, heads.query);
    qkv_.head_norms->key(pass, heads.key, n * shape_.num_kv_heads, heads.key);
  }
  return heads;
}

void Attention::rotate(ForwardPass& pass, const Heads& heads, const PositionTables& positions) const {
  pass.run(&Ops::rotary, {.positions = pass.batch().positions,
                          .num_tokens = pass.num_tokens(),
                          .query = heads.query,
                          .key = heads.key,
                          .query_stride = heads.query_stride,
                          .key_stride = heads.kv_stride,
                          .num_heads = shape_.num_heads,
                          .num_kv_heads = shape_.num_kv_heads,
                          .head_dim = shape_.head_dim,
                          .rotary_dim = positions.rotary_dim(),
                          .cos_sin = positions.cos_sin(),
                          .interleaved = positions.interleaved()});
}

void Attention::store(ForwardPass& pass, const Heads& heads, const kernels::KvCacheView& cache) const {
  const std::int64_t* const slots = pass.batch().slots_of(pass.cache().tables_of(kv_.group));
  pass.run(&Ops::store_kv, {.key = heads.key,
                            .value = heads.value,
                            .key_stride = heads.kv_stride,
                            .value_stride = heads.kv_stride,
                            .slot_mapping = slots,
                            .num_tokens = pass.num_tokens(),
                            .cache = cache});
  if (pass.batch().prompts == nullptr) return;
  for (const PromptRows& rows : *pass.batch().prompts) {
    if (rows.prompt->prefix == nullptr) continue;
    pass.run(&Ops::store_kv, {.key = rows.prompt->keys_of(rows.first_token, kv_.model_layer),
                              .value = rows.prompt->values_of(rows.first_token, kv_.model_layer),
                              .key_stride = rows.prompt->prefix_stride(),
                              .value_stride = rows.prompt->prefix_stride(),
                              .slot_mapping = slots + rows.first_row,
                              .num_tokens = rows.num_rows,
                              .cache = cache});
  }
}

void Attention::operator()(ForwardPass& pass, const Activations& activations, std::span<const PositionTables> tables,
                           const Rows& in, float* out, Accumulate accumulate) const {
  static const PositionTables kNone;
  const auto table = static_cast<std::size_t>(shape_.position_table);
  PAGODA_ASSERT(shape_.position_table == kNoPositions || table < tables.size(),
                "a layer's table is one of the model's");
  const PositionTables& positions = shape_.position_table == kNoPositions ? kNone : tables[table];
  const auto& batch = pass.batch();
  const auto cache = cache_of_layer(pass.cache());
  const auto [qkv_rows, attended_rows] = activations.work(shape_.work_widths());
  const auto heads = project(pass, in, qkv_rows);
  if (positions.cos_sin() != nullptr) rotate(pass, heads, positions);
  store(pass, heads, cache);
  const Rows attended(attended_rows, output_.input_type(pass));
  const double default_scale = 1.0 / std::sqrt(static_cast<double>(shape_.head_dim));
  pass.run(&Ops::paged_attention, {.query = heads.query,
                                   .query_stride = heads.query_stride,
                                   .num_heads = shape_.num_heads,
                                   .query_start = batch.query_start,
                                   .context_len = batch.context_len,
                                   .block_tables = batch.tables_of(pass.cache().tables_of(kv_.group)),
                                   .max_blocks = batch.max_blocks,
                                   .num_sequences = batch.num_sequences,
                                   .num_tokens = pass.num_tokens(),
                                   .max_query_len = batch.max_query_len,
                                   .max_context_len = batch.max_context_len,
                                   .cache = cache,
                                   .scale = static_cast<float>(shape_.scale > 0.0 ? shape_.scale : default_scale),
                                   .alibi_slopes = positions.alibi_slopes(),
                                   .window = shape_.window,
                                   .first_position = shape_.first_position,
                                   .softcap = static_cast<float>(shape_.softcap),
                                   .out = attended.floats,
                                   .narrow_out = attended.narrow});
  output_.sum_over_ranks(pass, attended, pass.num_tokens(), out, accumulate);
}

}  // namespace pagoda::layers
