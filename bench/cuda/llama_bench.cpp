#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/cuda/gpu.hpp"

// Benchmarks single ops in the shapes of Llama 3 8B, and the forward of all its layers with random bfloat16 weights: a
// step without sampling and without the engine.
namespace pagoda::kernels::bench {
namespace {

struct Shape {
  std::int64_t hidden = 4096;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 8;
  std::int64_t head_dim = 128;
  std::int64_t intermediate = 14336;
  std::int64_t vocab = 128256;
  std::int64_t layers = 32;

  std::int64_t query_width() const { return heads * head_dim; }
  std::int64_t kv_width() const { return kv_heads * head_dim; }
  std::int64_t qkv_width() const { return query_width() + 2 * kv_width(); }
  std::int64_t layer_weights() const { return hidden * (qkv_width() + query_width() + 3 * intermediate) + 2 * hidden; }
};

constexpr std::int32_t kBlockSize = 16;
constexpr DType kType = DType::bf16;
constexpr std::int64_t kTypeBytes = 2;

/// Sequences with `context` tokens each, of which the last `rows` are computed, and the memory of one forward.
class Forward {
 public:
  Forward(const Shape& shape, std::int64_t sequences, std::int64_t rows, std::int64_t context, DType cache_type = kType)
      : shape_(shape), sequences_(sequences), rows_(rows), context_(context), tokens_(sequences * rows) {
    weights_ = random_memory(shape.layers * shape.layer_weights() * kTypeBytes);
    head_ = random_memory(shape.vocab * shape.hidden * kTypeBytes);
    const std::int64_t blocks_per_sequence = (context + kBlockSize - 1) / kBlockSize;
    cache_.block_size = kBlockSize;
    cache_.num_kv_heads = shape.kv_heads;
    cache_.head_dim = shape.head_dim;
    cache_.dtype = cache_type;
    cache_.num_blocks = sequences * blocks_per_sequence;
    cache_.block_bytes = shape.layers * 2 * cache_.part_bytes();
    kv_ = random_memory(cache_.num_blocks * cache_.block_bytes);
    make_indices(blocks_per_sequence);
    hidden_ = random_memory(tokens_ * shape.hidden * 4);
    normed_ = random_memory(tokens_ * shape.hidden * 4);
    qkv_ = random_memory(tokens_ * shape.qkv_width() * 4);
    attended_ = random_memory(tokens_ * shape.query_width() * 4);
    gate_up_ = random_memory(tokens_ * 2 * shape.intermediate * 4);
    inner_ = random_memory(tokens_ * shape.intermediate * 4);
    cos_sin_ = random_memory(context * shape.head_dim * 4);
    logits_ = random_memory(sequences * shape.vocab * 4);
  }

  std::int64_t tokens() const { return tokens_; }

  /// Returns the bytes of all layers and the head. Weights are read once. A token computes two operations per weight.
  double weight_bytes() const {
    return static_cast<double>((shape_.layers * shape_.layer_weights() + shape_.vocab * shape_.hidden) * kTypeBytes);
  }
  double flops() const {
    return 2.0 * static_cast<double>(tokens_) * static_cast<double>(shape_.layers * shape_.layer_weights());
  }

  Status run(const Ops& ops, Stream& stream) const {
    Status status;
    for (std::int64_t layer = 0; layer < shape_.layers && status; ++layer) {
      status = attention_half(ops, stream, layer);
      if (status) status = mlp_half(ops, stream, layer);
    }
    if (status) status = norm(ops, stream, 0);
    if (!status) return status;
    const WeightMatrix head{head_.data(), kType, shape_.vocab, shape_.hidden};
    return linear(ops, stream, narrow(normed_), sequences_, {&head, 1}, logits_, shape_.vocab, false);
  }

