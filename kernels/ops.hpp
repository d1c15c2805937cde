#pragma once

/// Declares every op of the engine with a params struct. Each device implements all ops (class Ops).
///
/// Shapes are written [rows, columns], row-major. Activations are float32 on the CPU. A `DType` field gives the type of
/// the elements that a pointer points to. Each op has a plain scalar reference (kernels/reference); tests compare every
/// implementation with it.
///
/// Batch invariance: an output row is computed with one fixed order of reduction that depends on nothing but the row's
/// own inputs and the op's constant dimensions: not on the number of rows, on threads, on chunk boundaries or on block
/// size.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>

#include "kernels/device.hpp"
#include "kernels/dtype.hpp"
#include "kernels/quantized.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// A weight matrix as it is stored in the checkpoint: [rows, columns], row-major, rows contiguous. The struct does not
/// own its memory.
struct WeightMatrix {
  const void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t rows = 0;     ///< output features
  std::int64_t columns = 0;  ///< input features
  /// Scales of fp8_e4m3 weights, null for all other types: w[n, k] = data[n, k] * scales[n / scale_rows,
  /// k / scale_columns], a matrix of ceil(rows / scale_rows) by ceil(columns / scale_columns). Only linear layers take
  /// such weights.
  const float* scales = nullptr;
  std::int64_t scale_rows = 1;
  std::int64_t scale_columns = 0;  ///< equal to `columns`, or a multiple of 32 that divides 512

  std::int64_t scales_of_row() const { return (columns + scale_columns - 1) / scale_columns; }
  std::int64_t scale_bytes() const {
    const std::int64_t rows_of_scales = (rows + scale_rows - 1) / scale_rows;
    return scales == nullptr ? 0 : rows_of_scales * scales_of_row() * std::int64_t{sizeof(float)};
  }
};

/// Returns whether linear layers take scales for blocks of `scale_columns` columns.
constexpr bool fits_scales(std::int64_t scale_columns, std::int64_t columns) {
  return scale_columns == columns || (scale_columns >= 32 && scale_columns % 32 == 0 && 512 % scale_columns == 0);
}

/// Rows of activations in a 16-bit type, for linear layers with weights of that type. If `narrow_out` of an op is set,
/// the op writes it instead of `out`, each value rounded to nearest even; if `narrow_x` is set, linear() reads it
/// instead of `x`. Devices without Ops::supports_narrow_rows() return `unsupported`.
struct NarrowRows {
  void* data = nullptr;
  DType dtype = DType::bf16;  ///< bf16 or f16

  explicit operator bool() const { return data != nullptr; }
};

/// out[t, :] = table[token_ids[t], :] as float32. A quantised table is passed as `quantized` instead; each of its
/// weights is rounded to float32 once.
struct EmbeddingParams {
  const std::int32_t* token_ids = nullptr;  ///< [num_tokens]
  std::int64_t num_tokens = 0;
  WeightMatrix table;              ///< [vocab, hidden]
  float* out = nullptr;            ///< [num_tokens, hidden]
  bool accumulate = false;         ///< whether the result is added to out; otherwise it replaces out
  QuantizedMatrix quantized = {};  ///< [vocab, hidden], used instead of `table` if its data is not null
  /// Number of rows of the whole table if this table is a part of it that begins with the row of id `first_row`: ids of
  /// other parts then give zeros. 0 = the table is whole. Runs on devices that compute on the host.
  std::int64_t whole_vocab = 0;
  std::int64_t first_row = 0;

  /// Returns the number of rows of this table.
  std::int64_t vocab() const { return quantized.data != nullptr ? quantized.rows : table.rows; }
  /// Returns the row of an id; -1 if it is in another part.
  std::int64_t row_of(std::int32_t id) const {
    const std::int64_t row = id - first_row;
    return row >= 0 && row < vocab() ? row : -1;
  }
  std::int64_t hidden() const { return quantized.data != nullptr ? quantized.columns : table.columns; }
};

