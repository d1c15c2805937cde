#include "engine/scheduling/decoding.hpp"

#include <algorithm>
#include <ranges>
#include <span>

#include "engine/scheduling/sequence_group.hpp"

namespace pagoda::scheduling {

void Decoding::on_fork(SequenceId parent, SequenceId child) {
  if (constraint_) constraint_->on_fork(parent, child);
  if (proposer_) proposer_->on_fork(parent, child);
}

void Decoding::on_end(SequenceId sequence) {
  if (constraint_) constraint_->on_end(sequence);
}

void Decoding::erase(SequenceId sequence) {
  if (constraint_) constraint_->erase(sequence);
  if (proposer_) proposer_->erase(sequence);
}

void Decoding::save(Encoder& out) const {
  if (constraint_) constraint_->save(out);
  if (proposer_) proposer_->save(out);
  save_strategy(out);
}

bool Decoding::load(Decoder& in, const SequenceGroup& group) {
  if (constraint_ && !constraint_->load(in)) return false;
  if (proposer_ && !proposer_->load(in)) return false;
  const auto fits = [&](const Sequence& s) {
    return (constraint_ || (s.ahead.forced.empty() && !s.ahead.will_end && !s.awaits_mask)) &&
           (proposer_ || s.ahead.drafts.empty());
  };
  return std::ranges::all_of(group.sequences, fits) && load_strategy(in, group);
}

std::unique_ptr<Decoding> make_decoding(const SharedSpec& spec, const SchedulerConfig& config,
                                        const OutputHistory& history) {
  return spec->sampling.use_beam_search ? make_beam_search(spec, config) : make_sampling(spec, config, history);
}

void restore_sequences(SequenceGroup& group) {
  const RequestProgress& progress = *group.spec->progress;
  group.forked = true;
  // Samples begin in the order of their indices.
  const auto has_tokens = [](const RequestProgress::Sequence& s) { return s.ended || !s.result.token_ids.empty(); };
  const auto last = std::ranges::find_if(progress.sequences | std::views::reverse, has_tokens);
  const std::span begun =
      std::span(progress.sequences)
          .first(progress.error ? progress.sequences.size()
                                : static_cast<std::size_t>(last.base() - progress.sequences.begin()));
  group.num_to_begin = static_cast<std::int32_t>(progress.sequences.size() - begun.size());
  for (const RequestProgress::Sequence& before : begun) {
    Sequence& sequence = group.sequences.emplace_back();
    sequence.index = before.result.index;
    sequence.output = before.result.token_ids;
    if (before.ended || progress.error) {
      sequence.state = SequenceState::finished;
      group.has_finished = true;
    } else {
      sequence.num_lost_tokens = group.length(sequence);
    }
  }
}

SequenceOutput length_end(RequestId request, std::int32_t sequence_index) {
  SequenceOutput output;
  output.request = request;
  output.sequence_index = sequence_index;
  output.finished = FinishReason::length;
  return output;
}

}  // namespace pagoda::scheduling