  Status attention(const Ops& ops, Stream& stream, std::int64_t layer) const {
    PagedAttentionParams p;
    p.query = qkv_.as<float>();
    p.query_stride = shape_.qkv_width();
    p.num_heads = shape_.heads;
    p.query_start = query_start_.as<std::int32_t>();
    p.context_len = context_len_.as<std::int32_t>();
    p.block_tables = tables_.as<std::int32_t>();
    p.max_blocks = (context_ + kBlockSize - 1) / kBlockSize;  // blocks of one sequence
    p.num_sequences = sequences_;
    p.num_tokens = tokens_;
    p.max_query_len = static_cast<std::int32_t>(rows_);
    constexpr std::int64_t kMinBound = 2048;  // the bound with which the engine records decode steps
    p.max_context_len = static_cast<std::int32_t>(rows_ == 1 ? std::max(context_, kMinBound) : context_);
    p.cache = layer_cache(layer);
    p.scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
    p.narrow_out = narrow(attended_).narrow;
    return ops.paged_attention(stream, p);
  }

  /// Runs the widest matrix of a layer, gate and up in one.
  Status gate_up(const Ops& ops, Stream& stream) const {
    const std::uint16_t* weight =
        layer_weights(0) + 2 * shape_.hidden + shape_.hidden * (shape_.qkv_width() + shape_.query_width());
    const WeightMatrix into{weight, kType, 2 * shape_.intermediate, shape_.hidden};
    return linear(ops, stream, narrow(normed_), tokens_, {&into, 1}, gate_up_, 2 * shape_.intermediate, false);
  }

  /// Runs the smallest matrix of a layer and adds the product to the existing values.
  Status output_projection(const Ops& ops, Stream& stream) const {
    const std::uint16_t* weight = layer_weights(0) + 2 * shape_.hidden + shape_.qkv_width() * shape_.hidden;
    const WeightMatrix back{weight, kType, shape_.hidden, shape_.query_width()};
    return linear(ops, stream, narrow(attended_), tokens_, {&back, 1}, hidden_, shape_.hidden, true);
  }

  Status norm(const Ops& ops, Stream& stream, std::int64_t layer) const {
    RmsNormParams p;
    p.x = hidden_.as<float>();
    p.weight = layer_weights(layer);
    p.weight_dtype = kType;
    p.narrow_out = narrow(normed_).narrow;
    p.num_tokens = tokens_;
    p.hidden = shape_.hidden;
    return ops.rms_norm(stream, p);
  }

  Status rotary(const Ops& ops, Stream& stream) const {
    RotaryParams p;
    p.positions = positions_.as<std::int32_t>();
    p.num_tokens = tokens_;
    p.query = qkv_.as<float>();
    p.key = p.query + shape_.query_width();
    p.query_stride = p.key_stride = shape_.qkv_width();
    p.num_heads = shape_.heads;
    p.num_kv_heads = shape_.kv_heads;
    p.head_dim = p.rotary_dim = shape_.head_dim;
    p.cos_sin = cos_sin_.as<float>();
    return ops.rotary(stream, p);
  }

  Status activation(const Ops& ops, Stream& stream) const {
    ActivationParams p;
    p.x = gate_up_.as<float>();
    p.num_tokens = tokens_;
    p.width = shape_.intermediate;
    p.narrow_out = narrow(inner_).narrow;
    return ops.activation(stream, p);
  }

 private:
  void make_indices(std::int64_t blocks_per_sequence) {
    std::vector<std::int32_t> query_start, context_len, tables(static_cast<std::size_t>(cache_.num_blocks)), positions;
    std::vector<std::int64_t> slots;
    std::iota(tables.begin(), tables.end(), 0);
    for (std::int64_t s = 0; s < sequences_; ++s) {
      query_start.push_back(static_cast<std::int32_t>(s * rows_));
      context_len.push_back(static_cast<std::int32_t>(context_));
      for (std::int64_t p = context_ - rows_; p < context_; ++p) {
        positions.push_back(static_cast<std::int32_t>(p));
        slots.push_back(s * blocks_per_sequence * kBlockSize + p);
      }
    }
    query_start.push_back(static_cast<std::int32_t>(tokens_));
    query_start_ = device_copy(query_start);
    context_len_ = device_copy(context_len);
    tables_ = device_copy(tables);
    positions_ = device_copy(positions);
    slots_ = device_copy(slots);
  }

