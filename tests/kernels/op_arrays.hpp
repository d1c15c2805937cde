#pragma once

/// Lists the arrays that the params of each op point to, so that a test's arrays can be copied to a device.
/// visit(params, visitor) calls, for each pointer, one of
///   visitor.in(pointer, count)       read only
///   visitor.out(pointer, count)      written, and perhaps read
///   visitor.structs(span, f)         a span of host structs; f visits each struct
/// visit() reads index arrays, because they are still host memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/ops.hpp"
#include "kernels/sample.hpp"

namespace pagoda::kernels::testing_support {

inline std::int64_t bytes_of(DType dtype, std::int64_t count) {
  return count * static_cast<std::int64_t>(size_of(dtype));
}

template <class V>
void visit(WeightMatrix& w, V& v) {
  v.in(w.data, bytes_of(w.dtype, w.rows * w.columns));
  // Without has_scales the op refuses the scales.
  const bool has_scales = w.scales != nullptr && fits_scales(w.scale_columns, w.columns);
  if (has_scales) v.in(w.scales, (w.rows + w.scale_rows - 1) / w.scale_rows * w.scales_of_row());
}

template <class V>
void visit(QuantizedMatrix& w, V& v) {
  v.in(w.data, w.data_bytes());
  v.in(w.scales, w.panels() * w.panel_scales());
  v.in(w.mins, w.panels() * w.panel_scales());
  v.in(w.factors, w.factor_bytes());
  v.in(w.order, w.columns);
}

template <class V>
void visit(KvCacheView& cache, V& v) {
  v.out(cache.base, (cache.num_blocks - 1) * cache.block_bytes + 2 * cache.part_bytes());
}

template <class V>
void visit(NarrowRows& rows, std::int64_t count, V& v) {
  v.out(rows.data, bytes_of(rows.dtype, count));
}

template <class V>
void visit(EmbeddingParams& p, V& v) {
  v.in(p.token_ids, p.num_tokens);
  visit(p.table, v);
  visit(p.quantized, v);
  v.out(p.out, p.num_tokens * p.hidden());
}

template <class V>
void visit(RmsNormParams& p, V& v) {
  v.in(p.x, p.num_tokens * p.hidden);
  v.out(p.residual, p.num_tokens * p.hidden);
  v.in(p.weight, bytes_of(p.weight_dtype, p.hidden));
  v.out(p.out, p.num_tokens * p.hidden);
  visit(p.narrow_out, p.num_tokens * p.hidden, v);
}

template <class V>
void visit(LayerNormParams& p, V& v) {
  v.in(p.x, p.num_tokens * p.hidden);
  v.out(p.residual, p.num_tokens * p.hidden);
  v.in(p.weight, bytes_of(p.weight_dtype, p.hidden));
  v.in(p.bias, bytes_of(p.bias_dtype, p.hidden));
  v.out(p.out, p.num_tokens * p.hidden);
  visit(p.narrow_out, p.num_tokens * p.hidden, v);
}

/// Visits LinearParams and QuantizedLinearParams.
template <class P, class V>
void visit_linear(P& p, V& v) {
  v.in(p.x, p.num_tokens * p.in);
  std::size_t part = 0;
  const auto weights = p.weights;
  v.structs(p.biases, [&](const void*& bias) { v.in(bias, bytes_of(p.bias_dtype, weights[part++].rows)); });
  std::int64_t columns = 0;
  v.structs(p.weights, [&](auto& weight) {
    visit(weight, v);
    columns += weight.rows;
  });
  if (p.num_tokens > 0) v.out(p.out, (p.num_tokens - 1) * p.out_stride + columns);
}

template <class V>
void visit(LinearParams& p, V& v) {
  visit(p.narrow_x, p.num_tokens * p.in, v);
  visit_linear(p, v);
}

template <class V>
void visit(QuantizedLinearParams& p, V& v) {
  visit_linear(p, v);
}

template <class V>
void visit(QuantizeWeightsParams& p, V& v) {
  const QuantizedMatrix to{nullptr, nullptr, p.from.rows, p.from.columns, p.format};
  visit(p.from, v);
  v.out(p.data, to.data_bytes());
  v.out(p.scales, to.panels() * to.panel_scales());
  v.out(p.mins, to.panels() * to.panel_scales());
  v.out(p.factors, to.factor_bytes());
}

template <class V>
void visit(LoraParams& p, V& v) {
  v.in(p.x, p.num_tokens * p.in);
  visit(p.narrow_x, p.num_tokens * p.in, v);
  v.in(p.token_ids, p.num_tokens);
  v.structs(p.items, [&](LoraItem& item) {
    const std::int64_t padded = (item.out_features + kLoraPanel - 1) / kLoraPanel * kLoraPanel;
    v.in(item.a, bytes_of(item.dtype, item.rank * p.in));
    v.in(item.b, bytes_of(item.dtype, item.rank * padded));
    v.in(item.factors, item.out_features);
    if (item.num_rows > 0) v.in(item.base, (item.num_rows - 1) * item.base_stride + item.out_features);
    v.in(item.bias, item.out_features);
  });
  v.out(p.out, p.num_tokens * p.out_stride);
}

template <class V>
void visit(ConvertParams& p, V& v) {
  v.in(p.from, bytes_of(p.from_dtype, p.count));
  v.out(p.to, bytes_of(p.to_dtype, p.count));
}

template <class V>
void visit(RotaryParams& p, V& v) {
  std::int64_t positions = 0;
  for (std::int64_t t = 0; t < p.num_tokens; ++t) positions = std::max<std::int64_t>(positions, p.positions[t] + 1);
  v.in(p.cos_sin, positions * p.rotary_dim);
  v.in(p.positions, p.num_tokens);
  v.out(p.query, (p.num_tokens - 1) * p.query_stride + p.num_heads * p.head_dim);
  v.out(p.key, (p.num_tokens - 1) * p.key_stride + p.num_kv_heads * p.head_dim);
}

template <class V>
void visit(StoreKvParams& p, V& v) {
  const std::int64_t width = p.cache.num_kv_heads * p.cache.head_dim;
  v.in(p.key, (p.num_tokens - 1) * p.key_stride + width);
  v.in(p.value, (p.num_tokens - 1) * p.value_stride + width);
  v.in(p.slot_mapping, p.num_tokens);
  visit(p.cache, v);
}

template <class V>
void visit(PagedAttentionParams& p, V& v) {
  const std::int64_t width = p.num_heads * p.cache.head_dim;
  const std::int64_t num_tokens = p.num_sequences == 0 ? 0 : p.query_start[p.num_sequences];
  if (num_tokens > 0) v.in(p.query, (num_tokens - 1) * p.query_stride + width);
  v.in(p.query_start, p.num_sequences + 1);
  v.in(p.context_len, p.num_sequences);
  v.in(p.block_tables, p.num_sequences * p.max_blocks);
  visit(p.cache, v);
  v.in(p.alibi_slopes, p.num_heads);
  v.out(p.out, num_tokens * width);
  visit(p.narrow_out, num_tokens * width, v);
}

template <class V>
void visit(ActivationParams& p, V& v) {
  v.in(p.x, p.num_tokens * (p.gated ? 2 : 1) * p.width);
  v.out(p.out, p.num_tokens * p.width);
  visit(p.narrow_out, p.num_tokens * p.width, v);
}

template <class V>
void visit(ScaleParams& p, V& v) {
  v.out(p.x, p.num_rows * p.width);
}

template <class V>
void visit(GatherRowsParams& p, V& v) {
  std::int64_t rows = 0;
  for (std::int64_t i = 0; i < p.num_rows; ++i) rows = std::max<std::int64_t>(rows, p.rows[i] + 1);
  v.in(p.x, rows * p.width);
  v.in(p.rows, p.num_rows);
  v.out(p.out, p.num_rows * p.width);
}

template <class V>
void visit(GatherTokensParams& p, V& v) {
  v.in(p.table, p.count == 0 ? 0 : *std::max_element(p.slots, p.slots + p.count) + 1);
  v.in(p.slots, p.count);
  v.out(p.out, p.count);
}

template <class V>
void visit(ScatterTokensParams& p, V& v) {
  v.out(p.table, p.count == 0 ? 0 : *std::max_element(p.slots, p.slots + p.count) + 1);
  v.in(p.tokens, (p.count - 1) * p.token_stride + 1);
  v.in(p.slots, p.count);
}

template <class V>
void visit(CopyParams& p, V& v) {
  v.in(p.from, static_cast<std::int64_t>(p.bytes));
  v.out(p.to, static_cast<std::int64_t>(p.bytes));
}

template <class V>
void visit(MoveBlocksParams& p, V& v) {
  if (p.from.empty()) return;
  v.in(p.from_base, (*std::max_element(p.from.begin(), p.from.end()) + 1) * p.block_bytes);
  v.out(p.to_base, (*std::max_element(p.to.begin(), p.to.end()) + 1) * p.block_bytes);
}

template <class V>
void visit(SampleParams& p, V& v) {
  const auto count = static_cast<std::int64_t>(p.rows.size());
  v.in(p.logits, p.num_logit_rows * p.vocab);
  v.structs(p.rows, [&](SampleRow& row) {
    v.elements(row.prompt_tokens);
    v.elements(row.output_tokens);
    v.elements(row.last_tokens);
  });
  v.out(p.outputs, count);
  v.out(p.top_tokens, count * p.max_top);
  v.out(p.top_logprobs, count * p.max_top);
}

}  // namespace pagoda::kernels::testing_support
