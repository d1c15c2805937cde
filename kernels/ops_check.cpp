#include "kernels/ops_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/ops_checker.hpp"
#include "kernels/rotation.hpp"

namespace pagoda::kernels {
namespace {

constexpr std::int64_t kAnyIndex = std::int64_t{1} << 31;
constexpr std::int64_t kAnySlot = std::int64_t{1} << 62;

/// Requires a type of weights without scales. One-byte types are only valid in the KV cache and, with scales, in linear
/// layers (check_linear_weight).
void check_weight_type(Checker& checker, DType dtype, std::string_view name) {
  checker.require(is_weight_type(dtype),
                  std::string(name) + " must be float32, float16 or bfloat16, not " + std::string(to_string(dtype)));
}

/// Checks rows of float32, or the narrow rows if they are set.
void check_rows(Checker& checker, const float* rows, const NarrowRows& narrow, std::string_view name) {
  if (!narrow) {
    checker.require_pointer(rows, name);
    return;
  }
  checker.require(
      narrow.dtype == DType::f16 || narrow.dtype == DType::bf16,
      "narrow_" + std::string(name) + " must be float16 or bfloat16, not " + std::string(to_string(narrow.dtype)));
}

void check_cache(Checker& checker, const KvCacheView& cache) {
  checker.require_pointer(cache.base, "cache.base")
      .require(cache.block_size >= 1, "cache.block_size must be at least 1", cache.block_size)
      .require(cache.num_kv_heads >= 1, "cache.num_kv_heads must be at least 1", cache.num_kv_heads)
      .require(cache.head_dim >= 1, "cache.head_dim must be at least 1", cache.head_dim)
      .require(cache.num_blocks >= 1, "cache.num_blocks must be at least 1", cache.num_blocks);
  if (checker.ok()) {
    checker.require(cache.block_bytes >= 2 * cache.part_bytes(),
                    "cache.block_bytes must hold K and V of the layer (" + std::to_string(2 * cache.part_bytes()) + ")",
                    cache.block_bytes);
  }
  if (checker.ok() && cache.dtype == DType::int8) {
    constexpr std::int64_t kScaleBytes = sizeof(float);
    const auto misplaced = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(cache.base) % kScaleBytes);
    checker
        .require(misplaced == 0, "cache.base must be aligned to 4 bytes with int8; its remainder must be 0", misplaced)
        .require(cache.block_bytes % kScaleBytes == 0, "cache.block_bytes must be a multiple of 4 with int8",
                 cache.block_bytes);
  }
}

void check_format(Checker& checker, const QuantizedFormat& format) {
  checker.require((format.bits >= 2 && format.bits <= 6) || format.bits == 8, "bits must be 2 to 6 or 8", format.bits)
      .require(format.bits != 5 || format.group_size % 32 == 0, "group_size must be a multiple of 32 with 5 bits",
               format.group_size)
      .require(format.codebook == Codebook::none || (format.bits == 4 && !format.asymmetric),
               "a format with a codebook must be symmetric and have 4 bits")
      .require(format.group_size >= 16 && format.group_size % 16 == 0 && format.group_size <= kMaxGroupSize,
               "group_size must be a multiple of 16 up to " + std::to_string(kMaxGroupSize), format.group_size)
      .require(!format.two_level_scales || format.bits < 8,
               "bits must be less than 8 in a format with two-level scales", format.bits)
      .require(!format.two_level_scales || kTwoLevelColumns % format.group_size == 0,
               "group_size must divide 256 in a format with two-level scales", format.group_size)
      .require(!format.rotated || format.group_size % kRotationBlock == 0,
               "group_size must be a multiple of 32 in a rotated format", format.group_size)
      .require(!format.affine || (format.rotated && (format.bits == 4 || format.bits == 6)),
               "an affine format must be rotated and have 4 or 6 bits")
      .require(!format.affine || (!format.asymmetric && !format.two_level_scales && format.codebook == Codebook::none),
               "an affine format must be symmetric, without two-level scales and codebook");
}

/// Requires `mins` to be null if and only if the format is symmetric.
void check_mins(Checker& checker, const QuantizedFormat& format, const void* mins, std::string_view name) {
  if (format.asymmetric) {
    checker.require_pointer(mins, name);
  } else {
    checker.require(mins == nullptr, std::string(name) + " must be null in a symmetric format");
  }
}

/// Requires `factors` to be null if and only if the format has no two-level scales and is not affine.
void check_factors(Checker& checker, const QuantizedFormat& format, const void* factors, std::string_view name) {
  if (format.factor_columns() > 0) {
    checker.require_pointer(factors, name);
  } else {
    checker.require(factors == nullptr,
                    std::string(name) + " must be null without two-level scales in a format that is not affine");
  }
}

/// Checks a quantised matrix, except whether its shape fits other shapes.
void check_quantized(Checker& checker, const QuantizedMatrix& matrix, const std::string& name) {
  check_format(checker, matrix.format);
  checker.require_pointer(matrix.data, name + " data").require_pointer(matrix.scales, name + " scales");
  check_mins(checker, matrix.format, matrix.mins, name + " mins");
  check_factors(checker, matrix.format, matrix.factors, name + " factors");
  checker.require(matrix.rows >= 1, name + " rows must be at least 1", matrix.rows);
}

}  // namespace

