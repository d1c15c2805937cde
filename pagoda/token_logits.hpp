#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "engine/config.hpp"
#include "engine/layers/linear_inputs.hpp"
#include "engine/text/tokenizer.hpp"
#include "engine/types.hpp"
#include "kernels/result.hpp"
#include "pagoda/engine_setup.hpp"
#include "pagoda/replaced_weights.hpp"

namespace pagoda {

/// A model without an engine: returns the logits after each token of a text. Not thread-safe.
class TokenLogits {
 public:
  /// Loads the model of `config` for texts of up to `max_tokens`. Only the keys of model, types, device and threads
  /// matter. Blocks. Errors: as Engine::create.
  static Result<std::unique_ptr<TokenLogits>> create(const EngineConfig& config, std::int32_t max_tokens,
                                                     const StartProgress& progress);
  ~TokenLogits();

  using Take = std::function<void(std::int32_t position, std::span<const float> logits)>;
  /// Calls `take` for each position of `tokens` from `first` on, in order, with the logits [vocab_size] after that
  /// token. `tokens`: 1 to max_tokens, each below vocab_size. `inputs`, if not null, sees the inputs of the linear
  /// layers before the head. Errors: those of ops and of `inputs`.
  Status run(const TokenIds& tokens, std::int32_t first, const Take& take, layers::LinearInputs* inputs = nullptr);

  /// Replaces weights in later runs: the named layers have `linears`, in memory that the device's ops read. Other
  /// layers have the checkpoint's weights. Errors: those of models::create_model; internal (the model has no layer of
  /// such a name).
  Status replace(LinearWeights linears);

  const text::Tokenizer& tokenizer() const;
  const std::shared_ptr<kernels::Device>& device() const;
  std::int64_t vocab_size() const;
  /// Returns the size of all weights as loaded.
  std::int64_t weight_bytes() const;

 private:
  struct State;
  explicit TokenLogits(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pagoda
