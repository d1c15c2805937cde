#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/request/output.hpp"
#include "engine/request/sampling_params.hpp"
#include "engine/types.hpp"

namespace pagoda {

/// Returns the number of likeliest next tokens that each beam must offer: enough that `width` of them go on even if all
/// `num_ending_tokens` come first.
std::int64_t beam_candidates(std::int64_t width, std::size_t num_ending_tokens);

struct BeamSearchParams {
  std::int64_t width = 1;           ///< best_of, or n
  std::int64_t max_new_tokens = 1;  ///< max_tokens, or the number that the model's length leaves
  double length_penalty = 1.0;      ///< score = cumulative logprob / generated tokens ^ length_penalty
  EarlyStopping early_stopping = EarlyStopping::no;
  std::vector<TokenId> ending_tokens;  ///< end tokens of the model unless ignored, and stop_token_ids
};

/// A node of the tree of tokens that the search has kept. Nodes are 0, 1, 2, ... in the order of creation, so that an
/// owner can keep data for each node in a vector.
using BeamNode = std::int32_t;

/// One possible next token of one beam.
struct BeamCandidate {
  std::int32_t beam = 0;  ///< index into the running beams
  TokenId token = 0;
  float logprob = 0;  ///< logprob of the token behind the beam's tokens; -inf = impossible
};

/// A beam that goes on.
struct RunningBeam {
  std::int32_t parent = 0;  ///< beam of the step before that it extends
  TokenId token = 0;        ///< its last token
  BeamNode node = -1;       ///< -1 = the prompt alone
  double cumulative_logprob = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.parent, self.token, self.node, self.cumulative_logprob);
  }
};

/// A finished sequence.
struct BeamHypothesis {
  BeamNode node = -1;
  double cumulative_logprob = 0;
  double score = 0;
  std::int64_t length = 0;  ///< number of generated tokens, the ending token included
  FinishReason finish_reason = FinishReason::stop;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.node, self.cumulative_logprob, self.score, self.length, self.finish_reason);
  }
};

/// Beam search of one sequence group: takes tokens, and returns forks and ends. It contains no model, no memory and no
/// clock: the owner runs the beams, and forks or drops their sequences to match `running()`.
///
/// The rules are those of transformers' beam search (generation/utils.py, _beam_search), so tokens and scores are
/// equal:
///  - continuations of all beams are ranked by cumulative logprob; ties go to the lower beam, then to the lower token;
///  - the best `width` continuations that do not end go on;
///  - continuations among the first `width` that end (an ending token, or max_new_tokens) become hypotheses;
///  - the `width` hypotheses with the best scores are kept, the older first among equals;
///  - the search ends at max_new_tokens. It also ends when `width` hypotheses are kept and early_stopping is `yes`, or
///    when none of the running beams can beat the worst of these hypotheses any more. A beam is judged by its score at
///    its present length (`no`). With `never` and a positive length_penalty it is judged by its score at
///    max_new_tokens, where the penalty helps it most.
class BeamSearch {
 public:
  explicit BeamSearch(BeamSearchParams params);

  /// Returns the beams to run next: one (the prompt) before the first step, none when done.
  std::span<const RunningBeam> running() const { return running_; }

  /// Advances by one token. `candidates`: at least the beam_candidates() likeliest tokens of every running beam (or the
  /// whole vocabulary), in any order. Must not be called when done.
  void step(std::span<const BeamCandidate> candidates);

  bool done() const { return running_.empty(); }

  /// Ends the search now: the running beams become hypotheses with their present length and finish reason length.
  void cut();

  /// Returns the number of generated tokens of each running beam.
  std::int64_t length() const { return length_; }

  /// Returns the hypotheses, best first; at most `width`. Final when done.
  std::span<const BeamHypothesis> hypotheses() const { return hypotheses_; }

  /// Returns the generated tokens up to and including `node`.
  TokenIds tokens(BeamNode node) const;
  std::size_t num_nodes() const { return nodes_.size(); }
  TokenId token(BeamNode node) const { return nodes_[static_cast<std::size_t>(node)].token; }
  BeamNode parent(BeamNode node) const { return nodes_[static_cast<std::size_t>(node)].parent; }
  /// Returns the nodes from the first token to `node`.
  std::vector<BeamNode> path(BeamNode node) const;

  /// All fields except the params.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.length_, self.nodes_, self.running_, self.hypotheses_);
  }
  /// Returns whether a search that was read from bytes is valid: beams and hypotheses are paths of the tree, and not
  /// too many.
  bool is_valid() const;

 private:
  struct Node {
    BeamNode parent = -1;
    TokenId token = 0;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.parent, self.token); }
  };

  static bool is_better(const RunningBeam& a, const RunningBeam& b);
  /// Keeps the best `width` continuations, best first.
  void keep_best(std::vector<RunningBeam>& continuations) const;
  bool ends(TokenId token) const;
  bool full() const { return static_cast<std::int64_t>(hypotheses_.size()) == params_.width; }
  double score(double cumulative_logprob, std::int64_t length) const;
  bool can_improve() const;
  BeamNode add_node(const RunningBeam& beam);
  void add_hypothesis(const BeamHypothesis& hypothesis);

  BeamSearchParams params_;
  std::int64_t length_ = 0;  // number of generated tokens of each running beam
  std::vector<Node> nodes_;
  std::vector<RunningBeam> running_{RunningBeam{}};
  std::vector<BeamHypothesis> hypotheses_;
};

}  // namespace pagoda
