#include "kernels/cpu/sample.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/sample_passes.hpp"
#include "kernels/cpu/sample_select.hpp"
#include "kernels/ops_check.hpp"
#include "kernels/random.hpp"

namespace pagoda::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
/// Lower bound of all logits except -inf.
constexpr float kMinFiniteLogit = -std::numeric_limits<float>::max();

/// Logits of a row and their maximum.
struct Row {
  const float* logits = nullptr;
  float max = -kInf;
};

/// Returns a lower bound of the logits that have at least this weight, with a margin larger than the rounding error of
/// a weight.
float logit_bound(double weight, WeightScale scale) {
  constexpr double kSlack = 1e-3;
  const double distance = (std::log(weight) - kSlack) / static_cast<double>(scale.inverse_temperature);
  return static_cast<float>(static_cast<double>(scale.max) + distance) - std::abs(scale.max) * 1e-6F;
}

/// Returns the first index whose cumulative weight exceeds `rest`, or, if rounding leaves no such index, the last index
/// with a weight.
std::int64_t pick(std::span<const float> weights, double rest) {
  std::int64_t chosen = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double weight = static_cast<double>(weights[i]);
    if (weight == 0) continue;
    chosen = static_cast<std::int64_t>(i);
    if (rest < weight) break;
    rest -= weight;
  }
  return chosen;
}

/// Samples rows one after another. Its scratch grows once, to the size of the vocabulary.
class RowSampler {
 public:
  SampleProblem sample(const SamplePasses& passes, const SampleParams& params, std::size_t index);

 private:
  void copy_allowed(const float* raw, std::span<const std::uint32_t> mask);
  bool ban_bad_words(const SampleRow& row);
  SampleProblem process(const float* raw, const SampleRow& row);
  SampleProblem penalise(const SampleRow& row);
  SampleProblem measure(const float* logits, Row& out);
  std::int32_t argmax(const Row& row) const;
  std::int32_t draw(const Row& logits, const SampleRow& row);
  std::int32_t draw_from_all(const Row& logits, WeightScale scale, double uniform);
  std::int32_t draw_from_filtered(const Row& logits, const SampleRow& row, WeightScale scale, double uniform);
  void collect_nucleus(const Row& logits, WeightScale scale, double top_p);
  void weigh_candidates(WeightScale scale);
  double candidate_mass() const;
  double candidate_block_mass(std::int64_t start) const;
  std::int32_t draw_from_candidates(double uniform) const;
  double total_weight(const Row& logits, WeightScale scale);
  void report(const Row& logits, const SampleRow& row, const SampleParams& params, std::size_t index);

  bool in_vocab(std::int32_t token) const { return token >= 0 && token < vocab_; }

  const SamplePasses* passes_ = nullptr;
  std::int64_t vocab_ = 0;
  std::vector<float> processed_;
  std::vector<float> block_maxima_;  // maxima of the logits that measure() received last
  std::vector<double> block_sums_;
  std::vector<std::int32_t> output_counts_;  // per token; all zero between rows
  std::vector<std::uint8_t> seen_;           // per token; all zero between rows
  std::vector<std::int32_t> seen_tokens_;
  Candidates candidates_;
};

SampleProblem RowSampler::sample(const SamplePasses& passes, const SampleParams& params, std::size_t index) {
  const SampleRow& row = params.rows[index];
  const float* raw = params.logits + row.logits_row * params.vocab;
  passes_ = &passes;
  vocab_ = params.vocab;
  block_maxima_.resize(static_cast<std::size_t>(sample_blocks(vocab_)));
  block_sums_.resize(block_maxima_.size());

  Row current{raw};
  if (changes_logits(row)) {
    if (const SampleProblem problem = process(raw, row); problem != SampleProblem::none) return problem;
    current.logits = processed_.data();
  }
  if (const SampleProblem problem = measure(current.logits, current); problem != SampleProblem::none) return problem;

  SampleOutput& out = params.outputs[index];
  if (row.forced_token >= 0) {
    if (!in_vocab(row.forced_token)) return SampleProblem::token_out_of_range;
    out.token = row.forced_token;
  } else if (row.temperature == 0.0F) {
    out.token = argmax(current);
  } else {
    out.token = draw(current, row);
  }
  if (row.num_logprobs < 0) return SampleProblem::none;
  const auto is_known = [this](std::int32_t token) { return in_vocab(token); };
  if (!std::all_of(row.logprob_tokens.begin(), row.logprob_tokens.end(), is_known)) {
    return SampleProblem::token_out_of_range;
  }

  if (!row.processed_logprobs && current.logits != raw) {
    if (const SampleProblem problem = measure(raw, current); problem != SampleProblem::none) return problem;
  }
  report(current, row, params, index);
  return SampleProblem::none;
}

