#include <cstdint>

#include <benchmark/benchmark.h>

#include "bench/cuda/gpu.hpp"

// What the device can do at most: copies in each direction, and a large matrix product in bfloat16.
namespace pagoda::kernels::bench {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// Bytes read and written count for a copy within the device.
void copy(benchmark::State& state, MemoryKind from, MemoryKind to) {
  const auto bytes = static_cast<std::size_t>(state.range(0) * kMiB);
  const Buffer source = gpu().allocate(bytes, from).value();
  const Buffer target = gpu().allocate(bytes, to).value();
  const double moved = static_cast<double>(bytes) * (from == to ? 2.0 : 1.0);
  measure(state, moved, 0, 4, Issue::graph, [&](const Ops& ops, Stream& stream) {
    return ops.copy(stream, {source.data(), target.data(), bytes});
  });
}

void matrix(benchmark::State& state) {
  const std::int64_t n = state.range(0);
  const Buffer weights = random_memory(n * n * 2);
  const Buffer x = random_memory(n * n * 4);
  const Buffer out = gpu().allocate(static_cast<std::size_t>(n * n * 4), MemoryKind::device).value();
  const WeightMatrix weight{weights.data(), DType::bf16, n, n};
  LinearParams params;
  params.x = x.as<float>();
  params.num_tokens = n;
  params.in = n;
  params.weights = {&weight, 1};
  params.out = out.as<float>();
  params.out_stride = n;
  const auto size = static_cast<double>(n);
  measure(state, 0, 2.0 * size * size * size, 2, Issue::graph,
          [&](const Ops& ops, Stream& stream) { return ops.linear(stream, params); });
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("MiB")->Arg(1024)->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.3);
}

BENCHMARK_CAPTURE(copy, device_to_device, MemoryKind::device, MemoryKind::device)->Apply(sizes);
BENCHMARK_CAPTURE(copy, host_to_device, MemoryKind::host, MemoryKind::device)->Apply(sizes);
BENCHMARK_CAPTURE(copy, device_to_host, MemoryKind::device, MemoryKind::host)->Apply(sizes);
BENCHMARK(matrix)->ArgName("n")->Arg(8192)->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.3);

}  // namespace
}  // namespace pagoda::kernels::bench
