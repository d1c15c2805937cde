#include <algorithm>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/kernels/machine.hpp"
#include "kernels/quantized.hpp"

namespace pagoda::kernels::bench {
namespace {

/// Computes y[rows, out] = x[rows, in] W^T with quantised weights. Weights alternate between copies that together
/// exceed the caches, as the layers of a model do. Bytes are those of the weights with their scales, minimums and
/// factors.
void quantized_linear(benchmark::State& state, QuantizedFormat format) {
  const QuantizedMatrix shape{nullptr, nullptr, state.range(0), state.range(1), format};
  const std::int64_t rows = state.range(2);
  constexpr std::int64_t kAllWeightsBytes = std::int64_t{512} << 20;
  const std::int64_t copies = std::max<std::int64_t>(2, kAllWeightsBytes / shape.bytes());

  const auto allocate = [&](std::int64_t bytes) {
    return device().allocate(static_cast<std::size_t>(copies * bytes), MemoryKind::device).value();
  };
  const Buffer data = allocate(shape.data_bytes());
  const Buffer scales = allocate(shape.scale_bytes());
  const Buffer mins = allocate(shape.min_bytes());
  const Buffer factors = allocate(shape.factor_bytes());
  std::uint32_t bits = 12345;
  for (std::int64_t i = 0; i < copies * shape.data_bytes() / 4; ++i) {
    bits = bits * 1664525U + 1013904223U;
    data.as<std::uint32_t>()[i] = bits;
  }
  std::fill_n(scales.as<Float16>(), copies * shape.scale_bytes() / 2, to_f16(0.01F));
  std::fill_n(mins.as<Float16>(), copies * shape.min_bytes() / 2, to_f16(-0.08F));
  std::fill_n(factors.as<std::int8_t>(), copies * shape.factor_bytes(), std::int8_t{3});
  const std::vector<float> x(static_cast<std::size_t>(rows * shape.columns), 0.01F);
  std::vector<float> out(static_cast<std::size_t>(rows * shape.rows));

  std::int64_t copy = 0;
  const auto multiply = [&](const Ops& ops, Stream& on) {
    QuantizedMatrix weight = shape;
    weight.data = data.as<std::uint8_t>() + copy * shape.data_bytes();
    weight.scales = scales.as<Float16>() + copy * shape.scale_bytes() / 2;
    if (shape.format.asymmetric) weight.mins = mins.as<Float16>() + copy * shape.min_bytes() / 2;
    if (shape.format.factor_columns() > 0) weight.factors = factors.as<std::int8_t>() + copy * shape.factor_bytes();
    copy = (copy + 1) % copies;
    QuantizedLinearParams params;
    params.x = x.data();
    params.num_tokens = rows;
    params.in = shape.columns;
    params.weights = {&weight, 1};
    params.out = out.data();
    params.out_stride = shape.rows;
    return ops.quantized_linear(on, params);
  };
  const double operations = 2.0 * static_cast<double>(rows * shape.rows * shape.columns);
  measure(state, static_cast<double>(shape.bytes()), operations, multiply, Arithmetic::integers);
}

void sizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"out", "in", "rows"})->UseManualTime()->Unit(benchmark::kMicrosecond)->MinTime(0.3);
  for (const std::int64_t rows : {1, 4, 8, 16, 32, 128, 512}) {
    bench->Args({2048, 2048, rows});
    bench->Args({5632, 2048, rows});
    bench->Args({2048, 5632, rows});
    if (rows <= 16) bench->Args({32000, 2048, rows});
  }
}

BENCHMARK_CAPTURE(quantized_linear, int8, kInt8Weights)->Apply(sizes);
BENCHMARK_CAPTURE(quantized_linear, int8_not_rotated, QuantizedFormat{8, 128})->Apply(sizes);
BENCHMARK_CAPTURE(quantized_linear, q8_0, QuantizedFormat{8, 32})->Apply(sizes);
BENCHMARK_CAPTURE(quantized_linear, int4, kInt4Weights)->Apply(sizes);
BENCHMARK_CAPTURE(quantized_linear, int6, kInt6Weights)->Apply(sizes);
BENCHMARK_CAPTURE(quantized_linear, int4_plain, kPlainInt4Weights)->Apply(sizes);
BENCHMARK_CAPTURE(quantized_linear, int4_asymmetric, QuantizedFormat{4, 32, true})->Apply(sizes);

constexpr QuantizedFormat two_level_scales(int bits, std::int64_t group_size, bool asymmetric) {
  return {.bits = bits, .group_size = group_size, .asymmetric = asymmetric, .two_level_scales = true};
}
BENCHMARK_CAPTURE(quantized_linear, q4_k, two_level_scales(4, 32, true))->Apply(sizes);
BENCHMARK_CAPTURE(quantized_linear, q5_k, two_level_scales(5, 32, true))->Apply(sizes);
BENCHMARK_CAPTURE(quantized_linear, q6_k, two_level_scales(6, 16, false))->Apply(sizes);
constexpr QuantizedFormat kIq4{.bits = 4, .group_size = 32, .codebook = Codebook::iq4_nl};
BENCHMARK_CAPTURE(quantized_linear, iq4_nl, kIq4)->Apply(sizes);

}  // namespace
}  // namespace pagoda::kernels::bench