/// out = x / sqrt(mean(x^2) + eps) * (weight_offset + weight)   (RMSNorm, Zhang & Sennrich 2019). With `residual`:
/// first residual += x, then the norm of residual. x may be out.
struct RmsNormParams {
  const float* x = nullptr;      ///< [num_tokens, hidden]
  float* residual = nullptr;     ///< [num_tokens, hidden] or null; updated in place
  const void* weight = nullptr;  ///< [hidden]
  DType weight_dtype = DType::f32;
  float weight_offset = 0.0F;
  float eps = 1e-5F;
  float* out = nullptr;        ///< [num_tokens, hidden]
  NarrowRows narrow_out = {};  ///< instead of out; must be neither x nor residual
  std::int64_t num_tokens = 0;
  std::int64_t hidden = 0;
};

/// out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias   (LayerNorm, Ba et al. 2016). With `residual`: first
/// residual += x, then the norm of residual. x or residual may be out.
struct LayerNormParams {
  const float* x = nullptr;      ///< [num_tokens, hidden]
  float* residual = nullptr;     ///< [num_tokens, hidden] or null; updated in place
  const void* weight = nullptr;  ///< [hidden] or null: 1
  const void* bias = nullptr;    ///< [hidden] or null: 0
  DType weight_dtype = DType::f32;
  DType bias_dtype = DType::f32;
  float eps = 1e-5F;
  float* out = nullptr;        ///< [num_tokens, hidden]
  NarrowRows narrow_out = {};  ///< instead of out; must be neither x nor residual
  std::int64_t num_tokens = 0;
  std::int64_t hidden = 0;
};

/// out[:, columns of part i] = x * weights[i]^T (+ biases[i]). The parts share x and are adjacent in out, so a
/// fused QKV or gate/up projection is one call over separate weights without a second copy of them.
struct LinearParams {
  const float* x = nullptr;  ///< [num_tokens, in]
  NarrowRows narrow_x = {};  ///< instead of x, in the type of all weights
  std::int64_t num_tokens = 0;
  std::int64_t in = 0;
  std::span<const WeightMatrix> weights;  ///< 1 to 4 parts, each [out_i, in]
  std::span<const void* const> biases;    ///< empty, or one pointer per part ([out_i] of bias_dtype, or null)
  DType bias_dtype = DType::f32;
  float* out = nullptr;         ///< [num_tokens, out_stride]
  std::int64_t out_stride = 0;  ///< >= sum of out_i
  bool accumulate = false;      ///< whether the result is added to out; otherwise it replaces out
};

/// LinearParams with quantised weights. Each row of x is quantised, too, to integers from -127 to 127 with a float32
/// scale per group of columns (h / 127 with h the highest |x|, or the highest |x[2 i] + x[2 i + 1]| if that is more and
/// the format bounds pairs), so that the kernels multiply integers. (CUDA devices round x and weights to bfloat16
/// instead if there are so many rows that this is faster, see kernels/cuda/quantized_linear.hpp; the result is closer
/// to the plain product.)
struct QuantizedLinearParams {
  const float* x = nullptr;  ///< [num_tokens, in]
  std::int64_t num_tokens = 0;
  std::int64_t in = 0;
  std::span<const QuantizedMatrix> weights;  ///< 1 to 4 parts of one format (all with mins or none), each [out_i, in]
  std::span<const void* const> biases;       ///< empty, or one pointer per part ([out_i] of bias_dtype, or null)
  DType bias_dtype = DType::f32;
  float* out = nullptr;         ///< [num_tokens, out_stride]
  std::int64_t out_stride = 0;  ///< >= sum of out_i
  bool accumulate = false;      ///< whether the result is added to out; otherwise it replaces out
};

/// Number of columns of out in a panel of LoraItem::b.
constexpr std::int64_t kLoraPanel = 32;

