#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "apps/adapter_flag.hpp"
#include "apps/bench_accuracy.hpp"
#include "apps/bench_load.hpp"
#include "apps/bench_serve.hpp"
#include "apps/bench_tokenizer.hpp"
#include "apps/command.hpp"
#include "apps/flag_values.hpp"
#include "apps/flags.hpp"
#include "apps/progress.hpp"
#include "pagoda/engine.hpp"

namespace pagoda::apps {
namespace {

using nlohmann::ordered_json;

/// Adds a flag with a count of at least `least`.
CLI::Option* add_count(CLI::App& app, const char* flag, std::int64_t& field, const char* help, std::int64_t least = 1) {
  constexpr std::int64_t kMost = 1 << 24;
  return add_number(app, flag, field, help, least, kMost);
}

/// Options of all benchmarks that run an engine with a load.
struct BenchOptions {
  explicit BenchOptions(CLI::App& app) : engine(app, "warn") {
    add_count(app, "--input-len", shape.input_len, "Prompt length in tokens");
    add_count(app, "--output-len", shape.output_len, "Output length in tokens");
    add_adapters_flag(app, shape.adapters,
                      "Names of adapters, of --lora-modules and --prompt-adapters, separated by commas; the requests "
                      "use them in turn");
    app.add_flag("--json", json, "Print the result as one JSON object");
  }

  EngineFlags engine;
  LoadShape shape;
  bool json = false;
};

struct ThroughputOptions : BenchOptions {
  explicit ThroughputOptions(CLI::App& app) : BenchOptions(app) {
    add_count(app, "--num-prompts", shape.num_prompts, "Requests in all");
    auto* concurrency =
        add_count(app, "--concurrency", shape.concurrency, "Most requests live at a time; 0: no limit", 0);
    add_number(app, "--request-rate", shape.request_rate, "Mean arrivals a second (Poisson); 0: all at once", 0.0)
        ->excludes(concurrency);
    add_choice(app, "--dataset", dataset, {"random"}, "random: token ids drawn by --seed");
  }

  std::string dataset = "random";
};

struct LatencyOptions : BenchOptions {
  explicit LatencyOptions(CLI::App& app) : BenchOptions(app) {
    shape.num_prompts = 8;
    add_count(app, "--batch-size", shape.num_prompts, "Requests that run together");
    add_count(app, "--num-iters", iterations, "Measured runs");
    add_count(app, "--num-iters-warmup", warmup, "Runs before that", 0);
  }

  std::int64_t iterations = 5;
  std::int64_t warmup = 1;
};

struct SamplingOptions : BenchOptions {
  explicit SamplingOptions(CLI::App& app) : BenchOptions(app) {
    shape.num_prompts = 4;
    shape.input_len = 512;
    add_count(app, "--num-prompts", shape.num_prompts, "Requests that run together");
    add_count(app, "-n,--n", n, "Sequences per request; the width of the beams");
    add_count(app, "--num-iters", iterations, "Measured runs of each kind, the fastest counts");
  }

  std::int64_t n = 4;
  std::int64_t iterations = 3;
};

void print_text(const ordered_json& object, const std::string& prefix = {}) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_object()) {
      print_text(value, prefix + key + " ");
    } else {
      std::printf("%-36s %s\n", (prefix + key).c_str(),
                  value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
    }
  }
}

int report(const ordered_json& result, bool json) {
  if (json) {
    std::printf("%s\n", result.dump().c_str());
  } else {
    print_text(result);
  }
  return kExitOk;
}

ordered_json describe(const ModelInfo& model, const LoadShape& shape) {
  ordered_json described{{"model", model.name},
                         {"architecture", model.architecture},
                         {"dtype", model.dtype},
                         {"device", model.device},
                         {"pipeline_depth", model.pipeline_depth},
                         {"block_size", model.block_size},
                         {"num_device_blocks", model.num_device_blocks},
                         {"num_prompts", shape.num_prompts},
                         {"input_len", shape.input_len},
                         {"output_len", shape.output_len}};
  if (!shape.adapters.empty()) described["adapters"] = shape.adapters;
  return described;
}

