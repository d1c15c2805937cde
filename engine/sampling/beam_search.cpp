#include "engine/sampling/beam_search.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

namespace pagoda {

std::int64_t beam_candidates(std::int64_t width, std::size_t num_ending_tokens) {
  return width + static_cast<std::int64_t>(num_ending_tokens);
}

BeamSearch::BeamSearch(BeamSearchParams params) : params_(std::move(params)) {
  PAGODA_ASSERT(params_.width >= 1 && params_.max_new_tokens >= 1, "a beam search needs a beam and a token to add");
  std::ranges::sort(params_.ending_tokens);
}

void BeamSearch::step(std::span<const BeamCandidate> candidates) {
  PAGODA_ASSERT(!done(), "the beam search is over");
  // In these continuations `parent` is an index into running_, and `node` is the node of the parent.
  std::vector<RunningBeam> ending, going_on;
  going_on.reserve(candidates.size());
  for (const BeamCandidate& candidate : candidates) {
    PAGODA_ASSERT(candidate.beam >= 0 && candidate.beam < static_cast<std::int64_t>(running_.size()), "no such beam");
    if (!(candidate.logprob > -std::numeric_limits<float>::infinity())) continue;
    const RunningBeam& beam = running_[candidate.beam];
    (ends(candidate.token) ? ending : going_on)
        .push_back({candidate.beam, candidate.token, beam.node,
                    beam.cumulative_logprob + static_cast<double>(candidate.logprob)});
  }
  keep_best(ending);
  keep_best(going_on);
  std::vector<RunningBeam> extended;
  std::ranges::merge(ending, going_on, std::back_inserter(extended), is_better);

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
    } else {
      beam.node = add_node(beam);
      next.push_back(beam);
    }
  }
  running_ = std::move(next);
  if (full() && (params_.early_stopping == EarlyStopping::yes || !can_improve())) running_.clear();
}

bool BeamSearch::is_better(const RunningBeam& a, const RunningBeam& b) {
  return std::tie(b.cumulative_logprob, a.parent, a.token) < std::tie(a.cumulative_logprob, b.parent, b.token);
}

void BeamSearch::keep_best(std::vector<RunningBeam>& continuations) const {
  const auto keep = std::min<std::ptrdiff_t>(std::ssize(continuations), params_.width);
  std::ranges::partial_sort(continuations, continuations.begin() + keep, is_better);
  continuations.resize(static_cast<std::size_t>(keep));
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

bool BeamSearch::is_valid() const {
  const auto num_nodes = std::ssize(nodes_);
  const auto is_node = [&](BeamNode node) { return node >= 0 && node < num_nodes; };
  for (std::ptrdiff_t node = 0; node < num_nodes; ++node) {
    const BeamNode parent = nodes_[static_cast<std::size_t>(node)].parent;
    if (parent < -1 || parent >= node) return false;
  }
  return length_ >= 0 && std::ssize(running_) <= params_.width && std::ssize(hypotheses_) <= params_.width &&
         std::ranges::all_of(running_, [&](const RunningBeam& b) { return b.node == -1 || is_node(b.node); }) &&
         std::ranges::all_of(hypotheses_, [&](const BeamHypothesis& h) { return is_node(h.node); });
}

bool BeamSearch::ends(TokenId token) const {
  return std::ranges::binary_search(params_.ending_tokens, token);
}

double BeamSearch::score(double cumulative_logprob, std::int64_t length) const {
  return cumulative_logprob / std::pow(static_cast<double>(length), params_.length_penalty);
}

/// Returns whether a running beam could still enter the full list of hypotheses.
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