Status check_shapes(const EmbeddingParams& p) {
  Checker checker("embedding");
  checker.require(p.num_tokens >= 0, "num_tokens must not be negative", p.num_tokens);
  if (p.quantized.data != nullptr) {
    check_quantized(checker, p.quantized, "quantized");
    checker.require(!p.quantized.format.rotated, "quantized must not be a rotated matrix")
        .require(p.quantized.order == nullptr, "quantized.order must be null");
    checker.require(p.quantized.columns >= 1, "quantized columns must be at least 1", p.quantized.columns)
        .require(p.table.data == nullptr, "table.data must be null if quantized is set");
  } else {
    checker.require(p.table.rows >= 1, "table.rows must be at least 1", p.table.rows)
        .require(p.table.columns >= 1, "table.columns must be at least 1", p.table.columns)
        .require_pointer(p.table.data, "table.data");
    check_weight_type(checker, p.table.dtype, "table.dtype");
  }
  checker.require(p.first_row >= 0, "first_row must not be negative", p.first_row)
      .require(p.first_row + (p.whole_vocab == 0 ? 0 : p.vocab()) <= p.whole_vocab,
               "the rows of the table must be among those of whole_vocab", p.whole_vocab);
  if (!checker.ok() || p.num_tokens == 0) return checker.status();
  checker.require_pointer(p.token_ids, "token_ids").require_pointer(p.out, "out");
  return checker.status();
}

Status check(const EmbeddingParams& p) {
  if (Status shapes = check_shapes(p); !shapes || p.num_tokens == 0) return shapes;
  const std::int64_t num_ids = p.whole_vocab == 0 ? p.vocab() : p.whole_vocab;
  return Checker("embedding").require_range(p.token_ids, p.num_tokens, 0, num_ids, "token_ids").status();
}

Status check(const RmsNormParams& p) {
  Checker checker("rms_norm");
  checker.require(p.num_tokens >= 0, "num_tokens must not be negative", p.num_tokens)
      .require(p.hidden >= 1, "hidden must be at least 1", p.hidden)
      .require_pointer(p.weight, "weight");
  check_weight_type(checker, p.weight_dtype, "weight_dtype");
  if (p.num_tokens == 0) return checker.status();
  checker.require_pointer(p.x, "x").require(
      !p.narrow_out || (p.narrow_out.data != p.x && p.narrow_out.data != p.residual),
      "narrow_out must be neither x nor residual");
  check_rows(checker, p.out, p.narrow_out, "out");
  return checker.status();
}

Status check(const LayerNormParams& p) {
  Checker checker("layer_norm");
  checker.require(p.num_tokens >= 0, "num_tokens must not be negative", p.num_tokens)
      .require(p.hidden >= 1, "hidden must be at least 1", p.hidden);
  check_weight_type(checker, p.weight_dtype, "weight_dtype");
  check_weight_type(checker, p.bias_dtype, "bias_dtype");
  if (p.num_tokens == 0) return checker.status();
  checker.require_pointer(p.x, "x").require(
      !p.narrow_out || (p.narrow_out.data != p.x && p.narrow_out.data != p.residual),
      "narrow_out must be neither x nor residual");
  check_rows(checker, p.out, p.narrow_out, "out");
  return checker.status();
}