/// processed_ = the raw logits; -inf for tokens that the mask does not allow. An empty mask allows all tokens.
void RowSampler::copy_allowed(const float* raw, std::span<const std::uint32_t> mask) {
  if (mask.empty()) {
    processed_.assign(raw, raw + vocab_);
    return;
  }
  constexpr std::int64_t kWordTokens = 32;
  processed_.resize(static_cast<std::size_t>(vocab_));
  for (std::int64_t first = 0; first < vocab_; first += kWordTokens) {
    const std::uint32_t word = mask[static_cast<std::size_t>(first / kWordTokens)];
    const std::int64_t count = std::min(kWordTokens, vocab_ - first);
    float* to = processed_.data() + first;
    if (word == 0) {
      std::fill_n(to, count, -kInf);
      continue;
    }
    for (std::int64_t i = 0; i < count; ++i) to[i] = (word >> i & 1U) != 0 ? raw[first + i] : -kInf;
  }
}

/// Bans the last token of each bad word whose other tokens are the end of the output. Returns whether all banned tokens
/// are in the vocabulary.
bool RowSampler::ban_bad_words(const SampleRow& row) {
  std::int32_t begin = 0;
  for (const std::int32_t end : row.bad_word_ends) {
    const auto before =
        row.bad_word_tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin - 1));
    const std::int32_t last = row.bad_word_tokens[static_cast<std::size_t>(end - 1)];
    begin = end;
    if (before.size() > row.last_tokens.size()) continue;
    const auto output = row.last_tokens.last(before.size());
    if (!std::equal(before.begin(), before.end(), output.begin())) continue;
    if (!in_vocab(last)) return false;
    processed_[last] = -kInf;
  }
  return true;
}

/// processed_ = the raw logits after mask, bans, bias and penalties.
SampleProblem RowSampler::process(const float* raw, const SampleRow& row) {
  copy_allowed(raw, row.allowed_tokens);
  for (const std::int32_t token : row.banned_tokens) {
    if (!in_vocab(token)) return SampleProblem::token_out_of_range;
    processed_[token] = -kInf;
  }
  if (!ban_bad_words(row)) return SampleProblem::token_out_of_range;
  for (std::size_t i = 0; i < row.bias_tokens.size(); ++i) {
    if (!in_vocab(row.bias_tokens[i])) return SampleProblem::token_out_of_range;
    processed_[row.bias_tokens[i]] += row.bias_values[i];
  }
  return has_penalty(row) ? penalise(row) : SampleProblem::none;
}

SampleProblem RowSampler::penalise(const SampleRow& row) {
  output_counts_.resize(static_cast<std::size_t>(vocab_));
  seen_.resize(static_cast<std::size_t>(vocab_));
  seen_tokens_.clear();
  SampleProblem problem = SampleProblem::none;
  const auto see = [&](std::int32_t token, std::int32_t count) {
    if (!in_vocab(token)) {
      problem = SampleProblem::token_out_of_range;
      return;
    }
    if (seen_[token] == 0) seen_tokens_.push_back(token);
    seen_[token] = 1;
    output_counts_[token] += count;
  };
  for (const std::int32_t token : row.output_tokens) see(token, 1);
  if (row.repetition_penalty != 1.0F) {
    for (const std::int32_t token : row.prompt_tokens) see(token, 0);
  }
  for (const std::int32_t token : seen_tokens_) {
    float x = processed_[token];
    x = x > 0.0F ? x / row.repetition_penalty : x * row.repetition_penalty;
    x -= row.frequency_penalty * static_cast<float>(output_counts_[token]);
    if (output_counts_[token] > 0) x -= row.presence_penalty;
    // A tiny repetition penalty must not turn a finite logit into the +inf that marks a broken row.
    if (x == kInf && processed_[token] < kInf) x = std::numeric_limits<float>::max();
    processed_[token] = x;
    output_counts_[token] = 0;
    seen_[token] = 0;
  }
  return problem;
}

/// Fills block_maxima_ and `out`.
SampleProblem RowSampler::measure(const float* logits, Row& out) {
  if (!passes_->block_maxima(logits, vocab_, block_maxima_.data())) return SampleProblem::not_finite;
  out = {logits, *std::max_element(block_maxima_.begin(), block_maxima_.end())};
  return out.max == -kInf ? SampleProblem::nothing_left : SampleProblem::none;
}

