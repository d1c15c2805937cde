#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/cuda/gpu.hpp"

// Single ops in the shapes of Llama 3 8B, and the forward of all its layers with random bfloat16 weights: a step
// without sampling and without the engine around it.
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

/// Sequences with `context` tokens each, of which the last `rows` are computed; memory for one forward.
class Forward {
 public:
  Forward(const Shape& shape, std::int64_t sequences, std::int64_t rows, std::int64_t context)
      : shape_(shape), sequences_(sequences), rows_(rows), context_(context), tokens_(sequences * rows) {
    weights_ = random_memory(shape.layers * shape.layer_weights() * kTypeBytes);
    head_ = random_memory(shape.vocab * shape.hidden * kTypeBytes);
    const std::int64_t blocks_per_sequence = (context + kBlockSize - 1) / kBlockSize;
    cache_.block_size = kBlockSize;
    cache_.num_kv_heads = shape.kv_heads;
    cache_.head_dim = shape.head_dim;
    cache_.dtype = kType;
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

  /// Of all layers and the head. Weights are read once; a token computes two operations per weight.
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
    return linear(ops, stream, normed_, sequences_, {&head, 1}, logits_, shape_.vocab, false);
  }

  Status attention(const Ops& ops, Stream& stream, std::int64_t layer) const {
    PagedAttentionParams p;
    p.query = qkv_.as<float>();
    p.query_stride = shape_.qkv_width();
    p.num_heads = shape_.heads;
    p.query_start = query_start_.as<std::int32_t>();
    p.context_len = context_len_.as<std::int32_t>();
    p.block_tables = tables_.as<std::int32_t>();
    p.max_blocks = (context_ + kBlockSize - 1) / kBlockSize;
    p.num_sequences = sequences_;
    p.num_tokens = tokens_;
    p.max_query_len = static_cast<std::int32_t>(rows_);
    p.max_context_len = static_cast<std::int32_t>(context_);
    p.cache = layer_cache(layer);
    p.scale = 1.0F / std::sqrt(static_cast<float>(shape_.head_dim));
    p.out = attended_.as<float>();
    return ops.paged_attention(stream, p);
  }

  Status norm(const Ops& ops, Stream& stream, std::int64_t layer) const {
    RmsNormParams p;
    p.x = hidden_.as<float>();
    p.weight = layer_weights(layer);
    p.weight_dtype = kType;
    p.out = normed_.as<float>();
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
    return ops.activation(
        stream, {gate_up_.as<float>(), tokens_, shape_.intermediate, Activation::silu, true, inner_.as<float>()});
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

  static Status linear(const Ops& ops, Stream& stream, const Buffer& x, std::int64_t rows,
                       std::span<const WeightMatrix> weights, const Buffer& out, std::int64_t out_stride,
                       bool accumulate) {
    LinearParams p;
    p.x = x.as<float>();
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
    if (status) status = linear(ops, stream, normed_, tokens_, {&into, 1}, qkv_, shape_.qkv_width(), false);
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
    return linear(ops, stream, attended_, tokens_, {&back, 1}, hidden_, shape_.hidden, true);
  }

  Status mlp_half(const Ops& ops, Stream& stream, std::int64_t layer) const {
    const std::uint16_t* gate_up =
        layer_weights(layer) + 2 * shape_.hidden + shape_.hidden * (shape_.qkv_width() + shape_.query_width());
    const WeightMatrix into{gate_up, kType, 2 * shape_.intermediate, shape_.hidden};
    const WeightMatrix back{gate_up + 2 * shape_.intermediate * shape_.hidden, kType, shape_.hidden,
                            shape_.intermediate};
    Status status = norm(ops, stream, layer);
    if (status) status = linear(ops, stream, normed_, tokens_, {&into, 1}, gate_up_, 2 * shape_.intermediate, false);
    if (status) status = activation(ops, stream);
    if (!status) return status;
    return linear(ops, stream, inner_, tokens_, {&back, 1}, hidden_, shape_.hidden, true);
  }

  Shape shape_;
  std::int64_t sequences_, rows_, context_, tokens_;
  KvCacheView cache_;
  Buffer weights_, head_, kv_, hidden_, normed_, qkv_, attended_, gate_up_, inner_, cos_sin_, logits_;
  Buffer query_start_, context_len_, tables_, positions_, slots_;
};

/// Sequences, rows of each, context.
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

/// Bytes: what the op reads and writes at least.
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
  for (const std::int64_t sequences : {1, 32, 128}) bench->Args({sequences, 1, 1024});
  bench->Args({1, 2048, 2048});
}

BENCHMARK(llama_8b)->Apply(steps);
BENCHMARK_CAPTURE(
    one_op, attention, [](const Forward& f, const Ops& ops, Stream& stream) { return f.attention(ops, stream, 0); },
    [](const Shape& s, double tokens, double context) {
      return context * 2 * static_cast<double>(s.kv_width() * kTypeBytes) +
             tokens * 8 * static_cast<double>(s.query_width());
    })
    ->Apply(steps);
BENCHMARK_CAPTURE(
    one_op, rms_norm, [](const Forward& f, const Ops& ops, Stream& stream) { return f.norm(ops, stream, 0); },
    [](const Shape& s, double tokens, double) { return tokens * 8 * static_cast<double>(s.hidden); })
    ->Apply(steps);
BENCHMARK_CAPTURE(
    one_op, rotary, [](const Forward& f, const Ops& ops, Stream& stream) { return f.rotary(ops, stream); },
    [](const Shape& s, double tokens, double) {
      return tokens * 8 * static_cast<double>(s.query_width() + s.kv_width());
    })
    ->Apply(steps);
BENCHMARK_CAPTURE(
    one_op, activation, [](const Forward& f, const Ops& ops, Stream& stream) { return f.activation(ops, stream); },
    [](const Shape& s, double tokens, double) { return tokens * 12 * static_cast<double>(s.intermediate); })
    ->Apply(steps);

}  // namespace
}  // namespace pagoda::kernels::bench