namespace {

void check_linear_weight(Checker& checker, const WeightMatrix& weight, const WeightMatrix& first) {
  if (weight.dtype != DType::fp8_e4m3) {
    check_weight_type(checker, weight.dtype, "weight dtype");
    checker.require(weight.scales == nullptr, "weight scales must be null for " + std::string(to_string(weight.dtype)));
  } else {
    checker.require_pointer(weight.scales, "weight scales")
        .require(weight.scale_rows >= 1, "scale_rows must be at least 1", weight.scale_rows)
        .require(fits_scales(weight.scale_columns, weight.columns),
                 "scale_columns must be the number of columns, or a multiple of 32 that divides 512",
                 weight.scale_columns);
  }
  checker.require(
      (weight.scales == nullptr) == (first.scales == nullptr) && weight.scale_columns == first.scale_columns,
      "all weights must have equal scale_columns, or none must have scales");
}

}  // namespace

Status check(const LinearParams& p) {
  constexpr std::size_t kMaxParts = 4;
  Checker checker("linear");
  checker.require(p.num_tokens >= 0, "num_tokens must not be negative", p.num_tokens)
      .require(p.in >= 1, "in must be at least 1", p.in)
      .require(!p.weights.empty() && p.weights.size() <= kMaxParts, "the number of weights must be 1 to 4",
               static_cast<std::int64_t>(p.weights.size()))
      .require(p.biases.empty() || p.biases.size() == p.weights.size(),
               "the number of biases must be 0 or the number of weights (" + std::to_string(p.weights.size()) + ")",
               static_cast<std::int64_t>(p.biases.size()));
  check_weight_type(checker, p.bias_dtype, "bias_dtype");
  std::int64_t out_features = 0;
  for (const WeightMatrix& weight : p.weights) {
    check_linear_weight(checker, weight, p.weights.front());
    checker.require_pointer(weight.data, "weight data")
        .require(weight.columns == p.in, "weight columns must be in (" + std::to_string(p.in) + ")", weight.columns)
        .require(weight.rows >= 1, "weight rows must be at least 1", weight.rows);
    checker.require(!p.narrow_x || weight.dtype == p.narrow_x.dtype, "narrow_x must have the type of all weights");
    out_features += weight.rows;
  }
  checker.require(p.out_stride >= out_features,
                  "out_stride must be at least the rows of all weights (" + std::to_string(out_features) + ")",
                  p.out_stride);
  if (p.num_tokens == 0) return checker.status();
  check_rows(checker, p.x, p.narrow_x, "x");
  checker.require_pointer(p.out, "out");
  return checker.status();
}

Status check(const QuantizedLinearParams& p) {
  constexpr std::size_t kMaxParts = 4;
  Checker checker("quantized_linear");
  checker.require(p.num_tokens >= 0, "num_tokens must not be negative", p.num_tokens)
      .require(p.in >= 1, "in must be at least 1", p.in)
      .require(!p.weights.empty() && p.weights.size() <= kMaxParts, "the number of weights must be 1 to 4",
               static_cast<std::int64_t>(p.weights.size()))
      .require(p.biases.empty() || p.biases.size() == p.weights.size(),
               "the number of biases must be 0 or the number of weights (" + std::to_string(p.weights.size()) + ")",
               static_cast<std::int64_t>(p.biases.size()));
  check_weight_type(checker, p.bias_dtype, "bias_dtype");
  std::int64_t out_features = 0;
  for (const QuantizedMatrix& weight : p.weights) {
    check_quantized(checker, weight, "weight");
    checker
        .require(weight.format.asymmetric == p.weights.front().format.asymmetric,
                 "all weights must have mins, or none must have mins")
        .require(weight.format == p.weights.front().format, "all weights must have one format")
        .require(weight.order == p.weights.front().order, "all weights must have one order")
        .require(weight.order == nullptr || !weight.format.rotated, "the order of rotated weights must be null")
        .require(weight.columns == p.in, "weight columns must be in (" + std::to_string(p.in) + ")", weight.columns);
    out_features += weight.rows;
  }
  checker.require(p.out_stride >= out_features,
                  "out_stride must be at least the rows of all weights (" + std::to_string(out_features) + ")",
                  p.out_stride);
  if (p.num_tokens > 0) checker.require_pointer(p.x, "x").require_pointer(p.out, "out");
  return checker.status();
}