/// The sum that one adapter adds to some columns of some rows (see LoraParams).
struct LoraItem {
  std::int64_t first_row = 0;  ///< row of x and out
  std::int64_t num_rows = 0;
  std::int64_t first_column = 0;  ///< column of out
  std::int64_t out_features = 0;
  const void* a = nullptr;  ///< [rank, in]; with token_ids [in, rank]
  /// [ceil(out_features / kLoraPanel), rank, kLoraPanel]: element [p, r, i] is B[p * kLoraPanel + i, r], and 0 beyond
  /// the last row of B.
  const void* b = nullptr;
  DType dtype = DType::f32;  ///< type of a and b
  std::int64_t rank = 0;     ///< 0 = the item has no product
  float scale = 1.0F;
  const float* factors = nullptr;  ///< [out_features] or null: 1
  /// [num_rows, base_stride]: the products of the base's weight, which the factors change; null = the values in out.
  const float* base = nullptr;
  std::int64_t base_stride = 0;
  const float* bias = nullptr;  ///< [out_features] or null: 0
};

/// Low-rank changes of linear layers (LoRA, Hu et al. 2021), different ones for different rows: for each item, row t of
/// the item, and n < out_features,
///
///     out[t, first_column + n] += factors[n] * scale * sum_r B[n, r] * (sum_k A[r, k] * x[t, k])
///                                 + (factors[n] - 1) * base[t, n] + bias[n]
///
/// The factors are those of DoRA (Liu et al. 2024), whose layer is factors * (W x + scale * B A x). With token_ids the
/// input of row t is the unit vector of its token: sum_k is A[r, token_ids[t]]. Items have ranks of their own and come
/// in any order, but no two items may have an element of out in common. Products are in float32, also with 16-bit a, b
/// and x.
struct LoraParams {
  const float* x = nullptr;                 ///< [num_tokens, in]
  NarrowRows narrow_x = {};                 ///< instead of x, in any of its types
  const std::int32_t* token_ids = nullptr;  ///< [num_tokens], instead of x
  std::int64_t num_tokens = 0;
  std::int64_t in = 0;              ///< columns of x, or number of tokens in the vocabulary
  std::span<const LoraItem> items;  ///< host memory
  float* out = nullptr;             ///< [num_tokens, out_stride]
  std::int64_t out_stride = 0;
};

/// Quantises a weight matrix. The scale (and minimum) of each group is chosen so that the sum of squared errors is
/// small:
///  - symmetric, 8 bits: the scale is the highest |w| / 127;
///  - symmetric, fewer bits: the best of a few scales near the scale that maps the value of highest |w| to the lowest
///    integer (-8 with 4 bits);
///  - asymmetric: the best of a few grids that cover the group's range or a little less, each refined by least squares
///    for the integers that it gives.
///
/// A value that is not finite, or a scale or minimum outside the range of float16, is an error (bad_file). CUDA devices
/// return `unsupported`: weights are quantised on the CPU and copied.
struct QuantizeWeightsParams {
  WeightMatrix from;
  QuantizedFormat format;
  std::uint8_t* data = nullptr;  ///< in the layout of QuantizedMatrix
  Float16* scales = nullptr;
  Float16* mins = nullptr;         ///< only in an asymmetric format
  std::int8_t* factors = nullptr;  ///< only in a format with two-level scales
};

/// to[i] = from[i] in another type, rounded to nearest even; values too large for float16 become infinite.
struct ConvertParams {
  const void* from = nullptr;
  DType from_dtype = DType::f32;
  void* to = nullptr;
  DType to_dtype = DType::f32;
  std::int64_t count = 0;
};

