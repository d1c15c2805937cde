#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/request/generate_request.hpp"
#include "pagoda/engine.hpp"

namespace pagoda::apps {

/// A synthetic load: prompts of random token ids. Every output has exactly output_len tokens.
struct LoadShape {
  std::int64_t num_prompts = 64;
  std::int64_t input_len = 128;   ///< tokens of each prompt
  std::int64_t output_len = 128;  ///< tokens of each output
  std::int64_t concurrency = 0;   ///< largest number of live requests; 0 = no limit
  double request_rate = 0;        ///< mean number of arrivals a second, in a Poisson process; 0 = all at once
  std::uint64_t seed = 0;         ///< seed of prompts and arrivals
  /// Names of adapters, which the requests use in turn; empty: the requests use none.
  std::vector<std::string> adapters = {};
};

/// Measurements of a load, as the engine's client sees it. Times in milliseconds.
struct LoadResult {
  double seconds = 0;  ///< first submission to last terminal output
  std::int64_t completed = 0;
  std::int64_t failed = 0;
  std::string first_failure;
  std::int64_t prompt_tokens = 0;
  std::int64_t generation_tokens = 0;
  std::vector<double> ttft_ms;   ///< one for each request: submission to first token
  std::vector<double> itl_ms;    ///< one for each token after a request's first
  std::vector<double> total_ms;  ///< one for each request
  EngineStats before;
  EngineStats after;
};

/// Makes the requests of a load. Equal shape and vocabulary give equal requests.
std::vector<GenerateRequest> make_load(const LoadShape& shape, std::int64_t vocab_size);

/// Sends the load and waits for its end.
LoadResult run_load(Engine& engine, const LoadShape& shape, std::vector<GenerateRequest> requests);

/// Returns {mean, p50, p90, p99, max} of `samples`; all are 0 if there are none.
nlohmann::ordered_json summary(std::vector<double> samples);

}  // namespace pagoda::apps
