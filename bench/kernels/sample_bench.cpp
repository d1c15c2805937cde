#include <cstdint>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "kernels/cpu/sample.hpp"

// Measures the sampling op on one thread, by vocabulary and batch. Arguments: vocabulary, rows. The counter per_row is
// the time of one row.
//
// Logits are like the logits of a language model: a normal distribution, and 50 tokens above it whose logits fall
// evenly. Flat logits (only the normal distribution) are the worst case for top_p, since most of the vocabulary stays.
namespace pagoda::kernels {
namespace {

enum class Shape : std::uint8_t { peaked, flat };

std::vector<float> make_logits(std::int64_t vocab, std::int64_t rows, Shape shape) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> logits(static_cast<std::size_t>(vocab * rows));
  for (float& x : logits) x = 2.0F * normal(random);
  if (shape == Shape::flat) return logits;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int i = 0; i < 50; ++i) {
      logits[row * vocab + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(vocab))] =
          18.0F - 0.2F * static_cast<float>(i);
    }
  }
  return logits;
}

void sample(benchmark::State& state, const SampleRow& settings, Shape shape) {
  const std::int64_t vocab = state.range(0);
  const std::int64_t num_rows = state.range(1);
  constexpr std::int64_t kMaxTop = 20;
  const std::vector<float> logits = make_logits(vocab, num_rows, shape);
  const std::vector<std::int32_t> prompt(512, 11);
  std::vector<SampleRow> rows(static_cast<std::size_t>(num_rows), settings);
  std::vector<SampleOutput> outputs(rows.size());
  std::vector<std::int32_t> top_tokens(rows.size() * kMaxTop);
  std::vector<float> top_logprobs(rows.size() * kMaxTop);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].logits_row = static_cast<std::int32_t>(i);
    rows[i].seed = i;
    rows[i].prompt_tokens = prompt;
  }
  const SampleParams params{.logits = logits.data(),
                            .num_logit_rows = num_rows,
                            .vocab = vocab,
                            .rows = rows,
                            .outputs = outputs.data(),
                            .top_tokens = top_tokens.data(),
                            .top_logprobs = top_logprobs.data(),
                            .max_top = kMaxTop};
  ThreadPool pool(1);
  for (auto _ : state) {
    for (SampleRow& row : rows) ++row.position;
    if (!cpu_sample(pool, params)) state.SkipWithError("sampling failed");
  }
  state.counters["per_row"] = benchmark::Counter(static_cast<double>(state.iterations() * num_rows),
                                                 benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

SampleRow settings(float temperature, std::int32_t top_k, float top_p, std::int32_t num_logprobs = -1) {
  return {.temperature = temperature, .top_k = top_k, .top_p = top_p, .num_logprobs = num_logprobs};
}

SampleRow penalised() {
  SampleRow row = settings(1.0F, 0, 0.9F);
  row.repetition_penalty = 1.1F;
  return row;
}

const auto kSizes = [](benchmark::internal::Benchmark* b) {
  b->ArgNames({"vocab", "rows"})->ArgsProduct({{32000, 151936}, {1, 16, 256}})->Unit(benchmark::kMicrosecond);
};

BENCHMARK_CAPTURE(sample, greedy, settings(0.0F, 0, 1.0F), Shape::peaked)->Apply(kSizes);
BENCHMARK_CAPTURE(sample, temperature, settings(0.8F, 0, 1.0F), Shape::peaked)->Apply(kSizes);
BENCHMARK_CAPTURE(sample, top_p, settings(1.0F, 0, 0.9F), Shape::peaked)->Apply(kSizes);
BENCHMARK_CAPTURE(sample, top_p_flat, settings(1.0F, 0, 0.9F), Shape::flat)->Apply(kSizes);
BENCHMARK_CAPTURE(sample, top_k_top_p, settings(0.8F, 40, 0.95F), Shape::peaked)->Apply(kSizes);
BENCHMARK_CAPTURE(sample, greedy_logprobs_5, settings(0.0F, 0, 1.0F, 5), Shape::peaked)->Apply(kSizes);
BENCHMARK_CAPTURE(sample, top_p_penalised, penalised(), Shape::peaked)->Apply(kSizes);

}  // namespace
}  // namespace pagoda::kernels
