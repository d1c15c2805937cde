#include <cstdint>

#include <benchmark/benchmark.h>

#include "bench/cuda/gpu.hpp"
#include "kernels/cuda/cuda_stream.hpp"
#include "kernels/cuda/gemm.hpp"

// Measures the limits of the device: copies in each direction, and a large matrix product in bfloat16.
namespace pagoda::kernels::bench {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

/// Copies memory. A copy within the device counts bytes read and bytes written.
void copy(benchmark::State& state, MemoryKind from, MemoryKind to) {
  const auto bytes = static_cast<std::size_t>(state.range(0) * kMiB);
  const Buffer source = gpu().allocate(bytes, from).value();
  const Buffer target = gpu().allocate(bytes, to).value();
  const double moved = static_cast<double>(bytes) * (from == to ? 2.0 : 1.0);
  measure(state, moved, 0, 4, Issue::graph, [&](const Ops& ops, Stream& stream) {
    return ops.copy(stream, {source.data(), target.data(), bytes});
  });
}

/// Copies within the device by a kernel, which reads and writes faster than the copy engine.
void copy_by_kernel(benchmark::State& state) {
  const std::int64_t bytes = state.range(0) * kMiB;
  const Buffer source = random_memory(bytes);
  const Buffer target = gpu().allocate(static_cast<std::size_t>(bytes), MemoryKind::device).value();
  const ConvertParams params{source.data(), DType::f32, target.data(), DType::f32, bytes / 4};
  measure(state, 2.0 * static_cast<double>(bytes), 0, 4, Issue::graph,
          [&](const Ops& ops, Stream& stream) { return ops.convert(stream, params); });
}

/// Multiplies x [rows, n] and weights [columns, n] of bfloat16 -> float32.
void matrix(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const std::int64_t columns = state.range(1);
  const std::int64_t in = state.range(2);
  const Buffer weights = random_memory(columns * in * 2);
  const Buffer x = random_memory(rows * in * 2);
  const Buffer out = gpu().allocate(static_cast<std::size_t>(rows * columns * 4), MemoryKind::device).value();
  cuda::GemmParams params;
  params.weight = weights.data();
  params.dtype = DType::bf16;
  params.x = x.data();
  params.rows = rows;
  params.in = in;
  params.columns = columns;
  params.out = out.as<float>();
  params.out_stride = columns;
  const double flops = 2.0 * static_cast<double>(rows * columns) * static_cast<double>(in);
  measure(state, 0, flops, 2, Issue::graph, [&](const Ops&, Stream& stream) -> Status {
    cuda::CudaStream& on = cuda::cuda_stream(stream);
    const auto gemm = on.gemm();
    if (!gemm) return fail(gemm.error());
    return (*gemm)->multiply(on.get(), params);
  });
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("MiB")->Arg(1024)->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.3);
}

BENCHMARK_CAPTURE(copy, device_to_device, MemoryKind::device, MemoryKind::device)->Apply(sizes);
BENCHMARK(copy_by_kernel)->Apply(sizes);
BENCHMARK_CAPTURE(copy, host_to_device, MemoryKind::host, MemoryKind::device)->Apply(sizes);
BENCHMARK_CAPTURE(copy, device_to_host, MemoryKind::device, MemoryKind::host)->Apply(sizes);
BENCHMARK(matrix)
    ->ArgNames({"rows", "columns", "in"})
    ->Args({8192, 8192, 8192})
    ->Args({4096, 28672, 4096})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond)
    ->MinTime(0.3);

}  // namespace
}  // namespace pagoda::kernels::bench