std::int32_t RowSampler::argmax(const Row& row) const {
  const auto block = std::find(block_maxima_.begin(), block_maxima_.end(), row.max) - block_maxima_.begin();
  const float* first = row.logits + block * kSampleBlock;
  return static_cast<std::int32_t>(std::find(first, row.logits + vocab_, row.max) - row.logits);
}

std::int32_t RowSampler::draw(const Row& logits, const SampleRow& row) {
  // A subnormal temperature has an infinite inverse, which would turn the maximum's 0 into NaN.
  const float inverse = std::min(1.0F / row.temperature, std::numeric_limits<float>::max());
  const WeightScale scale{logits.max, inverse};
  const double uniform = sampling_uniform(row.seed, row.sequence_index, row.position);
  const bool filtered = (row.top_k > 0 && row.top_k < vocab_) || row.top_p < 1.0F || row.min_p > 0.0F;
  return filtered ? draw_from_filtered(logits, row, scale, uniform) : draw_from_all(logits, scale, uniform);
}

double RowSampler::total_weight(const Row& logits, WeightScale scale) {
  passes_->block_weight_sums(logits.logits, vocab_, scale, block_sums_.data());
  double total = 0;
  for (const double sum : block_sums_) total += sum;
  return total;
}

/// Returns the first token whose cumulative weight exceeds uniform * total: finds its block, then the token in the
/// block.
std::int32_t RowSampler::draw_from_all(const Row& logits, WeightScale scale, double uniform) {
  double rest = uniform * total_weight(logits, scale);
  std::size_t chosen = 0;  // the last block with weight, as in pick()
  for (std::size_t block = 0; block < block_sums_.size(); ++block) {
    if (block_sums_[block] == 0) continue;
    chosen = block;
    if (rest < block_sums_[block]) break;
    rest -= block_sums_[block];
  }
  const std::int64_t start = static_cast<std::int64_t>(chosen) * kSampleBlock;
  const std::int64_t count = std::min(kSampleBlock, vocab_ - start);
  std::array<float, kSampleBlock> weights;
  passes_->weights(logits.logits + start, count, scale, weights.data());
  return static_cast<std::int32_t>(start + pick({weights.data(), static_cast<std::size_t>(count)}, rest));
}

/// Collects a superset of the kept tokens by a cheap bound, then applies the filters exactly. Each filter keeps a
/// prefix of the descending order, so min_p and top_k commute and their bounds combine.
std::int32_t RowSampler::draw_from_filtered(const Row& logits, const SampleRow& row, WeightScale scale,
                                            double uniform) {
  const bool limit_k = row.top_k > 0 && row.top_k < vocab_;
  const bool limit_min = row.min_p > 0.0F;
  const auto top_p = static_cast<double>(row.top_p);

  if (!limit_k && !limit_min) {
    collect_nucleus(logits, scale, top_p);
    return draw_from_candidates(uniform);
  }
  float bound = kMinFiniteLogit;
  if (limit_k) bound = std::max(bound, top_k_bound(logits.logits, vocab_, block_maxima_, row.top_k));
  if (limit_min) bound = std::max(bound, logit_bound(static_cast<double>(row.min_p), scale));
  collect_at_least(logits.logits, vocab_, block_maxima_, bound, candidates_);
  if (limit_k) keep_top_k(candidates_, row.top_k);
  weigh_candidates(scale);
  if (limit_min) keep_weights_at_least(candidates_, row.min_p);
  if (top_p < 1.0) keep_top_p(candidates_, top_p * candidate_mass());
  return draw_from_candidates(uniform);
}

/// candidates_ = the tokens that top_p alone keeps of the whole vocabulary.
void RowSampler::collect_nucleus(const Row& logits, WeightScale scale, double top_p) {
  constexpr double kMargin = 1e-9;  // larger than the rounding error of sums
  const double total = total_weight(logits, scale);
  const double left_out = (1.0 - top_p) * total;
  // Tokens lighter than left_out / vocab weigh less than left_out together, so the second bound always suffices. The
  // first bound keeps far fewer tokens and suffices for typical, peaked rows.
  for (const double weight_bound : {0.01 * left_out, left_out / static_cast<double>(vocab_)}) {
    collect_at_least(logits.logits, vocab_, block_maxima_, std::max(kMinFiniteLogit, logit_bound(weight_bound, scale)),
                     candidates_);
    weigh_candidates(scale);
    if (candidate_mass() >= top_p * total * (1.0 + kMargin)) break;
  }
  keep_top_p(candidates_, top_p * total);
}