/// Returns an error if the run did not complete all its requests.
Status check_complete(const LoadResult& load) {
  if (load.failed == 0) return {};
  return fail(ErrorCode::internal,
              std::to_string(load.failed) + " requests failed, the first with: " + load.first_failure);
}

/// Starts an engine. On failure sets `code` to the exit code.
Result<std::unique_ptr<Engine>> start_engine(BenchOptions& options, int& code) {
  if (const auto problems = options.engine.finish(); !problems.empty()) {
    code = exit_with(problems);
    return fail(problems.front());
  }
  if (auto status = check_adapters(options.engine.config, options.shape.adapters); !status) {
    code = exit_with(status.error());
    return fail(std::move(status.error()));
  }
  options.shape.seed = options.engine.config.seed;
  auto engine = Engine::create(options.engine.config, options.engine.setup());
  if (!engine) code = exit_with(engine.error());
  return engine;
}

int run_throughput(ThroughputOptions& options) {
  int code = kExitOk;
  const auto engine = start_engine(options, code);
  if (!engine) return code;
  const auto model = (*engine)->model_info();
  const auto load = run_load(**engine, options.shape, make_load(options.shape, model.vocab_size));
  if (const auto status = check_complete(load); !status) return exit_with(status.error());
  const auto per_second = [&](std::int64_t count) { return static_cast<double>(count) / load.seconds; };
  auto result = describe(model, options.shape);
  result["concurrency"] = options.shape.concurrency;
  result["request_rate"] = options.shape.request_rate;
  result["seconds"] = load.seconds;
  result["requests_per_s"] = per_second(load.completed);
  result["prompt_tokens"] = load.prompt_tokens;
  result["generation_tokens"] = load.generation_tokens;
  result["prompt_tokens_per_s"] = per_second(load.prompt_tokens);
  result["generation_tokens_per_s"] = per_second(load.generation_tokens);
  result["ttft_ms"] = summary(load.ttft_ms);
  result["itl_ms"] = summary(load.itl_ms);
  result["request_ms"] = summary(load.total_ms);
  result["steps"] = load.after.steps_total - load.before.steps_total;
  result["preemptions_recompute"] = load.after.preemptions_recompute_total - load.before.preemptions_recompute_total;
  result["preemptions_swap"] = load.after.preemptions_swap_total - load.before.preemptions_swap_total;
  result["prefix_cache_hit_tokens"] = load.after.prefix_cache_hits_total - load.before.prefix_cache_hits_total;
  return report(result, options.json);
}

int run_latency(LatencyOptions& options) {
  int code = kExitOk;
  const auto engine = start_engine(options, code);
  if (!engine) return code;
  const auto model = (*engine)->model_info();
  std::vector<double> latency_ms;
  std::int64_t steps = 0;
  for (std::int64_t i = 0; i < options.warmup + options.iterations; ++i) {
    auto shape = options.shape;
    shape.seed += static_cast<std::uint64_t>(i);  // other prompts each time, so that no prefix is cached
    const auto load = run_load(**engine, shape, make_load(shape, model.vocab_size));
    if (const auto status = check_complete(load); !status) return exit_with(status.error());
    if (i < options.warmup) continue;
    latency_ms.push_back(load.seconds * 1000);
    steps += load.after.steps_total - load.before.steps_total;
  }
  auto result = describe(model, options.shape);
  result["iterations"] = options.iterations;
  result["latency_ms"] = summary(latency_ms);
  result["steps"] = steps;
  return report(result, options.json);
}