/// Rotary position embedding in place, "rotate half" (GPT-NeoX / Hugging Face Llama) or interleaved pairs.
/// cos_sin: [max_position, rotary_dim]: the first half cosines, the second half sines.
struct RotaryParams {
  const std::int32_t* positions = nullptr;  ///< [num_tokens]
  std::int64_t num_tokens = 0;
  float* query = nullptr;  ///< [num_tokens, query_stride], heads * head_dim used
  float* key = nullptr;    ///< [num_tokens, key_stride], kv_heads * head_dim used
  std::int64_t query_stride = 0;
  std::int64_t key_stride = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t rotary_dim = 0;  ///< <= head_dim, even
  const float* cos_sin = nullptr;
  bool interleaved = false;  ///< whether columns 2i and 2i + 1 are a pair; otherwise i and i + rotary_dim / 2
};

/// The paged KV cache of one layer. One physical block holds all layers; each layer has a part for K, then a part for
/// V. A part is [num_kv_heads, block_size, head_dim] values of `dtype`. With int8 the float32 scales [num_kv_heads,
/// block_size] follow, one for each token and KV head; a key or value is its integers times its scale. With one-byte
/// types, values and scales are each padded to a multiple of kKvAlignment bytes.
///
/// float16: a cast that saturates: magnitudes above kMaxF16, infinity included, become kMaxF16; NaN stays NaN. An
/// infinite value would make NaN of rows that give it the weight 0. fp8_e4m3: a cast with scale 1 (to_fp8_e4m3), which
/// saturates. int8: with h the highest magnitude of a token's
/// head_dim values, the scale is h / 127 and the integers are x * (127 / h), rounded to nearest even; if h is below
/// kMinInt8Highest, the scale and the integers are zero; if a value is not finite, the scale is NaN and the integers
/// are zero.
struct KvCacheView {
  static constexpr std::int64_t kKvAlignment = 16;
  static constexpr float kMinInt8Highest = 0x1p-100F;  ///< 127 / h must be finite
  static constexpr float kMaxF16 = 65504.0F;           ///< the largest finite float16

  std::byte* base = nullptr;     ///< start of this layer's part in block 0
  std::int64_t block_bytes = 0;  ///< bytes from one block to the next (all layers)
  std::int64_t num_blocks = 0;
  std::int32_t block_size = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  DType dtype = DType::f32;

  /// Returns the bytes of the values of K or of V in one block, without scales.
  std::int64_t value_bytes() const {
    const std::int64_t bytes = num_kv_heads * block_size * head_dim * static_cast<std::int64_t>(size_of(dtype));
    return size_of(dtype) == 1 ? padded(bytes) : bytes;
  }
  std::int64_t scale_bytes() const {
    return dtype == DType::int8 ? padded(num_kv_heads * block_size * std::int64_t{sizeof(float)}) : 0;
  }
  std::int64_t part_bytes() const { return value_bytes() + scale_bytes(); }
  std::byte* key_block(std::int64_t block) const { return base + block * block_bytes; }
  std::byte* value_block(std::int64_t block) const { return base + block * block_bytes + part_bytes(); }
  /// [num_kv_heads, block_size]; only with int8.
  float* key_scales(std::int64_t block) const { return scales_behind(key_block(block)); }
  float* value_scales(std::int64_t block) const { return scales_behind(value_block(block)); }

 private:
  static std::int64_t padded(std::int64_t bytes) { return (bytes + kKvAlignment - 1) / kKvAlignment * kKvAlignment; }
  float* scales_behind(std::byte* values) const { return reinterpret_cast<float*>(values + value_bytes()); }
};

/// Writes the new tokens' keys and values into their slots (slot = block * block_size + offset; -1 = skip the token).
struct StoreKvParams {
  const float* key = nullptr;    ///< [num_tokens, key_stride]
  const float* value = nullptr;  ///< [num_tokens, value_stride]
  std::int64_t key_stride = 0;
  std::int64_t value_stride = 0;
  const std::int64_t* slot_mapping = nullptr;  ///< [num_tokens]
  std::int64_t num_tokens = 0;
  KvCacheView cache;
};