namespace {

void check_item(Checker& checker, const LoraParams& p, const LoraItem& item) {
  checker.require(item.num_rows >= 0, "num_rows must not be negative", item.num_rows)
      .require(item.first_row >= 0 && item.first_row + item.num_rows <= p.num_tokens,
               "the rows of an item must be among the num_tokens (" + std::to_string(p.num_tokens) + ") rows of out",
               item.first_row)
      .require(item.out_features >= 1, "out_features must be at least 1", item.out_features)
      .require(item.first_column >= 0 && item.first_column + item.out_features <= p.out_stride,
               "the columns of an item must be within out_stride (" + std::to_string(p.out_stride) + ")",
               item.first_column)
      .require(item.rank >= 0, "rank must not be negative", item.rank)
      .require(item.base == nullptr || item.base_stride >= item.out_features,
               "base_stride must be at least out_features (" + std::to_string(item.out_features) + ")",
               item.base_stride);
  if (item.rank == 0 || item.num_rows == 0) return;
  checker.require_pointer(item.a, "a").require_pointer(item.b, "b");
  check_weight_type(checker, item.dtype, "dtype");
  if (p.token_ids == nullptr) check_rows(checker, p.x, p.narrow_x, "x");
}

}  // namespace

Status check_shapes(const LoraParams& p) {
  Checker checker("lora");
  checker.require(p.num_tokens >= 0, "num_tokens must not be negative", p.num_tokens)
      .require(p.in >= 1, "in must be at least 1", p.in)
      .require(p.token_ids == nullptr || (p.x == nullptr && !p.narrow_x), "x must be null if token_ids are set");
  if (p.num_tokens > 0 && !p.items.empty()) checker.require_pointer(p.out, "out");
  for (const LoraItem& item : p.items) {
    if (checker.ok()) check_item(checker, p, item);
  }
  return checker.status();
}

Status check(const LoraParams& p) {
  if (Status shapes = check_shapes(p); !shapes || p.token_ids == nullptr) return shapes;
  return Checker("lora").require_range(p.token_ids, p.num_tokens, 0, p.in, "token_ids").status();
}

Status check(const QuantizeWeightsParams& p) {
  Checker checker("quantize_weights");
  check_format(checker, p.format);
  check_weight_type(checker, p.from.dtype, "from.dtype");
  checker.require(p.from.rows >= 1, "from.rows must be at least 1", p.from.rows)
      .require(p.from.columns >= 1, "from.columns must be at least 1", p.from.columns)
      .require_pointer(p.from.data, "from.data")
      .require_pointer(p.data, "data")
      .require_pointer(p.scales, "scales");
  check_mins(checker, p.format, p.mins, "mins");
  check_factors(checker, p.format, p.factors, "factors");
  checker.require(p.format.codebook == Codebook::none, "weights cannot be quantised into a format with a codebook");
  return checker.status();
}

Status check(const ConvertParams& p) {
  Checker checker("convert");
  check_weight_type(checker, p.from_dtype, "from_dtype");
  check_weight_type(checker, p.to_dtype, "to_dtype");
  checker.require(p.count >= 0, "count must not be negative", p.count);
  if (p.count > 0) checker.require_pointer(p.from, "from").require_pointer(p.to, "to");
  return checker.status();
}

Status check_shapes(const RotaryParams& p) {
  Checker checker("rotary");
  checker.require(p.num_tokens >= 0, "num_tokens must not be negative", p.num_tokens)
      .require(p.num_heads >= 1, "num_heads must be at least 1", p.num_heads)
      .require(p.num_kv_heads >= 1, "num_kv_heads must be at least 1", p.num_kv_heads)
      .require(p.rotary_dim >= 2 && p.rotary_dim % 2 == 0, "rotary_dim must be even and positive", p.rotary_dim)
      .require(p.rotary_dim <= p.head_dim, "rotary_dim must be at most head_dim (" + std::to_string(p.head_dim) + ")",
               p.rotary_dim)
      .require(p.query_stride >= p.num_heads * p.head_dim, "query_stride must be at least num_heads * head_dim",
               p.query_stride)
      .require(p.key_stride >= p.num_kv_heads * p.head_dim, "key_stride must be at least num_kv_heads * head_dim",
               p.key_stride)
      .require_pointer(p.cos_sin, "cos_sin");
  if (!checker.ok() || p.num_tokens == 0) return checker.status();
  checker.require_pointer(p.positions, "positions").require_pointer(p.query, "query").require_pointer(p.key, "key");
  return checker.status();
}

