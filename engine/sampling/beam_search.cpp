#include "engine/sampling/beam_search.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace pagoda {

std::int64_t beam_candidates(std::int64_t width, std::size_t num_ending_tokens) {
  return std::max<std::int64_t>(2, 1 + static_cast<std::int64_t>(num_ending_tokens)) * width;
}

BeamSearch::BeamSearch(BeamSearchParams params) : params_(std::move(params)) {
  PAGODA_ASSERT(params_.width >= 1 && params_.max_new_tokens >= 1, "a beam search needs a beam and a token to add");
}

void BeamSearch::step(std::span<const BeamCandidate> candidates) {
  PAGODA_ASSERT(!done(), "the beam search is over");
  std::vector<RunningBeam> extended;  // parent is still an index into running_; node is the parent's
  extended.reserve(candidates.size());
  for (const BeamCandidate& candidate : candidates) {
    PAGODA_ASSERT(candidate.beam >= 0 && candidate.beam < static_cast<std::int64_t>(running_.size()), "no such beam");
    if (!(candidate.logprob > -std::numeric_limits<float>::infinity())) continue;
    const RunningBeam& beam = running_[candidate.beam];
    extended.push_back(
        {candidate.beam, candidate.token, beam.node, beam.cumulative_logprob + static_cast<double>(candidate.logprob)});
  }
  const auto keep = std::min(static_cast<std::int64_t>(extended.size()),
                             beam_candidates(params_.width, params_.ending_tokens.size()));
  std::partial_sort(
      extended.begin(), extended.begin() + keep, extended.end(), [](const RunningBeam& a, const RunningBeam& b) {
        return std::tie(b.cumulative_logprob, a.parent, a.token) < std::tie(a.cumulative_logprob, b.parent, b.token);
      });
  extended.resize(static_cast<std::size_t>(keep));

  ++length_;
  const bool at_limit = length_ >= params_.max_new_tokens;
  std::vector<RunningBeam> next;
  for (std::size_t rank = 0; rank < extended.size(); ++rank) {
    RunningBeam& beam = extended[rank];
    const bool ended = ends(beam.token);
    if (ended || at_limit) {
      if (static_cast<std::int64_t>(rank) >= params_.width) continue;
      add_hypothesis({add_node(beam), beam.cumulative_logprob, score(beam.cumulative_logprob, length_), length_,
                      ended ? FinishReason::stop : FinishReason::length});
    } else if (static_cast<std::int64_t>(next.size()) < params_.width) {
      beam.node = add_node(beam);
      next.push_back(beam);
    }
  }
  running_ = std::move(next);
  if (full() && (params_.early_stopping == EarlyStopping::yes || !can_improve())) running_.clear();
}

void BeamSearch::cut() {
  if (length_ > 0) {
    for (const RunningBeam& beam : running_) {
      const double cumulative = beam.cumulative_logprob;
      add_hypothesis({beam.node, cumulative, score(cumulative, length_), length_, FinishReason::length});
    }
  }
  running_.clear();
}

TokenIds BeamSearch::tokens(BeamNode node) const {
  TokenIds tokens;
  for (const BeamNode step : path(node)) tokens.push_back(nodes_[step].token);
  return tokens;
}

std::vector<BeamNode> BeamSearch::path(BeamNode node) const {
  std::vector<BeamNode> path;
  for (; node >= 0; node = nodes_[node].parent) path.push_back(node);
  std::reverse(path.begin(), path.end());
  return path;
}

bool BeamSearch::ends(TokenId token) const {
  return std::find(params_.ending_tokens.begin(), params_.ending_tokens.end(), token) != params_.ending_tokens.end();
}

double BeamSearch::score(double cumulative_logprob, std::int64_t length) const {
  return cumulative_logprob / std::pow(static_cast<double>(length), params_.length_penalty);
}

/// Could a running beam still enter the full list of hypotheses?
bool BeamSearch::can_improve() const {
  if (running_.empty()) return false;
  const bool at_its_longest = params_.early_stopping == EarlyStopping::never && params_.length_penalty > 0.0;
  const std::int64_t length = at_its_longest ? params_.max_new_tokens : length_;
  return score(running_.front().cumulative_logprob, length) > hypotheses_.back().score;
}

BeamNode BeamSearch::add_node(const RunningBeam& beam) {
  nodes_.push_back({beam.node, beam.token});
  return static_cast<BeamNode>(nodes_.size()) - 1;
}

void BeamSearch::add_hypothesis(const BeamHypothesis& hypothesis) {
  const auto worse = std::find_if(hypotheses_.begin(), hypotheses_.end(),
                                  [&](const BeamHypothesis& kept) { return kept.score < hypothesis.score; });
  hypotheses_.insert(worse, hypothesis);
  if (static_cast<std::int64_t>(hypotheses_.size()) > params_.width) hypotheses_.pop_back();
}

}  // namespace pagoda