  const std::uint16_t* layer_weights(std::int64_t layer) const {
    return weights_.as<std::uint16_t>() + layer * shape_.layer_weights();
  }

  KvCacheView layer_cache(std::int64_t layer) const {
    KvCacheView cache = cache_;
    cache.base = kv_.as<std::byte>() + layer * 2 * cache_.part_bytes();
    return cache;
  }

  /// Input of a linear layer.
  struct Input {
    const float* wide;
    NarrowRows narrow;
  };
  static Input narrow(const Buffer& rows) { return {nullptr, {rows.data(), kType}}; }

  static Status linear(const Ops& ops, Stream& stream, const Input& x, std::int64_t rows,
                       std::span<const WeightMatrix> weights, const Buffer& out, std::int64_t out_stride,
                       bool accumulate) {
    LinearParams p;
    p.x = x.wide;
    p.narrow_x = x.narrow;
    p.num_tokens = rows;
    p.in = weights.front().columns;
    p.weights = weights;
    p.out = out.as<float>();
    p.out_stride = out_stride;
    p.accumulate = accumulate;
    return ops.linear(stream, p);
  }

  Status attention_half(const Ops& ops, Stream& stream, std::int64_t layer) const {
    const std::uint16_t* qkv = layer_weights(layer) + 2 * shape_.hidden;
    const WeightMatrix into{qkv, kType, shape_.qkv_width(), shape_.hidden};
    const WeightMatrix back{qkv + shape_.qkv_width() * shape_.hidden, kType, shape_.hidden, shape_.query_width()};
    Status status = norm(ops, stream, layer);
    if (status) status = linear(ops, stream, narrow(normed_), tokens_, {&into, 1}, qkv_, shape_.qkv_width(), false);
    if (status) status = rotary(ops, stream);
    StoreKvParams store;
    store.key = qkv_.as<float>() + shape_.query_width();
    store.value = store.key + shape_.kv_width();
    store.key_stride = store.value_stride = shape_.qkv_width();
    store.slot_mapping = slots_.as<std::int64_t>();
    store.num_tokens = tokens_;
    store.cache = layer_cache(layer);
    if (status) status = ops.store_kv(stream, store);
    if (status) status = attention(ops, stream, layer);
    if (!status) return status;
    return linear(ops, stream, narrow(attended_), tokens_, {&back, 1}, hidden_, shape_.hidden, true);
  }

  Status mlp_half(const Ops& ops, Stream& stream, std::int64_t layer) const {
    const std::uint16_t* gate_up =
        layer_weights(layer) + 2 * shape_.hidden + shape_.hidden * (shape_.qkv_width() + shape_.query_width());
    const WeightMatrix into{gate_up, kType, 2 * shape_.intermediate, shape_.hidden};
    const WeightMatrix back{gate_up + 2 * shape_.intermediate * shape_.hidden, kType, shape_.hidden,
                            shape_.intermediate};
    Status status = norm(ops, stream, layer);
    if (status)
      status = linear(ops, stream, narrow(normed_), tokens_, {&into, 1}, gate_up_, 2 * shape_.intermediate, false);
    if (status) status = activation(ops, stream);
    if (!status) return status;
    return linear(ops, stream, narrow(inner_), tokens_, {&back, 1}, hidden_, shape_.hidden, true);
  }

