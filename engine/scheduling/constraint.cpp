#include "engine/scheduling/constraint.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "engine/scheduling/sequence_group.hpp"
#include "kernels/sample.hpp"

namespace pagoda::scheduling {
namespace {

/// Sets the tokens that follow the sample in flight. Returns the number of those that are certain.
std::int64_t set_tokens_ahead(Sequence& sequence, const JumpForwardTokens& found, MaskProposer* proposer) {
  if (found.tokens.empty() && !found.ends) return 0;
  if (sequence.num_placeholders != 1 || sequence.waits) return 0;
  const auto num_drafts = std::clamp<std::ptrdiff_t>(found.num_drafts, 0, std::ssize(found.tokens));
  const auto first_draft = found.tokens.end() - num_drafts;
  sequence.ahead.forced.assign(found.tokens.begin(), first_draft);
  sequence.ahead.will_end = found.ends;
  if (proposer != nullptr) proposer->offer(sequence, {first_draft, found.tokens.end()});
  return std::ssize(sequence.ahead.forced);
}

}  // namespace

Constraint::Constraint(const SharedSpec& spec, const SchedulerConfig& config, MaskProposer* proposer)
    : has_grammar_(spec->sampling.structured_outputs.has_value()),
      jumps_forward_(!spec->sampling.use_beam_search),
      num_words_(kernels::mask_words(config.vocab_size)),
      proposer_(proposer),
      thinking_(thinking_budget_of(*spec, config)) {
  set_grammar(spec, config);
}

Constraint::~Constraint() {
  if (masks_) masks_->forget();
}

void Constraint::set_grammar(const SharedSpec& spec, const SchedulerConfig& config) {
  if (spec->grammar || thinking_) masks_ = std::make_shared<RequestMasks>(spec, config);
}

const Constraint::MaskState* Constraint::find(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? nullptr : &found->second;
}

bool Constraint::wants_mask(const Sequence& sequence) {
  return has_grammar_ || (thinking_ && thinking_->may_be_spent(sequence.output, sequence.num_generated(),
                                                               sequences_[sequence.id].thinking));
}

const MadeMask* Constraint::made_mask(const Sequence& sequence) const {
  const MaskState* state = find(sequence.id);
  const bool is_made = state != nullptr && state->made && state->made->num_tokens == sequence.output.size();
  return is_made ? &*state->made : nullptr;
}

bool Constraint::may_request_mask(const Sequence& sequence) const {
  const MaskState* state = find(sequence.id);
  return masks_ != nullptr && (state == nullptr || state->requested != sequence.output.size());
}

std::optional<MaskJob> Constraint::mask_job(const SequenceGroup& group, const Sequence& sequence,
                                            std::int32_t max_drafts) {
  if (!masks_) return std::nullopt;
  const TokenIds& output = sequence.output;
  MaskState& state = sequences_[sequence.id];
  MaskJob job;
  job.request = group.entry.id;
  job.sequence = sequence.id;
  job.course = state.course;
  job.parent = state.parent;
  job.masks = masks_;
  // The job begins anew again as long as there are no tokens.
  job.begins_anew = state.num_followed == 0;
  job.num_known = state.num_followed;
  job.tokens.assign(output.begin() + static_cast<std::ptrdiff_t>(state.num_followed), output.end());
  if (sequence.waits) job.drafts = sequence.ahead.drafts;
  job.wants_jump_forward = group.forked && jumps_forward_;
  job.max_drafts = proposer_ == nullptr ? 0 : std::min(proposer_->max_drafts(sequence.id), max_drafts);
  job.ended = std::exchange(ended_, {});
  state.num_followed = output.size();
  state.requested = output.size();
  return job;
}

bool Constraint::take_made(Sequence& sequence, MadeMask made) {
  const MaskState* known = find(sequence.id);
  const std::int32_t course = known == nullptr ? 0 : known->course;
  if (made.course != course || made.num_tokens != sequence.output.size()) return false;
  MaskState& state = sequences_[sequence.id];
  state.requested.reset();
  state.made = std::move(made);
  return std::exchange(sequence.awaits_mask, false);
}

/// A position that the drafts before it cannot reach allows no token.
std::int64_t Constraint::apply_mask(std::int32_t work, Sequence& sequence, StepMasks& masks) {
  if (!has_mask(sequence)) return 0;
  const MadeMask made = *std::exchange(sequences_[sequence.id].made, std::nullopt);
  if (made.num_masks > 0) {
    const std::size_t num_masks = 1 + (sequence.waits ? sequence.ahead.drafts.size() : 0);
    const std::size_t num_words = num_masks * num_words_;
    masks.work.insert(masks.work.end(), num_masks, work);
    if (!made.words.empty()) {
      PAGODA_ASSERT(made.words.size() >= num_words, "each draft has a mask");
      const auto words = std::span(made.words).first(num_words);
      masks.words.insert(masks.words.end(), words.begin(), words.end());
    } else {  // a replay may lack the grammar
      masks.words.resize(masks.words.size() + num_words, ~std::uint32_t{0});
    }
  }
  return set_tokens_ahead(sequence, made.jump_forward, proposer_);
}

void Constraint::on_output_replaced(Sequence& sequence) {
  MaskState& state = sequences_[sequence.id];
  MaskState anew;
  anew.course = state.course + 1;
  anew.parent = state.parent;
  state = std::move(anew);
  sequence.awaits_mask = false;
}

void Constraint::on_fork(SequenceId parent, SequenceId child) {
  const MaskState* state = find(parent);
  MaskState forked;
  forked.parent = parent;
  if (state != nullptr) {
    forked.course = state->course;
    forked.thinking = state->thinking;
  }
  sequences_.insert_or_assign(child, std::move(forked));
}

void Constraint::on_end(SequenceId sequence) {
  if (masks_) ended_.push_back(sequence);
}

/// Sequences whose saved fields have their first values are left out: a replay, which requests no masks, does not have
/// them.
void Constraint::save(Encoder& out) const {
  const auto is_saved = [](const auto& entry) { return entry.second.course != 0 || entry.second.made; };
  out.put(static_cast<std::size_t>(std::ranges::count_if(sequences_, is_saved)));
  for (const auto& entry : sequences_) {
    if (is_saved(entry)) out.put(entry);
  }
}

bool is_constrained(const RequestSpec& spec, const SchedulerConfig& config) {
  return spec.sampling.structured_outputs || thinking_budget_of(spec, config);
}

std::unique_ptr<Constraint> make_constraint(const SharedSpec& spec, const SchedulerConfig& config,
                                            MaskProposer* proposer) {
  return is_constrained(*spec, config) ? std::make_unique<Constraint>(spec, config, proposer) : nullptr;
}

}  // namespace pagoda::scheduling
