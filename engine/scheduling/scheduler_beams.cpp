// The beam search of SchedulerCore: how the beams of a group advance, fork, shrink to a trunk, grow again and end.

#include <algorithm>
#include <utility>

#include "engine/scheduling/scheduler_core.hpp"

namespace pagoda::scheduling {
namespace {

/// How a kept token is reported: as the candidate of its beam that it was.
TokenReport report_of(TokenId token, const std::vector<std::pair<TokenId, float>>& candidates, std::size_t num_top) {
  const auto found = std::ranges::find(candidates, token, &std::pair<TokenId, float>::first);
  PAGODA_ASSERT(found != candidates.end(), "a beam goes on with one of its candidates");
  const auto likelier =
      std::ranges::count_if(candidates, [&](const auto& other) { return other.second > found->second; });
  num_top = std::min(num_top, candidates.size());
  return {token,
          found->second,
          static_cast<std::int32_t>(1 + likelier),
          {candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(num_top)}};
}

/// The tokens that all beams start with, but at most all but the last of each: a beam must have a token left to run.
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

}  // namespace

std::unique_ptr<Beams> SchedulerCore::make_beams(const SamplingParams& sampling) const {
  BeamSearchParams params;
  params.width = sampling.num_sequences();
  params.max_new_tokens = sampling.max_tokens;
  params.length_penalty = sampling.length_penalty;
  params.early_stopping = sampling.early_stopping;
  if (!sampling.ignore_eos) params.ending_tokens = config_.eos_token_ids;
  for (const std::int64_t id : sampling.stop_token_ids) params.ending_tokens.push_back(static_cast<TokenId>(id));
  return std::make_unique<Beams>(std::move(params));
}

/// The result of one beam, or of a part of the trunk. False when the search, and with it the group, has ended.
bool SchedulerCore::accept_beam(SequenceGroup& group, Sequence& sequence, std::span<const TokenReport> samples) {
  if (samples.empty()) {
    const bool trunk_is_computed = !group.forked && sequence.num_computed_tokens == group.length(sequence);
    if (trunk_is_computed) regrow_beams(group);
    return true;
  }
  --sequence.num_placeholders;
  sequence.candidates = samples.front().top;
  const bool all_known = std::ranges::none_of(group.sequences, [](const Sequence& s) { return s.candidates.empty(); });
  return !all_known || advance_beams(group);
}

/// Every beam has its candidates: the search takes one token. False when that ended it.
bool SchedulerCore::advance_beams(SequenceGroup& group) {
  BeamSearch& search = group.beams->search;
  std::vector<BeamCandidate> candidates;
  for (std::size_t i = 0; i < group.sequences.size(); ++i) {
    for (const auto& [token, logprob] : group.sequences[i].candidates) {
      candidates.push_back({static_cast<std::int32_t>(i), token, logprob});
    }
  }
  const std::vector<RunningBeam> before(search.running().begin(), search.running().end());
  search.step(candidates);

  const auto num_top = static_cast<std::size_t>(group.spec->sampling.logprobs.value_or(0));
  auto& reports = group.beams->reports;
  while (reports.size() < search.num_nodes()) {
    const auto node = static_cast<BeamNode>(reports.size());
    const auto parent = std::ranges::find(before, search.parent(node), &RunningBeam::node) - before.begin();
    reports.push_back(
        report_of(search.token(node), group.sequences[static_cast<std::size_t>(parent)].candidates, num_top));
  }
  stats_.generation_tokens_total += std::ssize(before);
  if (search.done()) {
    end_beams(group);
    return false;
  }
  fork_beams(group);
  return true;
}

/// Makes the sequences those of the running beams: the first child of a beam keeps its sequence, others fork from it, a
/// beam without children is dropped.
void SchedulerCore::fork_beams(SequenceGroup& group) {
  const auto running = group.beams->search.running();
  std::vector<Sequence> parents = std::exchange(group.sequences, {});
  for (Sequence& parent : parents) parent.candidates.clear();
  group.sequences.resize(running.size());
  std::vector<Sequence*> first_child(parents.size(), nullptr);
  for (std::size_t i = 0; i < running.size(); ++i) {
    const auto parent = static_cast<std::size_t>(running[i].parent);
    if (first_child[parent] == nullptr) {
      first_child[parent] = &group.sequences[i];
    } else {
      group.sequences[i] = fork_of(parents[parent], group.entry.id);
    }
  }
  for (std::size_t i = 0; i < parents.size(); ++i) {
    if (first_child[i] != nullptr) {
      *first_child[i] = std::move(parents[i]);
    } else {
      let_go(parents[i]);
      group_of_.erase(parents[i].id);
    }
  }
  for (std::size_t i = 0; i < running.size(); ++i) {
    Sequence& s = group.sequences[i];
    s.index = static_cast<std::int32_t>(i);
    s.output.push_back(running[i].token);
    to_report_.push_back(s.id);
  }
  group.forked = true;
  something_was_freed();
}

/// The trunk's KV is computed: it forks into the beams, which run the tokens that they do not share.
void SchedulerCore::regrow_beams(SequenceGroup& group) {
  const BeamSearch& search = group.beams->search;
  group.sequences.reserve(search.running().size());
  for (std::size_t i = 1; i < search.running().size(); ++i) {
    group.sequences.push_back(fork_of(group.sequences.front(), group.entry.id));
    group.sequences.back().index = static_cast<std::int32_t>(i);
  }
  for (std::size_t i = 0; i < group.sequences.size(); ++i) {
    group.sequences[i].output = search.tokens(search.running()[i].node);
    to_report_.push_back(group.sequences[i].id);
  }
  group.forked = true;
}

/// The KV of every beam is lost: what remains to be computed first is what they share. Computing each beam by itself
/// would take more memory than the beams had.
void SchedulerCore::collapse_beams(SequenceGroup& group) {
  for (std::size_t i = 1; i < group.sequences.size(); ++i) group_of_.erase(group.sequences[i].id);
  group.sequences.erase(group.sequences.begin() + 1, group.sequences.end());
  Sequence& trunk = group.sequences.front();
  trunk.output = common_beginning(group.beams->search);
  trunk.candidates.clear();
  trunk.num_placeholders = 0;
  group.forked = false;
}

/// Tells the n best hypotheses, best first, all their tokens at once.
void SchedulerCore::end_beams(SequenceGroup& group) {
  const BeamSearch& search = group.beams->search;
  const SamplingParams& sampling = group.spec->sampling;
  const auto num_found = static_cast<std::int64_t>(search.hypotheses().size());
  for (std::int64_t index = 0; index < sampling.n; ++index) {
    if (index >= num_found) {  // fewer continuations were possible
      tell_length(group, static_cast<std::int32_t>(index));
      continue;
    }
    const BeamHypothesis& hypothesis = search.hypotheses()[static_cast<std::size_t>(index)];
    for (const BeamNode node : search.path(hypothesis.node)) {
      SequenceOutput out;
      out.request = group.entry.id;
      out.sequence_index = static_cast<std::int32_t>(index);
      out.token = group.beams->reports[static_cast<std::size_t>(node)];
      outputs_.outputs.push_back(std::move(out));
    }
    SequenceOutput& last = outputs_.outputs.back();
    last.finished = hypothesis.finish_reason;
    const TokenId token = last.token->token;
    const bool by_stop_id = std::ranges::find(sampling.stop_token_ids, token) != sampling.stop_token_ids.end();
    if (hypothesis.finish_reason == FinishReason::stop && by_stop_id) last.stop_token = token;
  }
  ++stats_.requests_finished_total;
  erase_group(group);
}

}  // namespace pagoda::scheduling
