#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::bench_serve {

/// Content of one request.
struct Prompt {
  std::variant<std::string, std::vector<std::int64_t>> content;  ///< a text, or token ids
  std::int64_t output_len = 0;                                   ///< largest number of tokens of the answer
};

/// An endless sequence of prompts.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual Prompt next() = 0;
};

/// Requests of one size, and their share of all requests.
struct MixPart {
  std::int64_t input_len = 0;
  std::int64_t output_len = 0;
  double weight = 1;
};

/// Parses "INPUT:OUTPUT:WEIGHT,INPUT:OUTPUT,...". A weight is 1 by default. Error: bad_config, param random_mix.
Result<std::vector<MixPart>> parse_mix(std::string_view text);

/// Prompts of random words, or of random tokens.
struct RandomShape {
  std::vector<MixPart> mix;
  /// Lengths are drawn evenly from (1 - this) to (1 + this) times the length of the mix; below 1.
  double range_ratio = 0;
  std::int64_t prefix_len = 0;  ///< number of words or tokens before the prompt, equal in all prompts
  std::int64_t vocab_size = 0;  ///< 0: words; else token ids below this
};
std::unique_ptr<Workload> make_random_workload(const RandomShape& shape, std::uint64_t seed);

/// The prompts of a file, repeated without end.
struct DatasetOptions {
  bool shuffle = true;
  std::int64_t output_len = 0;  ///< number for all; 0: as the file has for each
};

/// Reads a file with a JSON line for each prompt: {"prompt": TEXT, "output_tokens": NUMBER}; the number is 256 by
/// default. Errors: bad_config with the line, param dataset_path.
Result<std::unique_ptr<Workload>> read_custom_dataset(const std::string& text, DatasetOptions options,
                                                      std::uint64_t seed);

/// Reads ShareGPT's conversations: a JSON list of {"conversations": [{"value": PROMPT}, {"value": ANSWER}, ...]}. Sends
/// the first prompt of each, and asks for as many tokens as its answer has, at four bytes a token. Leaves out
/// conversations of fewer than two turns. Error: bad_config, param dataset_path.
Result<std::unique_ptr<Workload>> read_sharegpt_dataset(const std::string& text, DatasetOptions options,
                                                        std::uint64_t seed);

}  // namespace pagoda::bench_serve
