// Measures the output core's part of a step: 256 sequences with one token each. Texts are made and searched for stop
// strings, and log-probabilities are attached.

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "engine/output/output_core.hpp"
#include "io/model_files/model_files.hpp"

namespace pagoda::output {
namespace {

constexpr RequestId kNumRunning = 256;
constexpr int kNumSteps = 512;

const std::shared_ptr<const text::Tokenizer>& demo_tokenizer() {
  // The path is relative to the repository's root.
  static const auto made = io::load_tokenizer("examples/models/pagoda-stories").value();
  return made;
}

SharedSpec request_of(RequestId id, std::int64_t num_logprobs, bool has_stop_strings) {
  auto spec = std::make_shared<RequestSpec>();
  spec->id = id;
  spec->prompt = std::make_shared<const TokenIds>(100, 5);
  spec->sampling.max_tokens = 1 << 20;
  if (num_logprobs >= 0) spec->sampling.logprobs = num_logprobs;
  if (has_stop_strings) spec->sampling.stop = {"\n\nHuman:", "</s>", "###", "Observation:"};
  return spec;
}

StepOutputs outputs_of(int step, std::int64_t num_logprobs) {
  const auto vocab_size = demo_tokenizer()->vocab_size();
  StepOutputs outputs;
  outputs.step = static_cast<StepId>(step) + 1;
  outputs.finished_us = step * 1000;
  for (RequestId id = 1; id <= kNumRunning; ++id) {
    SequenceOutput output;
    output.request = id;
    const auto token = (id * 131 + static_cast<std::size_t>(step) * 17) % vocab_size;
    output.token = TokenReport{static_cast<TokenId>(token), -1, 1, {}};
    for (std::int64_t i = 0; i < num_logprobs; ++i) {
      const auto other = (token + static_cast<std::size_t>(i)) % vocab_size;
      output.token->top.emplace_back(static_cast<TokenId>(other), -1.0F);
    }
    outputs.outputs.push_back(std::move(output));
  }
  return outputs;
}

/// Arguments: logprobs (-1: none), whether there are four stop strings.
void process_step(benchmark::State& state) {
  OutputCore core(demo_tokenizer());
  for (RequestId id = 1; id <= kNumRunning; ++id) core.open(request_of(id, state.range(0), state.range(1) != 0));
  int step = 0;
  double max_us = 0;
  for (auto _ : state) {
    const StepOutputs outputs = outputs_of(step, state.range(0));
    const auto start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(core.process(outputs, ++step * 1000));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(took.count());
    max_us = std::max(max_us, took.count() * 1e6);
  }
  state.counters["max_us"] = max_us;
}
BENCHMARK(process_step)
    ->ArgsProduct({{-1, 0, 5, 20}, {0, 1}})
    ->ArgNames({"logprobs", "stops"})
    ->UseManualTime()
    ->Iterations(kNumSteps)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pagoda::output
