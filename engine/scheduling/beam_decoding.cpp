// Beam search: how the beams of a group advance, fork, shrink to a trunk, grow again, and end.

#include <algorithm>
#include <memory>
#include <utility>

#include "engine/request/ending_tokens.hpp"
#include "engine/sampling/beam_search.hpp"
#include "engine/scheduling/decoding.hpp"
#include "engine/scheduling/sequence_group.hpp"
#include "kernels/result.hpp"

namespace pagoda::scheduling {
namespace {

using Candidates = std::vector<std::pair<TokenId, float>>;

/// Returns the report of a kept token: the candidate of its beam with this token.
TokenReport report_of(TokenId token, const Candidates& candidates, std::size_t num_top) {
  const auto found = std::ranges::find(candidates, token, &std::pair<TokenId, float>::first);
  PAGODA_ASSERT(found != candidates.end(), "a beam continues with one of its candidates");
  const auto likelier =
      std::ranges::count_if(candidates, [&](const auto& other) { return other.second > found->second; });
  num_top = std::min(num_top, candidates.size());
  return {token,
          found->second,
          static_cast<std::int32_t>(1 + likelier),
          {candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(num_top)}};
}

/// Returns the tokens that all beams start with, without the last token of any beam: a beam must have a token left to
/// run.
TokenIds common_beginning(const BeamSearch& search) {
  const auto running = search.running();
  TokenIds common = search.tokens(running.front().node);
  if (!common.empty()) common.pop_back();
  for (const RunningBeam& beam : running.subspan(1)) {
    const TokenIds tokens = search.tokens(beam.node);
    const auto differs = std::ranges::mismatch(common, tokens).in1;
    common.erase(differs, common.end());
  }
  return common;
}

BeamSearchParams params_of(const SamplingParams& sampling, const EndingTokens& ends) {
  BeamSearchParams params;
  params.width = sampling.num_sequences();
  params.max_new_tokens = sampling.max_tokens;
  params.length_penalty = sampling.length_penalty;
  params.early_stopping = sampling.early_stopping;
  params.ending_tokens = ends.all();
  return params;
}

/// The sequences of the group are its running beams, in their order. No beam runs again before all of them have their
/// results. The group starts as one sequence, the trunk: the prompt alone. After a preemption by recompute it is one
/// sequence again: the tokens that all beams have in common. When these are computed, the trunk forks into the beams. A
/// beam whose candidates were known before the preemption waits for the others. Its own tokens run together with the
/// tokens that follow them.
class Beams final : public Decoding {
 public:
  Beams(const RequestSpec& spec, std::span<const TokenId> eos_token_ids, std::unique_ptr<Constraint> constraint)
      : Decoding(std::move(constraint), nullptr),
        ends_(spec.sampling, eos_token_ids),
        search_(params_of(spec.sampling, ends_)),
        candidates_(1) {}

  /// Beams begin again, since none of their tokens were sent.
  void begin(SequenceGroup& group) const override {
    const auto& progress = group.spec->progress;
    if (progress && progress->has_ended()) restore_sequences(group);
  }
  bool may_plan_ahead(const SequenceGroup&) const override { return false; }
  /// Returns 0 where the trunk of a preempted search ends.
  std::int32_t num_samples_at_end(const SequenceGroup& group) const override {
    return group.forked || search_.length() == 0 ? 1 : 0;
  }
  /// The group may always grow to its width.
  std::int32_t num_rows(const SequenceGroup& group) const override { return group.num_samples(); }
  bool chooses_tokens() const override { return true; }
  bool has_independent_sequences() const override { return false; }

  bool on_result(SequenceGroup& group, std::size_t index, std::span<const TokenReport> samples,
                 GroupEffects& effects) override {
    Sequence& sequence = group.sequences[index];
    if (samples.empty()) {
      const bool trunk_is_computed = !group.forked && sequence.num_computed_tokens == group.length(sequence);
      if (trunk_is_computed) regrow(group, effects);
      return false;
    }
    --sequence.num_placeholders;
    candidates_[index] = samples.front().top;
    sequence.waits = true;
    if (std::ranges::any_of(candidates_, &Candidates::empty)) return false;
    return advance(group, effects);
  }

  void on_kv_lost(SequenceGroup& group, std::vector<SequenceId>& gone) override {
    // The common tokens of the beams are computed first: each beam by itself would take more memory than all had
    // together.
    for (std::size_t i = 1; i < group.sequences.size(); ++i) gone.push_back(group.sequences[i].id);
    group.sequences.erase(group.sequences.begin() + 1, group.sequences.end());
    Sequence& trunk = group.sequences.front();
    replace_output(trunk, common_beginning(search_));
    trunk.num_placeholders = 0;
    trunk.waits = false;
    group.forked = false;
  }

  bool cut(SequenceGroup& group, std::size_t, GroupEffects& effects) override {
    search_.cut();
    emit_hypotheses(group, effects);
    return true;
  }

 private:
  void save_strategy(Encoder& out) const override {
    out.put(search_);
    out.put(candidates_);
    out.put(reports_);
  }
  bool load_strategy(Decoder& in, const SequenceGroup& group) override {
    if (!in.get(search_) || !in.get(candidates_) || !in.get(reports_)) return false;
    // A group does not outlive its search.
    if (!search_.is_valid() || search_.done()) return false;
    const std::size_t num_sequences = group.forked ? search_.running().size() : 1;
    return group.sequences.size() == num_sequences && candidates_.size() == search_.running().size() &&
           reports_.size() == search_.num_nodes();
  }