/// Causal attention of a batch of sequences over the paged KV cache; prefill, chunked prefill and decode in one op.
/// Sequence s owns query rows [query_start[s], query_start[s+1]); its last query row is at position context_len[s] - 1,
/// and row r sees positions [first_seen(p), p] where p is the row's own position. The keys and values of all these
/// positions are already in the cache. The result of a row and head h is softmax(score + alibi_slope[h] * (k_pos
/// - q_pos)) v, where score = scale * q k^T, or softcap * tanh(scale * q k^T / softcap) if there is a softcap.
struct PagedAttentionParams {
  const float* query = nullptr;  ///< [num_tokens, query_stride]
  std::int64_t query_stride = 0;
  std::int64_t num_heads = 0;                  ///< a multiple of cache.num_kv_heads
  const std::int32_t* query_start = nullptr;   ///< [num_sequences + 1]
  const std::int32_t* context_len = nullptr;   ///< [num_sequences], number of cached and new tokens
  const std::int32_t* block_tables = nullptr;  ///< [num_sequences, max_blocks]
  std::int64_t max_blocks = 0;
  std::int64_t num_sequences = 0;
  std::int64_t num_tokens = 0;  ///< upper bound of the query rows of all sequences; 0 = unknown
  /// Upper bounds of the query rows and of the context of any sequence, for devices whose arrays the host cannot read.
  /// A sequence without query rows is padding.
  std::int32_t max_query_len = 0;
  std::int32_t max_context_len = 0;
  KvCacheView cache;
  float scale = 1.0F;
  const float* alibi_slopes = nullptr;  ///< [num_heads] or null
  std::int32_t window = 0;              ///< sliding window in tokens; 0 = none
  std::int32_t first_position = 0;      ///< rows behind it see no position before it
  float softcap = 0.0F;                 ///< 0 = none
  float* out = nullptr;                 ///< [num_tokens, num_heads * head_dim]
  NarrowRows narrow_out = {};           ///< instead of out

  /// Returns the first position that a row at `position` sees. Each row sees its own position.
  std::int64_t first_seen(std::int64_t position) const {
    const std::int64_t in_window = window > 0 ? position - window + 1 : 0;
    return std::min(position, std::max<std::int64_t>(first_position, in_window));
  }
};

enum class Activation : std::uint8_t { silu, gelu, gelu_tanh, relu };

/// If gated, out[t, i] = act(x[t, i]) * x[t, width + i], and x is [num_tokens, 2 * width] (SwiGLU and similar).
/// Otherwise out[t, i] = act(x[t, i]), x is [num_tokens, width], and x may be out.
struct ActivationParams {
  const float* x = nullptr;
  std::int64_t num_tokens = 0;
  std::int64_t width = 0;
  Activation activation = Activation::silu;
  bool gated = true;
  float* out = nullptr;        ///< [num_tokens, width]
  NarrowRows narrow_out = {};  ///< instead of out; must not be x
};

/// x[i] = factor * x[i], in place; with a softcap, softcap * tanh(factor * x[i] / softcap).
struct ScaleParams {
  float* x = nullptr;  ///< [num_rows, width]
  std::int64_t num_rows = 0;
  std::int64_t width = 0;
  float factor = 1.0F;
  float softcap = 0.0F;  ///< 0 = none
};

/// out[i, :] = x[rows[i], :].
struct GatherRowsParams {
  const float* x = nullptr;
  const std::int32_t* rows = nullptr;  ///< [num_rows]
  std::int64_t num_rows = 0;
  std::int64_t width = 0;
  float* out = nullptr;  ///< [num_rows, width]
};

/// out[i] = table[slots[i]], or 0 in place of a token from `vocab` on.
struct GatherTokensParams {
  const std::int32_t* table = nullptr;
  const std::int64_t* slots = nullptr;  ///< [count]
  std::int64_t count = 0;
  std::int32_t* out = nullptr;  ///< [count]
  std::int32_t vocab = std::numeric_limits<std::int32_t>::max();
};