Status check(const RotaryParams& p) {
  if (Status shapes = check_shapes(p); !shapes || p.num_tokens == 0) return shapes;
  return Checker("rotary").require_range(p.positions, p.num_tokens, 0, kAnyIndex, "positions").status();
}

Status check_shapes(const StoreKvParams& p) {
  Checker checker("store_kv");
  checker.require(p.num_tokens >= 0, "num_tokens must not be negative", p.num_tokens);
  check_cache(checker, p.cache);
  const std::int64_t width = p.cache.num_kv_heads * p.cache.head_dim;
  checker.require(p.key_stride >= width, "key_stride must be at least num_kv_heads * head_dim", p.key_stride)
      .require(p.value_stride >= width, "value_stride must be at least num_kv_heads * head_dim", p.value_stride);
  if (!checker.ok() || p.num_tokens == 0) return checker.status();
  checker.require_pointer(p.key, "key")
      .require_pointer(p.value, "value")
      .require_pointer(p.slot_mapping, "slot_mapping");
  return checker.status();
}

Status check(const StoreKvParams& p) {
  if (Status shapes = check_shapes(p); !shapes || p.num_tokens == 0) return shapes;
  return Checker("store_kv")
      .require_range(p.slot_mapping, p.num_tokens, -1, p.cache.num_blocks * p.cache.block_size, "slot_mapping")
      .status();
}

namespace {

/// Checks the row counts of a sequence and the block ids of the positions that it sees.
void check_sequence(Checker& checker, const PagedAttentionParams& p, std::int64_t s) {
  const std::string name = "of sequence " + std::to_string(s);
  const std::int64_t rows = std::int64_t{p.query_start[s + 1]} - p.query_start[s];
  const std::int64_t context = p.context_len[s];
  const std::int64_t block_size = p.cache.block_size;
  checker.require(rows >= 0, "query rows " + name + " must not be negative", rows)
      .require(context >= rows,
               "context_len " + name + " must be at least its query rows (" + std::to_string(rows) + ")", context)
      .require(context <= p.max_blocks * block_size,
               "context_len " + name + " must fit its block table (" + std::to_string(p.max_blocks * block_size) + ")",
               context);
  if (!checker.ok() || rows == 0) return;
  const std::int64_t first_block = p.first_seen(context - rows) / block_size;
  const std::int64_t end_block = (context + block_size - 1) / block_size;
  checker.require_range(p.block_tables + s * p.max_blocks + first_block, end_block - first_block, 0, p.cache.num_blocks,
                        "block_tables " + name + " from block " + std::to_string(first_block));
}

}  // namespace

Status check_shapes(const PagedAttentionParams& p) {
  Checker checker("paged_attention");
  checker.require(p.num_sequences >= 0, "num_sequences must not be negative", p.num_sequences);
  check_cache(checker, p.cache);
  if (!checker.ok()) return checker.status();
  checker
      .require(p.num_heads >= 1 && p.num_heads % p.cache.num_kv_heads == 0,
               "num_heads must be a multiple of num_kv_heads (" + std::to_string(p.cache.num_kv_heads) + ")",
               p.num_heads)
      .require(p.query_stride >= p.num_heads * p.cache.head_dim, "query_stride must be at least num_heads * head_dim",
               p.query_stride)
      .require(p.window >= 0, "window must not be negative", p.window)
      .require(p.first_position >= 0, "first_position must not be negative", p.first_position)
      .require(std::isfinite(p.scale), "scale must be finite")
      .require(p.softcap >= 0.0F, "softcap must not be negative", static_cast<std::int64_t>(p.softcap))
      .require(p.max_blocks >= 0, "max_blocks must not be negative", p.max_blocks);
  if (!checker.ok() || p.num_sequences == 0) return checker.status();
  checker.require_pointer(p.query, "query")
      .require_pointer(p.query_start, "query_start")
      .require_pointer(p.context_len, "context_len")
      .require_pointer(p.block_tables, "block_tables");
  check_rows(checker, p.out, p.narrow_out, "out");
  return checker.status();
}

Status check(const PagedAttentionParams& p) {
  if (Status shapes = check_shapes(p); !shapes || p.num_sequences == 0) return shapes;
  Checker checker("paged_attention");
  checker.require(p.query_start[0] >= 0, "query_start[0] must not be negative", p.query_start[0]);
  for (std::int64_t s = 0; s < p.num_sequences && checker.ok(); ++s) check_sequence(checker, p, s);
  return checker.status();
}

