// Sampling: every sequence continues with its own samples, and is admitted and preempted by itself. The first tokens of
// n sequences are drawn from one prompt, as far as there are batch rows. The other sequences compute the prompt again,
// and find most of it in the prefix cache.

#include <cstddef>
#include <memory>
#include <utility>

#include "engine/request/ending_tokens.hpp"
#include "engine/scheduling/decoding.hpp"
#include "engine/scheduling/draft_model_proposer.hpp"
#include "engine/scheduling/lookup_proposer.hpp"
#include "engine/scheduling/mask_proposer.hpp"
#include "engine/scheduling/sequence_group.hpp"
#include "kernels/result.hpp"

namespace pagoda::scheduling {
namespace {

class Sampling final : public Decoding {
 public:
  Sampling(const RequestSpec& spec, const SchedulerConfig& config, std::unique_ptr<Constraint> constraint,
           std::unique_ptr<Proposer> proposer)
      : Decoding(std::move(constraint), std::move(proposer)),
        ends_(spec.sampling, config.eos_token_ids),
        has_stages_(config.has_stages()) {}

  void begin(SequenceGroup& group) const override {
    const auto& progress = group.spec->progress;
    group.forked = group.num_samples() == 1;
    if (progress && (progress->has_ended() || progress->has_tokens())) restore_sequences(group);
  }
  /// Without stages only the fork waits for its result.
  bool may_plan_ahead(const SequenceGroup& group) const override { return group.forked && !has_stages_; }
  std::int32_t num_samples_at_end(const SequenceGroup& group) const override {
    return group.forked ? 1 : group.rows_reserved;
  }
  bool has_independent_sequences() const override { return true; }
  std::int32_t num_rows(const SequenceGroup&) const override { return 1; }
  bool chooses_tokens() const override { return false; }

  bool on_result(SequenceGroup& group, std::size_t index, std::span<const TokenReport> samples,
                 GroupEffects& effects) override {
    if (samples.empty()) return false;
    if (is_of_drafts(group.sequences[index])) return take_drafts(group, group.sequences[index], samples, effects);
    --group.sequences[index].num_placeholders;
    // This moves the sequences; the prompt's own is the first.
    if (!group.forked) fork(group, samples.size(), effects);
    for (std::size_t k = 0; k < samples.size(); ++k) append(group, group.sequences[index + k], samples[k], effects);
    Sequence& sequence = group.sequences[index];
    if (sequence.ahead.empty()) return group.all_finished();
    sequence.ahead.will_end = false;
    for (const TokenId token : std::exchange(sequence.ahead.forced, {})) {
      append(group, sequence, {token, 0, 0, {}}, effects);
    }
    // The drafts were not planned, and better ones are known now.
    if (!sequence.waits) sequence.ahead.drafts.clear();
    return group.all_finished();
  }

  void on_kv_lost(SequenceGroup&, std::vector<SequenceId>&) override {}

  bool cut(SequenceGroup& group, std::size_t index, GroupEffects& effects) override {
    effects.emit(length_end(group.spec->id, group.sequences[index].index));
    effects.finish(group, group.sequences[index]);
    if (!group.forked) {
      for (std::int32_t other = 1; other < group.num_samples(); ++other) {
        effects.emit(length_end(group.spec->id, other));
      }
    }
    return group.all_finished();
  }

 private:
  void save_strategy(Encoder&) const override {}
  bool load_strategy(Decoder&, const SequenceGroup&) override { return true; }

  /// Returns whether the next result is that of drafts. It is the last in flight, since nothing is planned behind
  /// drafts.
  static bool is_of_drafts(const Sequence& sequence) {
    return sequence.awaits_drafts() && sequence.num_placeholders == 1;
  }

  /// Takes the samples that belong to the sequence: each but the last was a correct draft.
  bool take_drafts(SequenceGroup& group, Sequence& sequence, std::span<const TokenReport> samples,
                   GroupEffects& effects) const {
    const auto num_right = static_cast<std::int32_t>(samples.size()) - 1;
    proposer()->on_result(sequence.id, static_cast<std::int32_t>(sequence.ahead.drafts.size()), num_right);
    sequence.forget_samples();
    for (const TokenReport& sample : samples) append(group, sequence, sample, effects);
    // Tokens of the row behind these are wrong drafts.
    sequence.num_row_tokens = sequence.output.size();
    return group.all_finished();
  }

  static void fork(SequenceGroup& group, std::size_t num_sampled, GroupEffects& effects) {
    group.forked = true;
    group.num_to_begin = group.num_samples() - static_cast<std::int32_t>(num_sampled);
    group.sequences.reserve(num_sampled);
    for (std::size_t index = 1; index < num_sampled; ++index) {
      group.sequences.push_back(effects.fork_of(group.sequences.front(), group));
      group.sequences.back().index = static_cast<std::int32_t>(index);
    }
  }

  void append(SequenceGroup& group, Sequence& sequence, const TokenReport& sample, GroupEffects& effects) const {
    if (sequence.state == SequenceState::finished) return;
    sequence.output.push_back(sample.token);
    effects.mark_dirty(sequence);
    effects.count_generated(1);
    SequenceOutput output{group.entry.id, sequence.index, sample, {}, {}};
    const auto end = ends_.end_of(sample.token, std::ssize(sequence.output));
    if (end) {
      output.finished = end->reason;
      output.stop_token = end->stop_token;
    }
    effects.emit(std::move(output));
    if (end) effects.finish(group, sequence);
  }

  EndingTokens ends_;
  const bool has_stages_;
};

}  // namespace

std::unique_ptr<Decoding> make_sampling(const SharedSpec& spec, const SchedulerConfig& config,
                                        const OutputHistory& history) {
  // A mask for a position behind a draft needs the draft, which the host does not know if the device makes it. The
  // draft model cannot read virtual tokens.
  const bool has_masks = is_constrained(*spec, config);
  const bool may_use_model = config.speculation.has_draft_model() && !has_masks && spec->num_virtual_tokens() == 0;
  std::unique_ptr<Proposer> drafts;
  if (config.speculation.is_on() && spec->sampling.speculation && may_use_model) {
    drafts = std::make_unique<DraftModelProposer>(config.speculation);
  } else if (config.speculation.is_on() && spec->sampling.speculation) {
    drafts = std::make_unique<LookupProposer>(config.speculation, *spec, config.eos_token_ids, history);
  }
  if (!has_masks) return std::make_unique<Sampling>(*spec, config, nullptr, std::move(drafts));
  auto proposer = std::make_unique<MaskProposer>(std::move(drafts));
  auto constraint = make_constraint(spec, config, proposer.get());
  return std::make_unique<Sampling>(*spec, config, std::move(constraint), std::move(proposer));
}

}  // namespace pagoda::scheduling