  Shape shape_;
  std::int64_t sequences_, rows_, context_, tokens_;
  KvCacheView cache_;
  Buffer weights_, head_, kv_, hidden_, normed_, qkv_, attended_, gate_up_, inner_, cos_sin_, logits_;
  Buffer query_start_, context_len_, tables_, positions_, slots_;
};

/// Arguments: sequences, rows of each, context.
void llama_8b(benchmark::State& state) {
  const Forward forward({}, state.range(0), state.range(1), state.range(2));
  measure(state, forward.weight_bytes(), forward.flops(), 1, Issue::graph,
          [&](const Ops& ops, Stream& stream) { return forward.run(ops, stream); });
  state.counters["tokens/s"] = static_cast<double>(forward.tokens()) / (state.counters["us"] * 1e-6);
}

Shape one_layer() {
  Shape shape;
  shape.layers = 1;
  return shape;
}

using OneOp = Status (*)(const Forward&, const Ops&, Stream&);

/// Returns the fewest bytes that the op can read and write, with a cache of `cache_type`.
double attention_bytes(const Shape& shape, double tokens, double context, DType cache_type) {
  return context * 2 * static_cast<double>(shape.kv_width()) * static_cast<double>(size_of(cache_type)) +
         tokens * 8 * static_cast<double>(shape.query_width());
}

/// Returns the operations for the positions that the rows see.
double attention_flops(const Shape& shape, double sequences, double rows, double context) {
  return sequences * rows * (context - (rows - 1) / 2) * 4 * static_cast<double>(shape.query_width());
}

void attention(benchmark::State& state, DType cache_type) {
  const std::int64_t sequences = state.range(0);
  const std::int64_t rows = state.range(1);
  const std::int64_t context = state.range(2);
  const Shape shape = one_layer();
  const Forward forward(shape, sequences, rows, context, cache_type);
  const auto many = static_cast<double>(sequences);
  measure(state,
          attention_bytes(shape, many * static_cast<double>(rows), many * static_cast<double>(context), cache_type),
          attention_flops(shape, many, static_cast<double>(rows), static_cast<double>(context)), 20, Issue::graph,
          [&](const Ops& ops, Stream& stream) { return forward.attention(ops, stream, 0); });
}

/// `bytes`: the fewest bytes that the op can read and write.
void one_op(benchmark::State& state, OneOp op, double (*bytes)(const Shape&, double tokens, double context)) {
  const std::int64_t sequences = state.range(0);
  const std::int64_t rows = state.range(1);
  const std::int64_t context = state.range(2);
  const Forward forward(one_layer(), sequences, rows, context);
  const double moved =
      bytes(one_layer(), static_cast<double>(sequences * rows), static_cast<double>(sequences * context));
  measure(state, moved, 0, 20, Issue::graph, [&](const Ops& ops, Stream& stream) { return op(forward, ops, stream); });
}

void steps(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"sequences", "rows", "context"})->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.2);
  for (const std::int64_t sequences : {1, 8, 64}) bench->Args({sequences, 1, 1024});
  bench->Args({64, 1, 192});
  bench->Args({1, 4096, 4096});
}

void attention_steps(benchmark::internal::Benchmark* bench) {
  steps(bench);
  bench->Args({64, 1, 4096})->Args({1, 1, 32768})->Args({1, 512, 8192});
}