/// Returns the largest number of device blocks in use while the requests run, sampled every millisecond.
Result<std::int64_t> peak_blocks(Engine& engine, const std::vector<GenerateRequest>& requests) {
  std::atomic<bool> ended = false;
  std::vector<Result<RequestResult>> results;
  std::thread run([&] {
    results = engine.generate(requests);
    ended = true;
  });
  std::int64_t most = 0;
  while (!ended) {
    const EngineStats stats = engine.stats();
    most = std::max(most, stats.device_blocks_total - stats.device_blocks_free - stats.device_blocks_cached);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  run.join();
  for (const auto& result : results) {
    if (!result) return fail(result.error());
  }
  return most;
}

/// Returns the seconds of the fastest of several runs, with n sampled sequences for each request or a beam search of
/// width n.
Result<double> time_sampling(Engine& engine, const SamplingOptions& options, bool beams, std::int64_t vocab_size) {
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < options.iterations; ++i) {
    auto shape = options.shape;
    shape.seed += static_cast<std::uint64_t>(2 * i + (beams ? 1 : 2));  // other prompts each time: no prefix is cached
    auto requests = make_load(shape, vocab_size);
    for (auto& request : requests) {
      request.sampling.n = options.n;
      request.sampling.use_beam_search = beams;
      request.sampling.temperature = beams ? 0 : 1;
    }
    const auto load = run_load(engine, shape, std::move(requests));
    if (const auto status = check_complete(load); !status) return fail(status.error());
    best = std::min(best, load.seconds);
  }
  return best;
}

/// Compares memory: n sequences of one request against n requests. Compares time: beams of width n against n sampled
/// sequences.
int run_sampling(SamplingOptions& options) {
  int code = kExitOk;
  const auto engine = start_engine(options, code);
  if (!engine) return code;
  const auto model = (*engine)->model_info();
  auto shape = options.shape;
  shape.num_prompts = 1;
  auto together = make_load(shape, model.vocab_size);
  together.front().sampling.n = options.n;
  together.front().sampling.temperature = 1;
  shape.num_prompts = options.n;
  const auto together_blocks = peak_blocks(**engine, together);
  if (!together_blocks) return exit_with(together_blocks.error());
  const auto separate_blocks = peak_blocks(**engine, make_load(shape, model.vocab_size));
  if (!separate_blocks) return exit_with(separate_blocks.error());
  const auto sampled = time_sampling(**engine, options, false, model.vocab_size);
  if (!sampled) return exit_with(sampled.error());
  const auto beams = time_sampling(**engine, options, true, model.vocab_size);
  if (!beams) return exit_with(beams.error());

  const auto tokens = static_cast<double>(options.shape.num_prompts * options.n * options.shape.output_len);
  auto result = describe(model, options.shape);
  result["n"] = options.n;
  result["blocks_of_n_sequences"] = *together_blocks;
  result["blocks_of_n_requests"] = *separate_blocks;
  result["sampled_tokens_per_s"] = tokens / *sampled;
  result["beam_tokens_per_s"] = tokens / *beams;
  result["beam_time_over_sampled"] = *beams / *sampled;
  return report(result, options.json);
}

}  // namespace

Command add_bench(CLI::App& pagoda) {
  auto* bench = pagoda.add_subcommand("bench", "Measure an engine, or a server, with a synthetic load");
  bench->require_subcommand(1);
  auto* throughput = bench->add_subcommand("throughput", "Many requests: tokens a second, TTFT and ITL");
  auto* latency = bench->add_subcommand("latency", "One batch at a time: time to its end");
  auto* sampling = bench->add_subcommand("sampling", "Parallel sampling and beam search: KV blocks, tokens a second");
  const Command tokenizer = add_bench_tokenizer(*bench);
  const Command accuracy = add_bench_accuracy(*bench);
  const Command serve = add_bench_serve(*bench);
  const auto sampling_options = std::make_shared<SamplingOptions>(*sampling);
  const auto throughput_options = std::make_shared<ThroughputOptions>(*throughput);
  const auto latency_options = std::make_shared<LatencyOptions>(*latency);
  return {bench, [=] {
            for (const Command* command : {&tokenizer, &accuracy, &serve}) {
              if (command->app->parsed()) return command->run();
            }
            if (sampling->parsed()) return run_sampling(*sampling_options);
            return throughput->parsed() ? run_throughput(*throughput_options) : run_latency(*latency_options);
          }};
}

}  // namespace pagoda::apps
