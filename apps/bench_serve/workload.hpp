#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::bench_serve {

/// What one request asks for.
struct Prompt {
  std::variant<std::string, std::vector<std::int64_t>> content;  ///< a text, or token ids
  std::int64_t output_len = 0;                                   ///< most tokens of the answer
};

/// Prompts without end.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual Prompt next() = 0;
};

/// Requests of one size, and how many of all they are.
struct MixPart {
  std::int64_t input_len = 0;
  std::int64_t output_len = 0;
  double weight = 1;
};

/// Reads "INPUT:OUTPUT:WEIGHT,INPUT:OUTPUT,..."; a weight is 1 unless it is given. Error: bad_config, param random_mix.
Result<std::vector<MixPart>> parse_mix(std::string_view text);

/// Prompts of random words, or of random tokens.
struct RandomShape {
  std::vector<MixPart> mix;
  double range_ratio = 0;       ///< lengths vary evenly from (1 - this) to (1 + this) times their own; below 1
  std::int64_t prefix_len = 0;  ///< words or tokens before those, the same in all prompts
  std::int64_t vocab_size = 0;  ///< 0: words; else token ids below this
};
std::unique_ptr<Workload> make_random_workload(const RandomShape& shape, std::uint64_t seed);

/// The prompts of a file, over and over.
struct DatasetOptions {
  bool shuffle = true;
  std::int64_t output_len = 0;  ///< of all; 0: what the file says of each
};

/// A JSON line for each prompt: {"prompt": TEXT, "output_tokens": NUMBER}; without the number 256 tokens. Errors:
/// bad_config with the line, param dataset_path.
Result<std::unique_ptr<Workload>> read_custom_dataset(const std::string& text, DatasetOptions options,
                                                      std::uint64_t seed);

/// ShareGPT's conversations: a JSON list of {"conversations": [{"value": PROMPT}, {"value": ANSWER}, ...]}. Of each the
/// first prompt is sent, and as many tokens are asked for as its answer has, four bytes to a token. Conversations of
/// fewer than two turns are left out. Error: bad_config, param dataset_path.
Result<std::unique_ptr<Workload>> read_sharegpt_dataset(const std::string& text, DatasetOptions options,
                                                        std::uint64_t seed);

}  // namespace pagoda::bench_serve
