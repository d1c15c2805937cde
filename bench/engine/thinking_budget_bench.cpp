#include <vector>

#include <benchmark/benchmark.h>

#include "engine/request/thinking_budget.hpp"

namespace pagoda {
namespace {

/// Asks whether a thinking budget is used up, in each step of a sequence that has used it up and goes on with its
/// answer. Argument: the budget.
void ask_thinking_budget(benchmark::State& state) {
  const std::int64_t budget = state.range(0);
  const ThinkingBudget thinking({.begin = {7}, .end = {11}, .close = {9, 11}}, budget, TokenIds{1, 2, 7});
  TokenIds output(static_cast<std::size_t>(budget), 100);
  output.push_back(9);
  output.push_back(11);
  ThinkingProgress progress;
  for (auto _ : state) {
    output.push_back(50);
    benchmark::DoNotOptimize(thinking.may_be_spent(output, std::ssize(output), progress));
  }
}
BENCHMARK(ask_thinking_budget)->Arg(1000)->Arg(8192)->Arg(32'768)->Iterations(10'000);

}  // namespace
}  // namespace pagoda
