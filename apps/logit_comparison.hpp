#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/types.hpp"

namespace pagoda::apps {

/// Compares the distributions of a model with those of a reference, token by token, in the measures of
/// llama-perplexity.
class LogitComparison {
 public:
  /// Adds the logits of both models [vocab_size] before the token `next` of the text.
  void add(std::span<const float> logits, std::span<const float> reference, TokenId next);
  /// Adds the model's logits when there is no reference.
  void add(std::span<const float> logits, TokenId next);

  struct Summary {
    std::int64_t num_tokens = 0;
    double perplexity = 0;  ///< exp of the mean negative log-probability of the text's tokens
    // The fields below are set only with a reference.
    double reference_perplexity = 0;
    double kld_mean = 0;  ///< Kullback-Leibler divergence of the model's distribution from the reference's, in nats
    double kld_median = 0;
    double kld_p99 = 0;
    double kld_max = 0;
    double same_top = 0;  ///< share of positions with the same most likely token
    /// Root of the mean square of the difference of the probabilities of the text's token.
    double rms_delta_p = 0;
  };
  /// Returns the summary of all additions; zeros if there were none.
  Summary summary() const;

 private:
  double nll_ = 0;
  double reference_nll_ = 0;
  double squared_delta_p_ = 0;
  std::int64_t num_tokens_ = 0;
  std::int64_t num_same_top_ = 0;
  std::vector<double> kld_;
};

}  // namespace pagoda::apps
