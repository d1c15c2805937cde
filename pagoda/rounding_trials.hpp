#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/types.hpp"
#include "kernels/result.hpp"
#include "pagoda/replaced_weights.hpp"
#include "pagoda/token_logits.hpp"

namespace pagoda {

/// Measures how much a model's output changes when some of its linear layers have other weights: the mean
/// Kullback-Leibler divergence from the output with its own weights, after tokens of a few texts.
class RoundingTrials {
 public:
  static constexpr std::int64_t kMaxTokens = 512;
  static constexpr std::int64_t kMaxTexts = 4;
  /// `model` must outlive this object. Uses at most kMaxTokens tokens in total, from the beginnings of at most
  /// kMaxTexts of the calibration `texts`.
  RoundingTrials(TokenLogits& model, const std::vector<TokenIds>& texts);

  /// Runs the model with its own weights. Call it first. Errors: those of TokenLogits::run; bad_file (the output is not
  /// finite).
  Status remember();
  /// Returns the divergence in nats per token. Errors: as remember, and those of TokenLogits::replace.
  Result<double> divergence_with(LinearWeights linears);

 private:
  Status run(const TokenLogits::Take& take);

  TokenLogits& model_;
  std::vector<TokenIds> texts_;
  struct Output {
    std::vector<float> logits;
    double norm = 0;  // log_sum_exp
  };
  std::vector<Output> outputs_;  // output of the model with its own weights
};

/// Result of a trial with linear layers whose bits are chosen together.
struct LayerTrial {
  std::int64_t num_weights = 0;
  double divergence = 0;  ///< divergence of the model when only these layers are rounded to the fewer bits
};

/// Chooses the trials that get `more` bits per weight; the others get `fewer`. The average is at most `target`. Takes
/// the trials with the most gain per bit first, as long as they fit.
std::vector<bool> choose_more_bits(std::span<const LayerTrial> trials, double fewer, double more, double target);

}  // namespace pagoda
