#include <algorithm>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/kernels/machine.hpp"

namespace pagoda::kernels::bench {
namespace {

/// Computes y[rows, out] = x[rows, in] W^T. Weights alternate between copies that together exceed the caches, as the
/// layers of a model do. Bytes are those of the weights.
void linear(benchmark::State& state, DType dtype) {
  const std::int64_t out_features = state.range(0);
  const std::int64_t in = state.range(1);
  const std::int64_t rows = state.range(2);
  const std::int64_t weight_bytes = out_features * in * static_cast<std::int64_t>(size_of(dtype));
  constexpr std::int64_t kAllWeightsBytes = std::int64_t{768} << 20;
  const std::int64_t copies = std::max<std::int64_t>(2, kAllWeightsBytes / weight_bytes);

  const Buffer weights = device().allocate(static_cast<std::size_t>(copies * weight_bytes), MemoryKind::device).value();
  std::uint32_t bits = 12345;
  for (std::int64_t i = 0; i < copies * weight_bytes / 4; ++i) {
    bits = bits * 1664525U + 1013904223U;
    // Exponents near 1 in both halves, so that no value is subnormal or NaN in any type.
    weights.as<std::uint32_t>()[i] = (bits & 0x83FF83FFU) | 0x3C003C00U;
  }
  const std::vector<float> x(static_cast<std::size_t>(rows * in), 0.01F);
  std::vector<float> out(static_cast<std::size_t>(rows * out_features));
  constexpr std::int64_t kBlock = 128;  // block of 8-bit floats, as in DeepSeek V3 and Qwen 3
  const std::vector<float> scales(static_cast<std::size_t>((out_features + kBlock - 1) / kBlock * (in / kBlock)),
                                  0.01F);

  std::int64_t copy = 0;
  const auto multiply = [&](const Ops& ops, Stream& on) {
    WeightMatrix weight{weights.as<std::byte>() + copy * weight_bytes, dtype, out_features, in};
    if (dtype == DType::fp8_e4m3) {
      weight.scales = scales.data();
      weight.scale_rows = kBlock;
      weight.scale_columns = kBlock;
    }
    copy = (copy + 1) % copies;
    LinearParams params;
    params.x = x.data();
    params.num_tokens = rows;
    params.in = in;
    params.weights = {&weight, 1};
    params.out = out.data();
    params.out_stride = out_features;
    return ops.linear(on, params);
  };
  const double flops = 2.0 * static_cast<double>(rows * out_features * in);
  measure(state, static_cast<double>(weight_bytes), flops, multiply);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"out", "in", "rows"})->UseManualTime()->Unit(benchmark::kMicrosecond)->MinTime(0.3);
  for (const std::int64_t rows : {1, 4, 16, 32, 128, 512}) {
    bench->Args({2048, 2048, rows});
    bench->Args({5632, 2048, rows});
    bench->Args({2048, 5632, rows});
    if (rows <= 16) bench->Args({32000, 2048, rows});
  }
}

BENCHMARK_CAPTURE(linear, f32, DType::f32)->Apply(sizes);
BENCHMARK_CAPTURE(linear, bf16, DType::bf16)->Apply(sizes);
BENCHMARK_CAPTURE(linear, f16, DType::f16)->Apply(sizes);
BENCHMARK_CAPTURE(linear, fp8, DType::fp8_e4m3)->Apply(sizes);

}  // namespace
}  // namespace pagoda::kernels::bench