Status check(const ActivationParams& p) {
  Checker checker("activation");
  checker.require(p.num_tokens >= 0, "num_tokens must not be negative", p.num_tokens)
      .require(p.width >= 1, "width must be at least 1", p.width);
  if (p.num_tokens == 0) return checker.status();
  checker.require_pointer(p.x, "x").require(!p.narrow_out || p.narrow_out.data != p.x, "narrow_out must not be x");
  check_rows(checker, p.out, p.narrow_out, "out");
  checker.require(!p.gated || p.x != p.out, "a gated activation must not be in place");
  return checker.status();
}

Status check_shapes(const GatherRowsParams& p) {
  Checker checker("gather_rows");
  checker.require(p.num_rows >= 0, "num_rows must not be negative", p.num_rows)
      .require(p.width >= 1, "width must be at least 1", p.width);
  if (!checker.ok() || p.num_rows == 0) return checker.status();
  checker.require_pointer(p.x, "x").require_pointer(p.rows, "rows").require_pointer(p.out, "out");
  return checker.status();
}

Status check(const GatherRowsParams& p) {
  if (Status shapes = check_shapes(p); !shapes || p.num_rows == 0) return shapes;
  return Checker("gather_rows").require_range(p.rows, p.num_rows, 0, kAnyIndex, "rows").status();
}

Status check(const ScaleParams& p) {
  Checker checker("scale");
  checker.require(p.num_rows >= 0, "num_rows must not be negative", p.num_rows)
      .require(p.width >= 1, "width must be at least 1", p.width)
      .require(p.softcap >= 0.0F, "softcap must not be negative", static_cast<std::int64_t>(p.softcap));
  if (p.num_rows > 0) checker.require_pointer(p.x, "x");
  return checker.status();
}

Status check_shapes(const GatherTokensParams& p) {
  Checker checker("gather_tokens");
  checker.require(p.count >= 0, "count must not be negative", p.count)
      .require(p.vocab >= 1, "vocab must be at least 1", p.vocab);
  if (!checker.ok() || p.count == 0) return checker.status();
  checker.require_pointer(p.table, "table").require_pointer(p.slots, "slots").require_pointer(p.out, "out");
  return checker.status();
}

Status check(const GatherTokensParams& p) {
  if (Status shapes = check_shapes(p); !shapes || p.count == 0) return shapes;
  return Checker("gather_tokens").require_range(p.slots, p.count, 0, kAnySlot, "slots").status();
}

Status check_shapes(const ScatterTokensParams& p) {
  Checker checker("scatter_tokens");
  checker.require(p.count >= 0, "count must not be negative", p.count)
      .require(p.token_stride >= 1, "token_stride must be at least 1", p.token_stride);
  if (!checker.ok() || p.count == 0) return checker.status();
  checker.require_pointer(p.tokens, "tokens").require_pointer(p.slots, "slots").require_pointer(p.table, "table");
  return checker.status();
}

Status check(const ScatterTokensParams& p) {
  if (Status shapes = check_shapes(p); !shapes || p.count == 0) return shapes;
  return Checker("scatter_tokens").require_range(p.slots, p.count, -1, kAnySlot, "slots").status();
}

Status check(const CopyParams& p) {
  Checker checker("copy");
  if (p.bytes > 0) checker.require_pointer(p.from, "from").require_pointer(p.to, "to");
  return checker.status();
}

Status check(const MoveBlocksParams& p) {
  Checker checker("move_blocks");
  const auto count = static_cast<std::int64_t>(p.from.size());
  checker.require(p.block_bytes >= 1, "block_bytes must be at least 1", p.block_bytes)
      .require(p.to.size() == p.from.size(),
               "the number of target blocks must equal the number of source blocks (" + std::to_string(count) + ")",
               static_cast<std::int64_t>(p.to.size()));
  if (!checker.ok() || count == 0) return checker.status();
  checker.require_pointer(p.from_base, "from_base").require_pointer(p.to_base, "to_base");
  checker.require_range(p.from.data(), count, 0, kAnyIndex, "from");
  checker.require_range(p.to.data(), count, 0, kAnyIndex, "to");
  return checker.status();
}

}  // namespace pagoda::kernels
