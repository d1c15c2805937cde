#include <algorithm>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "bench/kernels/machine.hpp"

namespace pagoda::kernels::bench {
namespace {

/// Computes y[rows, out] = x[rows, in] W^T with bf16 weights, then the changes of `adapters` adapters of rank `rank`,
/// each for as many rows; 0 adapters: the linear layer alone. All weights alternate between copies that together exceed
/// the caches, as the layers of a model do. Bytes are those of all weights that are read.
void lora(benchmark::State& state) {
  const std::int64_t out_features = state.range(0);
  const std::int64_t in = state.range(1);
  const std::int64_t rows = state.range(2);
  const std::int64_t adapters = state.range(3);
  const std::int64_t rank = state.range(4);
  const std::int64_t base_elements = out_features * in;
  const std::int64_t adapter_elements = rank * (in + (out_features + kLoraPanel - 1) / kLoraPanel * kLoraPanel);
  const std::int64_t copy_elements = base_elements + adapters * adapter_elements;
  constexpr std::int64_t kAllElements = std::int64_t{256} << 20;
  const std::int64_t copies = std::max<std::int64_t>(2, kAllElements / copy_elements);
  const Buffer weights =
      device()
          .allocate(static_cast<std::size_t>(copies * copy_elements) * sizeof(BFloat16), MemoryKind::device)
          .value();
  for (std::int64_t i = 0; i < copies * copy_elements; ++i) {
    weights.as<BFloat16>()[i] = to_bf16(static_cast<float>(i % 13 - 6) * 0.01F);
  }
  const std::vector<float> x(static_cast<std::size_t>(rows * in), 0.01F);
  std::vector<float> out(static_cast<std::size_t>(rows * out_features));

  std::int64_t copy = 0;
  const auto multiply = [&](const Ops& ops, Stream& on) {
    const BFloat16* at = weights.as<BFloat16>() + copy * copy_elements;
    copy = (copy + 1) % copies;
    const WeightMatrix weight{at, DType::bf16, out_features, in};
    LinearParams linear;
    linear.x = x.data();
    linear.num_tokens = rows;
    linear.in = in;
    linear.weights = {&weight, 1};
    linear.out = out.data();
    linear.out_stride = out_features;
    if (Status status = ops.linear(on, linear); !status || adapters == 0) return status;
    std::vector<LoraItem> items;
    at += base_elements;
    for (std::int64_t i = 0; i < adapters; ++i, at += adapter_elements) {
      items.push_back({.first_row = i * rows / adapters,
                       .num_rows = rows / adapters,
                       .out_features = out_features,
                       .a = at,
                       .b = at + rank * in,
                       .dtype = DType::bf16,
                       .rank = rank});
    }
    return ops.lora(
        on,
        {.x = x.data(), .num_tokens = rows, .in = in, .items = items, .out = out.data(), .out_stride = out_features});
  };
  const double flops = 2.0 * static_cast<double>(rows * (base_elements + (adapters > 0 ? adapter_elements : 0)));
  measure(state, static_cast<double>(copy_elements) * sizeof(BFloat16), flops, multiply);
}

void adapter_counts(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"out", "in", "rows", "adapters", "rank"});
  bench->UseManualTime()->Unit(benchmark::kMicrosecond)->MinTime(0.3);
  for (const std::int64_t adapters : {0, 1, 16}) bench->Args({2048, 2048, 16, adapters, 16});
  for (const std::int64_t adapters : {0, 1}) bench->Args({2048, 2048, 1, adapters, 16});
  for (const std::int64_t adapters : {0, 1, 4}) bench->Args({2048, 2048, 512, adapters, 16});
}

BENCHMARK(lora)->Apply(adapter_counts);

}  // namespace
}  // namespace pagoda::kernels::bench