/// table[slots[i]] = max(0, tokens[i * token_stride]); a slot of -1 is skipped. (A negative token means that the row
/// could not be sampled.)
struct ScatterTokensParams {
  const std::int32_t* tokens = nullptr;  ///< [count], token_stride apart
  std::int64_t token_stride = 1;         ///< in integers
  const std::int64_t* slots = nullptr;   ///< [count]
  std::int64_t count = 0;
  std::int32_t* table = nullptr;
};

/// Copies bytes between or within device and host memory (MemoryKind). The two ranges must not overlap.
struct CopyParams {
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t bytes = 0;
};

struct SampleParams;

/// Moves whole blocks: to_base + to * block_bytes = from_base + from * block_bytes, in the order of the lists. Used for
/// swap-out (device -> host), swap-in (host -> device) and copies within a pool.
struct MoveBlocksParams {
  const std::byte* from_base = nullptr;
  std::byte* to_base = nullptr;
  std::int64_t block_bytes = 0;
  std::span<const std::int32_t> from;
  std::span<const std::int32_t> to;
};

/// Work on host memory that has no op, such as the conversion of a file's weights.
struct HostWorkParams {
  std::int64_t num_tasks = 0;
  std::function<void(std::int64_t task)> run;  ///< called on any thread of the device, concurrently, in any order
};

/// The ops of one device. Each call checks its params (shapes, null pointers, limits), then launches the op on `stream`
/// (Stream::submit describes when it computes). A wrong shape is an internal error that names the op and the shape.
class Ops {
 public:
  virtual ~Ops() = default;
  /// Returns whether this device supports NarrowRows. Linear layers are faster with them and give the same bits,
  /// because they round their input to the type of the weights in any case.
  virtual bool supports_narrow_rows() const { return false; }
  virtual Status embedding(Stream& stream, const EmbeddingParams& params) const = 0;
  virtual Status rms_norm(Stream& stream, const RmsNormParams& params) const = 0;
  virtual Status layer_norm(Stream& stream, const LayerNormParams& params) const = 0;
  virtual Status linear(Stream& stream, const LinearParams& params) const = 0;
  virtual Status quantized_linear(Stream& stream, const QuantizedLinearParams& params) const = 0;
  virtual Status lora(Stream& stream, const LoraParams& params) const = 0;
  virtual Status quantize_weights(Stream& stream, const QuantizeWeightsParams& params) const = 0;
  virtual Status convert(Stream& stream, const ConvertParams& params) const = 0;
  /// Runs on devices that compute on the host; others return `unsupported`.
  virtual Status host_work(Stream& stream, const HostWorkParams& params) const {
    static_cast<void>(stream);
    static_cast<void>(params);
    return fail(ErrorCode::unsupported, "host_work runs on the CPU device");
  }
  virtual Status rotary(Stream& stream, const RotaryParams& params) const = 0;
  virtual Status store_kv(Stream& stream, const StoreKvParams& params) const = 0;
  virtual Status paged_attention(Stream& stream, const PagedAttentionParams& params) const = 0;
  virtual Status activation(Stream& stream, const ActivationParams& params) const = 0;
  virtual Status scale(Stream& stream, const ScaleParams& params) const = 0;
  virtual Status gather_rows(Stream& stream, const GatherRowsParams& params) const = 0;
  virtual Status gather_tokens(Stream& stream, const GatherTokensParams& params) const = 0;
  virtual Status scatter_tokens(Stream& stream, const ScatterTokensParams& params) const = 0;
  virtual Status copy(Stream& stream, const CopyParams& params) const = 0;
  virtual Status move_blocks(Stream& stream, const MoveBlocksParams& params) const = 0;
  virtual Status sample(Stream& stream, const SampleParams& params) const = 0;  ///< kernels/sample.hpp
};

}  // namespace pagoda::kernels
