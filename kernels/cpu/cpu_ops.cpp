#include "kernels/cpu/cpu_ops.hpp"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/attention.hpp"
#include "kernels/cpu/layer_norm.hpp"
#include "kernels/cpu/linear.hpp"
#include "kernels/cpu/lora.hpp"
#include "kernels/cpu/quantize_weights.hpp"
#include "kernels/cpu/quantized_linear.hpp"
#include "kernels/cpu/sample.hpp"
#include "kernels/ops_check.hpp"
#include "kernels/quantized_pack.hpp"
#include "kernels/reference/element.hpp"
#include "kernels/reference/reference_ops.hpp"

namespace pagoda::kernels {
namespace {

/// Calls body(row) for every row. Each task has at least kTaskFloats floats, so that it pays for the hand-over to
/// another thread.
template <class Body>
void for_rows(ThreadPool& threads, std::int64_t num_rows, std::int64_t floats_per_row, const Body& body) {
  constexpr std::int64_t kTaskFloats = 8192;
  const std::int64_t rows_per_task = std::max<std::int64_t>(1, kTaskFloats / floats_per_row);
  const auto run_task = [&](std::int64_t task) {
    const std::int64_t end = std::min(num_rows, (task + 1) * rows_per_task);
    for (std::int64_t row = task * rows_per_task; row < end; ++row) body(row);
  };
  const std::int64_t num_tasks = (num_rows + rows_per_task - 1) / rows_per_task;
  if (num_tasks == 1) return run_task(0);
  threads.parallel_for(num_tasks, run_task);
}

/// Runs check(p) and rejects NarrowRows, which the CPU does not support.
template <class Params>
Status check_on_cpu(const Params& p) {
  bool narrow = false;
  if constexpr (requires { p.narrow_out; }) narrow = static_cast<bool>(p.narrow_out);
  if constexpr (requires { p.narrow_x; }) narrow = static_cast<bool>(p.narrow_x);
  if (narrow) return fail(ErrorCode::unsupported, "a CPU supports only float32 activations");
  return check(p);
}

/// Writes one row of a quantised table to out, or adds the row to out if `accumulate`.
void embed_quantized(const QuantizedMatrix& table, std::int64_t row, bool accumulate, float* out) {
  const std::int64_t group_size = table.format.group_size;
  for (std::int64_t first = 0; first < table.columns; first += group_size, out += group_size) {
    float weights[kMaxGroupSize];
    dequantize_group(table, row, first / group_size, weights);
    const std::int64_t columns = std::min(group_size, table.columns - first);
    for (std::int64_t i = 0; i < columns; ++i) out[i] = accumulate ? out[i] + weights[i] : weights[i];
  }
}

/// Writes the row of a token whose id is not in this part of the table.
void leave_out(const EmbeddingParams& p, std::int64_t token) {
  if (!p.accumulate) std::fill_n(p.out + token * p.hidden(), p.hidden(), 0.0F);
}

}  // namespace

Status CpuOps::embedding(Stream&, const EmbeddingParams& p) const {
  if (const Status checked = check(p); !checked) return checked;
  const std::int64_t hidden = p.hidden();
  if (p.quantized.data != nullptr) {
    for_rows(threads_, p.num_tokens, hidden, [&](std::int64_t t) {
      const std::int64_t row = p.row_of(p.token_ids[t]);
      if (row < 0) return leave_out(p, t);
      embed_quantized(p.quantized, row, p.accumulate, p.out + t * hidden);
    });
    return {};
  }
  const std::int64_t row_bytes = hidden * static_cast<std::int64_t>(size_of(p.table.dtype));
  for_rows(threads_, p.num_tokens, hidden, [&](std::int64_t t) {
    const std::int64_t index = p.row_of(p.token_ids[t]);
    if (index < 0) return leave_out(p, t);
    const auto* row = static_cast<const std::byte*>(p.table.data) + index * row_bytes;
    float* out = p.out + t * hidden;
    if (!p.accumulate) return kernels_.widen(row, p.table.dtype, hidden, out);
    for (std::int64_t i = 0; i < hidden; ++i) out[i] += reference::load(row, p.table.dtype, i);
  });
  return {};
}

Status CpuOps::rms_norm(Stream&, const RmsNormParams& p) const {
  if (const Status checked = check_on_cpu(p); !checked) return checked;
  auto scratch = scratch_.borrow(p.hidden, 1);
  if (!scratch) return fail(std::move(scratch.error()));
  float* weight = scratch->floats(p.hidden);
  kernels_.widen(p.weight, p.weight_dtype, p.hidden, weight);
  if (p.weight_offset != 0.0F) std::for_each_n(weight, p.hidden, [&](float& w) { w += p.weight_offset; });
  for_rows(threads_, p.num_tokens, p.hidden, [&](std::int64_t t) {
    float* residual = p.residual == nullptr ? nullptr : p.residual + t * p.hidden;
    kernels_.rms_norm(p.x + t * p.hidden, residual, weight, p.eps, p.hidden, p.out + t * p.hidden);
  });
  return {};
}

Status CpuOps::layer_norm(Stream&, const LayerNormParams& p) const {
  if (const Status checked = check_on_cpu(p); !checked) return checked;
  auto scratch = scratch_.borrow(p.hidden, 2);
  if (!scratch) return fail(std::move(scratch.error()));
  float* weight = scratch->floats(p.hidden);
  float* bias = scratch->floats(p.hidden);
  std::fill_n(weight, p.hidden, 1.0F);
  std::fill_n(bias, p.hidden, 0.0F);
  if (p.weight != nullptr) kernels_.widen(p.weight, p.weight_dtype, p.hidden, weight);
  if (p.bias != nullptr) kernels_.widen(p.bias, p.bias_dtype, p.hidden, bias);
  for_rows(threads_, p.num_tokens, p.hidden, [&](std::int64_t t) {
    float* residual = p.residual == nullptr ? nullptr : p.residual + t * p.hidden;
    cpu_layer_norm_row(p.x + t * p.hidden, residual, weight, bias, p.eps, p.hidden, p.out + t * p.hidden);
  });
  return {};
}

Status CpuOps::linear(Stream&, const LinearParams& p) const {
  if (const Status checked = check_on_cpu(p); !checked) return checked;
  return cpu_linear(kernels_, threads_, scratch_, p);
}

Status CpuOps::quantized_linear(Stream&, const QuantizedLinearParams& p) const {
  if (const Status checked = check(p); !checked) return checked;
  return cpu_quantized_linear(kernels_, threads_, scratch_, p);
}

Status CpuOps::lora(Stream&, const LoraParams& p) const {
  if (const Status checked = check_on_cpu(p); !checked) return checked;
  return cpu_lora(kernels_, threads_, scratch_, p);
}

Status CpuOps::quantize_weights(Stream&, const QuantizeWeightsParams& p) const {
  if (const Status checked = check(p); !checked) return checked;
  return cpu_quantize_weights(kernels_, threads_, p);
}

Status CpuOps::host_work(Stream&, const HostWorkParams& p) const {
  threads_.parallel_for(p.num_tasks, [&](std::int64_t task) { p.run(task); });
  return {};
}

Status CpuOps::convert(Stream&, const ConvertParams& p) const {
  if (const Status checked = check(p); !checked) return checked;
  constexpr std::int64_t kPiece = 2048;
  for_rows(threads_, (p.count + kPiece - 1) / kPiece, kPiece, [&](std::int64_t piece) {
    const std::int64_t first = piece * kPiece;
    const std::int64_t count = std::min(kPiece, p.count - first);
    float floats[kPiece];
    kernels_.widen(static_cast<const std::byte*>(p.from) + first * static_cast<std::int64_t>(size_of(p.from_dtype)),
                   p.from_dtype, count, floats);
    kernels_.narrow(floats, count, p.to_dtype,
                    static_cast<std::byte*>(p.to) + first * static_cast<std::int64_t>(size_of(p.to_dtype)));
  });
  return {};
}

Status CpuOps::rotary(Stream&, const RotaryParams& p) const {
  if (const Status checked = check(p); !checked) return checked;
  const std::int64_t half = p.rotary_dim / 2;
  for_rows(threads_, p.num_tokens, (p.num_heads + p.num_kv_heads) * p.head_dim, [&](std::int64_t t) {
    const float* cosines = p.cos_sin + p.positions[t] * p.rotary_dim;
    const float* sines = cosines + half;
    for (std::int64_t h = 0; h < p.num_heads; ++h) {
      kernels_.rotary(p.query + t * p.query_stride + h * p.head_dim, cosines, sines, half, p.interleaved);
    }
    for (std::int64_t h = 0; h < p.num_kv_heads; ++h) {
      kernels_.rotary(p.key + t * p.key_stride + h * p.head_dim, cosines, sines, half, p.interleaved);
    }
  });
  return {};
}

Status CpuOps::store_kv(Stream&, const StoreKvParams& p) const {
  if (const Status checked = check(p); !checked) return checked;
  const KvCacheView& cache = p.cache;
  const std::int64_t head_bytes = cache.head_dim * static_cast<std::int64_t>(size_of(cache.dtype));
  for_rows(threads_, p.num_tokens, 2 * cache.num_kv_heads * cache.head_dim, [&](std::int64_t t) {
    if (p.slot_mapping[t] < 0) return;
    const std::int64_t block = p.slot_mapping[t] / cache.block_size;
    const std::int64_t offset = p.slot_mapping[t] % cache.block_size;
    const auto store_head = [&](const float* x, std::byte* to, float* scales, std::int64_t row) {
      std::byte* at = to + row * head_bytes;
      if (cache.dtype != DType::int8) return kernels_.narrow_kv(x, cache.head_dim, cache.dtype, at);
      scales[row] = kernels_.quantize(x, cache.head_dim, reinterpret_cast<std::int8_t*>(at));
    };
    for (std::int64_t h = 0; h < cache.num_kv_heads; ++h) {
      const std::int64_t row = h * cache.block_size + offset;
      const std::int64_t column = h * cache.head_dim;
      store_head(p.key + t * p.key_stride + column, cache.key_block(block), cache.key_scales(block), row);
      store_head(p.value + t * p.value_stride + column, cache.value_block(block), cache.value_scales(block), row);
    }
  });
  return {};
}

Status CpuOps::paged_attention(Stream&, const PagedAttentionParams& p) const {
  if (const Status checked = check_on_cpu(p); !checked) return checked;
  return cpu_paged_attention(kernels_, threads_, scratch_, p);
}

Status CpuOps::activation(Stream&, const ActivationParams& p) const {
  if (const Status checked = check_on_cpu(p); !checked) return checked;
  const std::int64_t x_stride = p.gated ? 2 * p.width : p.width;
  for_rows(threads_, p.num_tokens, x_stride, [&](std::int64_t t) {
    const float* x = p.x + t * x_stride;
    kernels_.activation(p.activation, x, p.gated ? x + p.width : nullptr, p.width, p.out + t * p.width);
  });
  return {};
}

Status CpuOps::scale(Stream&, const ScaleParams& p) const {
  if (const Status checked = check(p); !checked) return checked;
  for_rows(threads_, p.num_rows, p.width, [&](std::int64_t row) {
    float* x = p.x + row * p.width;
    if (p.softcap == 0.0F) return kernels_.scale(x, p.factor, p.width, x);
    kernels_.softcap(x, p.factor, p.softcap, p.width);
  });
  return {};
}

Status CpuOps::gather_rows(Stream&, const GatherRowsParams& p) const {
  if (const Status checked = check(p); !checked) return checked;
  if (p.width == 1) {  // one value takes less time than a call of memmove
    for_rows(threads_, p.num_rows, 1, [&](std::int64_t i) { p.out[i] = p.x[p.rows[i]]; });
    return {};
  }
  for_rows(threads_, p.num_rows, p.width,
           [&](std::int64_t i) { std::copy_n(p.x + p.rows[i] * p.width, p.width, p.out + i * p.width); });
  return {};
}

Status CpuOps::gather_tokens(Stream&, const GatherTokensParams& p) const {
  if (const Status checked = check(p); !checked) return checked;
  reference::gather_tokens(p);
  return {};
}

Status CpuOps::scatter_tokens(Stream&, const ScatterTokensParams& p) const {
  if (const Status checked = check(p); !checked) return checked;
  reference::scatter_tokens(p);
  return {};
}

Status CpuOps::copy(Stream&, const CopyParams& p) const {
  if (const Status checked = check(p); !checked) return checked;
  if (p.bytes > 0) std::memcpy(p.to, p.from, p.bytes);
  return {};
}

Status CpuOps::move_blocks(Stream&, const MoveBlocksParams& p) const {
  if (const Status checked = check(p); !checked) return checked;
  // Every task moves one stripe of all blocks, so that the moves of a stripe stay in the order of the lists.
  constexpr std::int64_t kStripeBytes = std::int64_t{64} << 10;
  const std::int64_t num_stripes = std::clamp<std::int64_t>(p.block_bytes / kStripeBytes, 1, threads_.num_threads());
  threads_.parallel_for(num_stripes, [&](std::int64_t stripe) {
    const std::int64_t first = p.block_bytes * stripe / num_stripes;
    const std::int64_t end = p.block_bytes * (stripe + 1) / num_stripes;
    for (std::size_t i = 0; i < p.from.size(); ++i) {
      std::memmove(p.to_base + p.to[i] * p.block_bytes + first, p.from_base + p.from[i] * p.block_bytes + first,
                   static_cast<std::size_t>(end - first));
    }
  });
  return {};
}

Status CpuOps::sample(Stream&, const SampleParams& params) const {
  return cpu_sample(threads_, params);
}

}  // namespace pagoda::kernels