BENCHMARK(llama_8b)->Apply(steps);
BENCHMARK_CAPTURE(attention, bf16, DType::bf16)->Name("one_op/attention")->Apply(attention_steps);
BENCHMARK_CAPTURE(attention, fp8, DType::fp8_e4m3)->Name("one_op/attention_fp8")->Apply(attention_steps);
BENCHMARK_CAPTURE(attention, int8, DType::int8)->Name("one_op/attention_int8")->Apply(attention_steps);
/// Runs the matrix of gate_up with integer weights. Argument: rows of x.
void quantized_gate_up(benchmark::State& state, QuantizedFormat format) {
  const Shape shape;
  const std::int64_t rows = state.range(1);
  QuantizedMatrix weight{nullptr, nullptr, 2 * shape.intermediate, shape.hidden, format};
  const Buffer data = random_memory(weight.data_bytes());
  const Buffer scales = random_memory(weight.scale_bytes());
  const Buffer mins = format.asymmetric ? random_memory(weight.min_bytes()) : Buffer();
  const Buffer factors = format.two_level_scales ? random_memory(weight.factor_bytes()) : Buffer();
  weight.data = data.as<std::uint8_t>();
  weight.scales = scales.as<Float16>();
  weight.mins = mins.as<Float16>();
  weight.factors = factors.as<std::int8_t>();
  const Buffer x = random_memory(rows * shape.hidden * 4);
  const Buffer out = random_memory(rows * weight.rows * 4);
  QuantizedLinearParams p;
  p.x = x.as<float>();
  p.num_tokens = rows;
  p.in = shape.hidden;
  p.weights = {&weight, 1};
  p.out = out.as<float>();
  p.out_stride = weight.rows;
  const double flops = 2.0 * static_cast<double>(rows * weight.rows * shape.hidden);
  measure(state, static_cast<double>(weight.bytes()), flops, 20, Issue::graph,
          [&](const Ops& ops, Stream& stream) { return ops.quantized_linear(stream, p); });
}

void row_counts(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"sequences", "rows", "context"})->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.1);
  for (const std::int64_t rows : {1, 2, 4, 8, 16, 32, 64, 128, 4096}) bench->Args({1, rows, rows});
}
BENCHMARK_CAPTURE(quantized_gate_up, int8, kInt8Weights)->Apply(row_counts);
BENCHMARK_CAPTURE(quantized_gate_up, int4, kPlainInt4Weights)->Apply(row_counts);
// Formats of GGUF files.
BENCHMARK_CAPTURE(quantized_gate_up, q4_k, {.bits = 4, .group_size = 32, .asymmetric = true, .two_level_scales = true})
    ->Apply(row_counts);
BENCHMARK_CAPTURE(quantized_gate_up, q5_k, {.bits = 5, .group_size = 32, .asymmetric = true, .two_level_scales = true})
    ->Apply(row_counts);
BENCHMARK_CAPTURE(quantized_gate_up, q6_k, {.bits = 6, .group_size = 16, .two_level_scales = true})->Apply(row_counts);
BENCHMARK_CAPTURE(quantized_gate_up, iq4_xs,
                  {.bits = 4, .group_size = 32, .codebook = Codebook::iq4_nl, .two_level_scales = true})
    ->Apply(row_counts);
BENCHMARK_CAPTURE(
    one_op, gate_up, [](const Forward& f, const Ops& ops, Stream& stream) { return f.gate_up(ops, stream); },
    [](const Shape& s, double, double) { return static_cast<double>(2 * s.intermediate * s.hidden * kTypeBytes); })
    ->Apply(row_counts);
BENCHMARK_CAPTURE(
    one_op, output_projection,
    [](const Forward& f, const Ops& ops, Stream& stream) { return f.output_projection(ops, stream); },
    [](const Shape& s, double, double) { return static_cast<double>(s.query_width() * s.hidden * kTypeBytes); })
    ->Apply(row_counts);
BENCHMARK_CAPTURE(
    one_op, rms_norm, [](const Forward& f, const Ops& ops, Stream& stream) { return f.norm(ops, stream, 0); },
    [](const Shape& s, double tokens, double) { return tokens * 6 * static_cast<double>(s.hidden); })
    ->Apply(steps);
BENCHMARK_CAPTURE(
    one_op, rotary, [](const Forward& f, const Ops& ops, Stream& stream) { return f.rotary(ops, stream); },
    [](const Shape& s, double tokens, double) {
      return tokens * 8 * static_cast<double>(s.query_width() + s.kv_width());
    })
    ->Apply(steps);
BENCHMARK_CAPTURE(
    one_op, activation, [](const Forward& f, const Ops& ops, Stream& stream) { return f.activation(ops, stream); },
    [](const Shape& s, double tokens, double) { return tokens * 10 * static_cast<double>(s.intermediate); })
    ->Apply(steps);

}  // namespace
}  // namespace pagoda::kernels::bench
