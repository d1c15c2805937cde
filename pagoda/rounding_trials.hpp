#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/types.hpp"
#include "kernels/result.hpp"
#include "pagoda/replaced_weights.hpp"
#include "pagoda/token_logits.hpp"

namespace pagoda {

/// What a model's answers lose when some of its linear layers have other weights: the mean Kullback-Leibler divergence
/// from what it said with its own, behind tokens of a few texts.
class RoundingTrials {
 public:
  /// `model` must outlive this. `texts` are those to calibrate with; so many tokens of them are looked at.
  static constexpr std::int64_t kMostTokens = 512;
  RoundingTrials(TokenLogits& model, const std::vector<TokenIds>& texts);

  /// Runs the model as it is. Call it first. Errors: those of TokenLogits::run.
  Status remember();
  /// In nats a token. Errors: likewise; bad_file (it is not finite).
  Result<double> divergence_with(LinearWeights linears);

 private:
  Status run(const TokenLogits::Take& take);

  TokenLogits& model_;
  std::vector<TokenIds> texts_;
  std::vector<std::vector<float>> logits_;  // of the model as it is
};

/// Linear layers that have the same number of bits.
struct LayerTrial {
  std::int64_t num_weights = 0;
  double divergence = 0;  ///< of the model when these alone are rounded to the fewer bits
};

/// Which of the trials have `more` bits a weight and which `fewer`, so that there are at most `target` on average:
/// those that give the most for their bits, in turn, as long as they fit.
std::vector<bool> choose_more_bits(std::span<const LayerTrial> trials, double fewer, double more, double target);

}  // namespace pagoda
