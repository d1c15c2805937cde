#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/cuda/gpu.hpp"
#include "kernels/cuda/move_blocks.hpp"

// Compares both ways to move KV blocks over the size of a block, in both directions. Blocks are scattered on both
// sides. kCopyEngineBytes of kernels/cuda/move_blocks.hpp should be where the two ways are equally fast.
namespace pagoda::kernels::bench {
namespace {

constexpr std::int64_t kMovedBytes = std::int64_t{256} << 20;

using Mover = Status (*)(cuda::CudaStream&, const MoveBlocksParams&);

void swap(benchmark::State& state, Mover mover, bool out) {
  const std::int64_t block_bytes = state.range(0) << 10;
  const auto count = static_cast<std::size_t>(std::min<std::int64_t>(kMovedBytes / block_bytes, 4096));
  const auto pool_bytes = count * static_cast<std::size_t>(block_bytes);
  const Buffer device = gpu().allocate(pool_bytes, MemoryKind::device).value();
  const Buffer host = gpu().allocate(pool_bytes, MemoryKind::host).value();
  std::vector<std::int32_t> from(count);
  std::iota(from.begin(), from.end(), 0);
  std::vector<std::int32_t> to = from;
  std::mt19937 random(1);
  std::shuffle(from.begin(), from.end(), random);
  std::shuffle(to.begin(), to.end(), random);
  MoveBlocksParams params;
  params.from_base = (out ? device : host).as<std::byte>();
  params.to_base = (out ? host : device).as<std::byte>();
  params.block_bytes = block_bytes;
  params.from = from;
  params.to = to;
  measure(state, static_cast<double>(pool_bytes), 0, 1, Issue::direct,
          [&](const Ops&, Stream& stream) { return mover(cuda::cuda_stream(stream), params); });
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgName("KiB")->UseManualTime()->Unit(benchmark::kMillisecond)->MinTime(0.1);
  for (const std::int64_t kib : {4, 16, 32, 64, 128, 256, 1024, 2048}) bench->Arg(kib);
}

BENCHMARK_CAPTURE(swap, out_by_copies, cuda::move_blocks_by_copies, true)->Apply(sizes);
BENCHMARK_CAPTURE(swap, out_by_kernel, cuda::move_blocks_by_kernel, true)->Apply(sizes);
BENCHMARK_CAPTURE(swap, in_by_copies, cuda::move_blocks_by_copies, false)->Apply(sizes);
BENCHMARK_CAPTURE(swap, in_by_kernel, cuda::move_blocks_by_kernel, false)->Apply(sizes);

}  // namespace
}  // namespace pagoda::kernels::bench
