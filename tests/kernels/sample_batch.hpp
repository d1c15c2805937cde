#pragma once

/// A batch for the sampling op that owns all data its rows point to.

#include <cmath>
#include <cstdint>
#include <deque>
#include <limits>
#include <random>
#include <vector>

#include "kernels/sample.hpp"

namespace pagoda::kernels::test {

inline constexpr float kMinusInf = -std::numeric_limits<float>::infinity();

class SampleBatch {
 public:
  explicit SampleBatch(std::vector<std::vector<float>> logits) : vocab_(static_cast<std::int64_t>(logits[0].size())) {
    for (const auto& row : logits) logits_.insert(logits_.end(), row.begin(), row.end());
  }

  SampleRow& add(SampleRow row) {
    rows_.push_back(row);
    return rows_.back();
  }

  /// Keeps `values` alive as long as the batch.
  std::span<const std::int32_t> own(std::vector<std::int32_t> values) { return ids_.emplace_back(std::move(values)); }
  std::span<const float> own(std::vector<float> values) { return values_.emplace_back(std::move(values)); }
  std::span<const std::uint32_t> own(std::vector<std::uint32_t> words) { return masks_.emplace_back(std::move(words)); }

  /// Returns params that are valid until the batch changes. Clears the outputs.
  SampleParams params(std::int64_t max_top = 20) {
    outputs_.assign(rows_.size(), {});
    top_tokens_.assign(rows_.size() * max_top, -7);
    top_logprobs_.assign(rows_.size() * max_top, 7.0F);
    return {.logits = logits_.data(),
            .num_logit_rows = static_cast<std::int64_t>(logits_.size()) / vocab_,
            .vocab = vocab_,
            .rows = rows_,
            .outputs = outputs_.data(),
            .top_tokens = top_tokens_.data(),
            .top_logprobs = top_logprobs_.data(),
            .max_top = max_top};
  }

  const std::vector<SampleRow>& rows() const { return rows_; }
  const std::vector<SampleOutput>& outputs() const { return outputs_; }
  const std::vector<std::int32_t>& top_tokens() const { return top_tokens_; }
  const std::vector<float>& top_logprobs() const { return top_logprobs_; }

 private:
  std::int64_t vocab_;
  std::vector<float> logits_;
  std::vector<SampleRow> rows_;
  std::deque<std::vector<std::int32_t>> ids_;
  std::deque<std::vector<float>> values_;
  std::deque<std::vector<std::uint32_t>> masks_;
  std::vector<SampleOutput> outputs_;
  std::vector<std::int32_t> top_tokens_;
  std::vector<float> top_logprobs_;
};

/// Returns normally distributed logits; `grid` > 0 rounds them to multiples of `grid`, which makes ties.
inline std::vector<float> random_logits(std::mt19937& random, std::int64_t vocab, float spread, float grid = 0.0F) {
  std::normal_distribution<float> normal;
  std::vector<float> logits(static_cast<std::size_t>(vocab));
  for (float& x : logits) {
    x = spread * normal(random);
    if (grid > 0.0F) x = std::round(x / grid) * grid;
  }
  return logits;
}

}  // namespace pagoda::kernels::test
