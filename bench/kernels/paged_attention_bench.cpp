#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/kernels/machine.hpp"

namespace pagoda::kernels::bench {
namespace {

constexpr std::int64_t kHeadDim = 128;
constexpr std::int64_t kKvHeads = 8;
constexpr std::int32_t kBlockSize = 32;

/// Computes `rows` new tokens of each sequence at the end of a context. The cache is larger than the CPU caches, as for
/// a model with many layers: calls alternate between layers. Bytes are those of the keys and values, including scales.
void attention(benchmark::State& state, DType dtype) {
  const std::int64_t num_sequences = state.range(0);
  const std::int64_t rows = state.range(1);
  const std::int64_t context = state.range(2);
  const std::int64_t num_heads = kKvHeads * state.range(3);
  const std::int64_t max_blocks = (context + kBlockSize - 1) / kBlockSize;

  KvCacheView cache;
  cache.num_blocks = num_sequences * max_blocks;
  cache.block_size = kBlockSize;
  cache.num_kv_heads = kKvHeads;
  cache.head_dim = kHeadDim;
  cache.dtype = dtype;
  const std::int64_t layer_bytes = 2 * cache.part_bytes();
  constexpr std::int64_t kAllLayersBytes = std::int64_t{768} << 20;
  const std::int64_t layers = std::max<std::int64_t>(1, kAllLayersBytes / (layer_bytes * cache.num_blocks));
  cache.block_bytes = layers * layer_bytes;
  const Buffer memory =
      device().allocate(static_cast<std::size_t>(cache.block_bytes * cache.num_blocks), MemoryKind::device).value();
  // Normal numbers in every type, also as scales of int8.
  std::fill_n(memory.as<std::uint32_t>(), memory.bytes() / 4, 0x3C003C00U);

  std::vector<std::int32_t> block_tables(static_cast<std::size_t>(cache.num_blocks));
  std::iota(block_tables.begin(), block_tables.end(), 0);
  std::shuffle(block_tables.begin(), block_tables.end(), std::mt19937(1));
  std::vector<std::int32_t> query_start(static_cast<std::size_t>(num_sequences + 1));
  for (std::int64_t s = 0; s <= num_sequences; ++s) {
    query_start[static_cast<std::size_t>(s)] = static_cast<std::int32_t>(s * rows);
  }
  const std::vector<std::int32_t> context_len(static_cast<std::size_t>(num_sequences),
                                              static_cast<std::int32_t>(context));
  const std::vector<float> query(static_cast<std::size_t>(num_sequences * rows * num_heads * kHeadDim), 0.1F);
  std::vector<float> out(query.size());

  std::int64_t layer = 0;
  const auto attend = [&](const Ops& ops, Stream& on) {
    PagedAttentionParams params;
    params.query = query.data();
    params.query_stride = num_heads * kHeadDim;
    params.num_heads = num_heads;
    params.query_start = query_start.data();
    params.context_len = context_len.data();
    params.block_tables = block_tables.data();
    params.max_blocks = max_blocks;
    params.num_sequences = num_sequences;
    params.cache = cache;
    params.cache.base = memory.as<std::byte>() + layer * layer_bytes;
    params.scale = 1.0F / std::sqrt(static_cast<float>(kHeadDim));
    params.out = out.data();
    layer = (layer + 1) % layers;
    return ops.paged_attention(on, params);
  };
  const double bytes = static_cast<double>(num_sequences * max_blocks * layer_bytes);
  const double seen = static_cast<double>(rows) * (static_cast<double>(context) - static_cast<double>(rows - 1) / 2);
  const double flops = 4.0 * static_cast<double>(num_sequences * num_heads * kHeadDim) * seen;
  measure(state, bytes, flops, attend);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"sequences", "rows", "context", "heads_per_kv"})
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond)
      ->MinTime(0.3);
  for (const std::int64_t heads_per_kv : {1, 4, 8}) bench->Args({1, 1, 8192, heads_per_kv});
  bench->Args({16, 1, 1024, 4});
  bench->Args({1, 512, 512, 4});
  bench->Args({1, 512, 4096, 4});
}

BENCHMARK_CAPTURE(attention, bf16, DType::bf16)->Apply(sizes);
BENCHMARK_CAPTURE(attention, f32, DType::f32)->Apply(sizes);
BENCHMARK_CAPTURE(attention, f16, DType::f16)->Apply(sizes);
BENCHMARK_CAPTURE(attention, fp8_e4m3, DType::fp8_e4m3)->Apply(sizes);
BENCHMARK_CAPTURE(attention, int8, DType::int8)->Apply(sizes);

}  // namespace
}  // namespace pagoda::kernels::bench
