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
  static constexpr std::int64_t kMaxTokens = 512;
  static constexpr std::int64_t kMaxTexts = 4;
  /// `model` must outlive this. So many tokens are looked at, the first of so many of the `texts` to calibrate with.
  RoundingTrials(TokenLogits& model, const std::vector<TokenIds>& texts);

  /// Runs the model as it is. Call it first. Errors: those of TokenLogits::run; bad_file (what it says is not finite).
  Status remember();
  /// In nats a token. Errors: likewise, and those of TokenLogits::replace.
  Result<double> divergence_with(LinearWeights linears);

 private:
  Status run(const TokenLogits::Take& take);

  TokenLogits& model_;
  std::vector<TokenIds> texts_;
  struct Said {
    std::vector<float> logits;
    double norm = 0;  // log_sum_exp
  };
  std::vector<Said> said_;  // by the model as it is
};

/// Linear layers whose bits are chosen together.
struct LayerTrial {
  std::int64_t num_weights = 0;
  double divergence = 0;  ///< of the model when these alone are rounded to the fewer bits
};

/// Which of the trials have `more` bits a weight and which `fewer`, so that there are at most `target` on average:
/// those that give the most for their bits, in turn, as long as they fit.
std::vector<bool> choose_more_bits(std::span<const LayerTrial> trials, double fewer, double more, double target);

}  // namespace pagoda
