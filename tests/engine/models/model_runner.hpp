#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/models/model_spec.hpp"
#include "kernels/device.hpp"
#include "tests/support/instruction_sets.hpp"

namespace pagoda::test {

/// Runs a model (a folder or GGUF file) over a small paged cache. Blocks are assigned in a scattered order, so that a
/// test would fail if a block table were ignored. Fails the running test on any error.
class ModelRunner {
 public:
  struct Options {
    std::int32_t block_size = 16;
    int num_threads = 1;
    DType kv_dtype = DType::f32;
    std::string isa = exact_isa();
    std::string dtype = "auto";     ///< as in weights::weight_policy
    std::string quantize = "auto";  ///< as in weights::weight_policy
  };
  using Rows = std::vector<std::vector<float>>;  ///< logits, one row per token

  ModelRunner(const std::filesystem::path& model, const Options& options);
  explicit ModelRunner(const std::filesystem::path& model) : ModelRunner(model, Options{}) {}
  ~ModelRunner();

  /// New tokens of one sequence, after the tokens that it has.
  struct Chunk {
    int sequence = 0;  ///< as returned by add_sequence
    TokenIds tokens;
  };

  int add_sequence();
  /// Runs all chunks as one batch. result[chunk][token] are the logits after that token.
  std::vector<Rows> run(const std::vector<Chunk>& chunks);
  /// Runs one sequence alone.
  Rows run(int sequence, const TokenIds& tokens) { return run({{sequence, tokens}}).front(); }

  /// Return the logits and hidden rows of some token rows of the last run.
  Rows logits(const std::vector<std::int32_t>& token_rows);
  Rows hidden(const std::vector<std::int32_t>& token_rows);

  const models::ModelSpec& spec() const;
  models::Model& model();
  kernels::Device& device();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Returns the index of the largest value; the lowest of equals.
TokenId argmax(const std::vector<float>& logits);
/// Returns log softmax at `token`.
double logprob(const std::vector<float>& logits, TokenId token);

}  // namespace pagoda::test