void RowSampler::weigh_candidates(WeightScale scale) {
  candidates_.weights.resize(candidates_.ids.size());
  passes_->weights(candidates_.logits.data(), candidates_.size(), scale, candidates_.weights.data());
}

double RowSampler::candidate_mass() const {
  double mass = 0;
  for (std::int64_t start = 0; start < candidates_.size(); start += kSampleBlock) mass += candidate_block_mass(start);
  return mass;
}

/// Adds four partial sums, because with a single sum each addition would wait for the previous one.
double RowSampler::candidate_block_mass(std::int64_t start) const {
  const std::int64_t end = std::min(start + kSampleBlock, candidates_.size());
  std::array<double, 4> partial{};
  std::int64_t i = start;
  for (; i + 4 <= end; i += 4) {
    for (std::int64_t lane = 0; lane < 4; ++lane) partial[lane] += static_cast<double>(candidates_.weights[i + lane]);
  }
  for (; i < end; ++i) partial[0] += static_cast<double>(candidates_.weights[i]);
  return (partial[0] + partial[1]) + (partial[2] + partial[3]);
}

/// Draws as draw_from_all does, but from the candidates.
std::int32_t RowSampler::draw_from_candidates(double uniform) const {
  double rest = uniform * candidate_mass();
  std::int64_t chosen = 0;
  for (std::int64_t start = 0; start < candidates_.size(); start += kSampleBlock) {
    const double mass = candidate_block_mass(start);
    if (mass == 0) continue;
    chosen = start;
    if (rest < mass) break;
    rest -= mass;
  }
  const std::int64_t end = std::min(chosen + kSampleBlock, candidates_.size());
  return candidates_.ids[chosen + pick({candidates_.weights.data() + chosen, candidates_.weights.data() + end}, rest)];
}

/// Writes log-probability and rank of the sampled token, and the top k tokens. block_maxima_ must hold the maxima of
/// `logits`.
void RowSampler::report(const Row& logits, const SampleRow& row, const SampleParams& params, std::size_t index) {
  SampleOutput& out = params.outputs[index];
  const double log_total =
      static_cast<double>(logits.max) + std::log(total_weight(logits, WeightScale{logits.max, 1.0F}));
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - log_total); };
  const float chosen = logits.logits[out.token];
  out.logprob = logprob(chosen);
  out.rank = static_cast<std::int32_t>(1 + passes_->count_greater(logits.logits, vocab_, chosen));
  out.num_top = static_cast<std::int32_t>(std::min<std::int64_t>(row.num_logprobs, vocab_));
  if (out.num_top == 0) return;
  const std::size_t first = index * static_cast<std::size_t>(params.max_top);
  if (!row.logprob_tokens.empty()) {
    for (std::size_t i = 0; i < row.logprob_tokens.size(); ++i) {
      params.top_tokens[first + i] = row.logprob_tokens[i];
      params.top_logprobs[first + i] = logprob(logits.logits[row.logprob_tokens[i]]);
    }
    return;
  }

  collect_at_least(logits.logits, vocab_, block_maxima_, top_k_bound(logits.logits, vocab_, block_maxima_, out.num_top),
                   candidates_);
  keep_top_k(candidates_, out.num_top);
  std::vector<std::int32_t> order(static_cast<std::size_t>(out.num_top));
  for (std::int32_t i = 0; i < out.num_top; ++i) order[i] = i;
  // The sort is stable, so among equal logits the lower id comes first.
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return candidates_.logits[a] > candidates_.logits[b]; });
  for (std::int32_t i = 0; i < out.num_top; ++i) {
    params.top_tokens[first + i] = candidates_.ids[order[i]];
    params.top_logprobs[first + i] = logprob(candidates_.logits[order[i]]);
  }
}

}  // namespace

Status cpu_sample(ThreadPool& pool, const SampleParams& params) {
  if (Status status = check(params); !status) return status;
  const SamplePasses& passes = sample_passes();
  pool.parallel_for(static_cast<std::int64_t>(params.rows.size()), [&](std::int64_t task) {
    static thread_local RowSampler sampler;  // keeps scratch of the size of the vocabulary until the thread ends
    const auto index = static_cast<std::size_t>(task);
    SampleOutput& out = params.outputs[index];
    out = {};
    try {
      const SampleProblem problem = sampler.sample(passes, params, index);
      if (problem != SampleProblem::none) out = {.token = -1, .problem = problem};
    } catch (...) {  // out of memory: the scratch is in a state that the next row does not expect
      sampler = {};
      throw;
    }
  });
  return {};
}

}  // namespace pagoda::kernels
