#include "apps/bench_tokenizer.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "apps/flag_values.hpp"
#include "apps/model_location.hpp"
#include "io/model_files/model_files.hpp"

namespace pagoda::apps {
namespace {

struct TokenizerBenchOptions {
  std::string model;
  std::int64_t iterations = 5;
  bool json = false;
};

/// Returns the seconds of the fastest of several runs.
template <class Run>
double fastest(std::int64_t iterations, Run run) {
  double best = std::numeric_limits<double>::infinity();
  for (std::int64_t i = 0; i < iterations; ++i) {
    const auto start = std::chrono::steady_clock::now();
    run();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

int run_tokenizer_bench(TokenizerBenchOptions options) {
  if (options.model.empty()) return exit_with(Error{ErrorCode::bad_config, "--model is required", "model"});
  if (const Status status = locate_model(options.model); !status) return exit_with(status.error());
  const auto tokenizer = io::load_tokenizer(options.model);
  if (!tokenizer) return exit_with(tokenizer.error());
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  Result<TokenIds> ids;
  const double encode_s = fastest(options.iterations, [&] { ids = (*tokenizer)->encode(text, false); });
  if (!ids) return exit_with(ids.error());
  const double decode_s = fastest(options.iterations, [&] { (*tokenizer)->decode(*ids, false); });
  const auto megabytes = static_cast<double>(text.size()) / 1e6;
  const nlohmann::ordered_json result = {{"bytes", text.size()},
                                         {"tokens", ids->size()},
                                         {"encode_mb_per_s", megabytes / encode_s},
                                         {"decode_mb_per_s", megabytes / decode_s}};
  if (options.json) {
    std::printf("%s\n", result.dump().c_str());
  } else {
    for (const auto& [key, value] : result.items()) std::printf("%-20s %s\n", key.c_str(), value.dump().c_str());
  }
  return kExitOk;
}

}  // namespace

Command add_bench_tokenizer(CLI::App& bench) {
  auto* app = bench.add_subcommand("tokenizer", "Encode and decode the text on standard input with one thread");
  const auto options = std::make_shared<TokenizerBenchOptions>();
  app->add_option("--model", options->model, "Model folder or GGUF file; only its tokenizer is read");
  add_number(*app, "--num-iters", options->iterations, "Runs of each, the fastest counts", std::int64_t{1});
  app->add_flag("--json", options->json, "Print the result as one JSON object");
  return {app, [options] { return run_tokenizer_bench(*options); }};
}

}  // namespace pagoda::apps