  void replace_output(Sequence& sequence, TokenIds tokens) const {
    if (tokens == sequence.output) return;
    sequence.output = std::move(tokens);
    if (constraint() != nullptr) constraint()->on_output_replaced(sequence);
  }

  /// Advances the search by one token, when every beam has its candidates. Returns true if this ends the search.
  bool advance(SequenceGroup& group, GroupEffects& effects) {
    std::vector<BeamCandidate> all;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      for (const auto& [token, logprob] : candidates_[i]) all.push_back({static_cast<std::int32_t>(i), token, logprob});
    }
    const std::vector<RunningBeam> before(search_.running().begin(), search_.running().end());
    search_.step(all);
    const auto num_top = static_cast<std::size_t>(group.spec->sampling.logprobs.value_or(0));
    while (reports_.size() < search_.num_nodes()) {
      const auto node = static_cast<BeamNode>(reports_.size());
      const auto parent = std::ranges::find(before, search_.parent(node), &RunningBeam::node) - before.begin();
      reports_.push_back(report_of(search_.token(node), candidates_[static_cast<std::size_t>(parent)], num_top));
    }
    effects.count_generated(std::ssize(before));
    if (search_.done()) {
      emit_hypotheses(group, effects);
      return true;
    }
    fork(group, effects);
    return false;
  }

  /// Makes the sequences equal to the running beams: the first child of a beam keeps its sequence, other children fork
  /// from it, and a beam without children is dropped.
  void fork(SequenceGroup& group, GroupEffects& effects) {
    const auto running = search_.running();
    std::vector<Sequence> parents = std::exchange(group.sequences, {});
    group.sequences.resize(running.size());
    std::vector<Sequence*> first_child(parents.size(), nullptr);
    for (std::size_t i = 0; i < running.size(); ++i) {
      const auto parent = static_cast<std::size_t>(running[i].parent);
      if (first_child[parent] == nullptr) {
        first_child[parent] = &group.sequences[i];
      } else {
        group.sequences[i] = effects.fork_of(parents[parent], group);
      }
    }
    for (std::size_t i = 0; i < parents.size(); ++i) {
      if (first_child[i] != nullptr) {
        *first_child[i] = std::move(parents[i]);
      } else {
        effects.drop(parents[i]);
      }
    }
    for (std::size_t i = 0; i < running.size(); ++i) {
      Sequence& s = group.sequences[i];
      s.index = static_cast<std::int32_t>(i);
      s.output.push_back(running[i].token);
      s.waits = false;
      effects.mark_dirty(s);
    }
    candidates_.assign(running.size(), {});
    group.forked = true;
  }

  /// Forks the trunk, whose KV is computed, into the beams. They run the tokens that they do not share.
  void regrow(SequenceGroup& group, GroupEffects& effects) {
    const auto running = search_.running();
    group.sequences.reserve(running.size());
    for (std::size_t i = 1; i < running.size(); ++i) {
      group.sequences.push_back(effects.fork_of(group.sequences.front(), group));
      group.sequences.back().index = static_cast<std::int32_t>(i);
    }
    for (std::size_t i = 0; i < running.size(); ++i) {
      replace_output(group.sequences[i], search_.tokens(running[i].node));
      group.sequences[i].waits = !candidates_[i].empty();
      effects.mark_dirty(group.sequences[i]);
    }
    group.forked = true;
  }

  /// Emits the n best hypotheses, best first, with all their tokens.
  void emit_hypotheses(const SequenceGroup& group, GroupEffects& effects) const {
    const auto num_found = static_cast<std::int64_t>(search_.hypotheses().size());
    for (std::int64_t i = 0; i < group.spec->sampling.n; ++i) {
      const auto index = static_cast<std::int32_t>(i);
      if (i >= num_found) {  // fewer continuations were possible
        effects.emit(length_end(group.spec->id, index));
        continue;
      }
      const BeamHypothesis& hypothesis = search_.hypotheses()[static_cast<std::size_t>(i)];
      const auto path = search_.path(hypothesis.node);
      for (std::size_t k = 0; k < path.size(); ++k) {
        SequenceOutput output;
        output.request = group.spec->id;
        output.sequence_index = index;
        output.token = reports_[static_cast<std::size_t>(path[k])];
        if (k + 1 == path.size()) {
          output.finished = hypothesis.finish_reason;
          if (hypothesis.finish_reason == FinishReason::stop) output.stop_token = ends_.stop_token(output.token->token);
        }
        effects.emit(std::move(output));
      }
    }
  }

  EndingTokens ends_;
  BeamSearch search_;
  std::vector<Candidates> candidates_;  ///< next tokens by running beam; empty while its result is awaited
  std::vector<TokenReport> reports_;    ///< reports by BeamNode; `top` is filled only if logprobs are requested
};

}  // namespace

std::unique_ptr<Decoding> make_beam_search(const SharedSpec& spec, const SchedulerConfig& config) {
  return std::make_unique<Beams>(*spec, config.eos_token_ids, make_constraint(spec, config, nullptr));
}

}  // namespace pagoda::scheduling
