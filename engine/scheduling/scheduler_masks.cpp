// Which tokens may be sampled, and what follows from that.

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/request/ending_tokens.hpp"
#include "engine/request/token_bans.hpp"
#include "engine/scheduling/scheduler_core.hpp"
#include "kernels/sample.hpp"

namespace pagoda::scheduling {

std::optional<StepMasks> SchedulerCore::take_masks() {
  if (!has_masks_to_tell()) return std::nullopt;
  alternatives_.clear();
  InFlightStep& step = in_flight_.front();
  step.waits_for_masks = false;
  StepMasks masks;
  masks.step = step.step;
  for (std::size_t i = 0; i < step.work.size(); ++i) {
    const WorkRef& work = step.work[i];
    SequenceGroup* group = work.has_mask && !work.dropped ? table_.find(work.group) : nullptr;
    const Sequence* s = table_.find(group, work.sequence);
    if (s == nullptr || s->state == SequenceState::finished) continue;
    const bool is_forced = group->thinking && group->thinking->next(s->output);
    if (!group->spec->sampling.structured_outputs && !is_forced && work.num_drafts == 0) continue;
    add_masks(*group, *s, work, masks);
    masks.work.resize(masks.words.size() / kernels::mask_words(config_.vocab_size), static_cast<std::int32_t>(i));
  }
  return masks;
}

/// One, or with drafts one for each place; of a place that the drafts before it do not lead to there is no token.
void SchedulerCore::add_masks(SequenceGroup& group, const Sequence& sequence, const WorkRef& work, StepMasks& masks) {
  const std::size_t num_words = kernels::mask_words(config_.vocab_size);
  const auto add = [&](std::span<const TokenId> output, bool is_ahead) {
    masks.words.resize(masks.words.size() + num_words);
    const auto mask = std::span(masks.words).last(num_words);
    fill_mask(group, sequence, output, is_ahead, mask);
    return mask;
  };
  const auto mask = add(sequence.output, false);
  if (work.num_drafts == 0) {
    if (!group.forked || group.decoding->chooses_tokens()) return;
    if (TokenIds tokens = few_tokens(mask); !tokens.empty()) alternatives_.emplace_back(sequence.id, std::move(tokens));
    return;
  }
  TokenIds output = sequence.output;
  for (const TokenId draft : sequence.drafts) {
    output.push_back(draft);
    add(output, true);
  }
}

/// A grammar, allowed_token_ids and bad_words count for more than the end of a budget: a grammar knows how a thinking
/// ends.
void SchedulerCore::fill_mask(SequenceGroup& group, const Sequence& sequence, std::span<const TokenId> output,
                              bool is_ahead, std::span<std::uint32_t> mask) const {
  std::ranges::fill(mask, ~std::uint32_t{0});
  // A replay may lack the grammar, or be told of another vocabulary.
  if (group.matchers && group.spec->grammar->vocab_size() == config_.vocab_size) {
    if (is_ahead) {
      group.matchers->fill_mask_ahead(sequence.id, output, mask);
    } else {
      group.matchers->fill_mask(sequence.id, output, mask);
    }
  }
  if (group.allowed_tokens.size() == mask.size()) {
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] &= group.allowed_tokens[i];
  }
  ban_bad_words(group.spec->bad_words, output, mask);
  const auto forced = group.thinking ? group.thinking->next(output) : std::nullopt;
  if (!forced) return;
  const auto word = static_cast<std::size_t>(*forced) / 32;
  const auto bit = std::uint32_t{1} << static_cast<std::uint32_t>(*forced) % 32;
  if (word >= mask.size() || (mask[word] & bit) == 0) return;
  std::ranges::fill(mask, 0U);
  mask[word] = bit;
}

std::vector<ForeseenTokens> SchedulerCore::look_ahead() {
  std::vector<ForeseenTokens> all;
  for (auto& [sequence, alternatives] : std::exchange(alternatives_, {})) {
    const auto owner = table_.group_of.find(sequence);
    SequenceGroup* group = owner == table_.group_of.end() ? nullptr : table_.find(owner->second);
    const Sequence* s = table_.find(group, sequence);
    if (s == nullptr) continue;
    ForeseenTokens foreseen = foresee(*group, *s, std::move(alternatives));
    if (foreseen.ends || !foreseen.tokens.empty()) all.push_back(std::move(foreseen));
  }
  return all;
}

/// `alternatives`: for the sample in flight. Where log-probabilities are asked for, nothing goes unsampled.
ForeseenTokens SchedulerCore::foresee(SequenceGroup& group, const Sequence& sequence, TokenIds alternatives) const {
  const SamplingParams& sampling = group.spec->sampling;
  const EndingTokens ends(sampling, config_.eos_token_ids);
  const std::int32_t most_drafts = planning_.may_draft() ? std::min(sequence.most_drafts, kMaxDrafts) : 0;
  const auto bytes_of = [matchers = group.matchers.get()](TokenId token) {
    return matchers == nullptr ? std::string_view() : matchers->bytes_of(token);
  };
  const TokenIds& prompt = *group.spec->prompt;
  const std::size_t num_before = std::min(prompt.size(), kMostLookedBack);
  TokenIds tokens(prompt.end() - static_cast<std::ptrdiff_t>(num_before), prompt.end());  // and what is generated
  tokens.insert(tokens.end(), sequence.output.begin(), sequence.output.end());
  std::vector<std::uint32_t> mask(kernels::mask_words(config_.vocab_size));
  ForeseenTokens foreseen{sequence.id, {}, 0, false};
  bool is_sample = true;
  bool is_certain = true;
  while (foreseen.tokens.size() < kMaxForeseenTokens) {
    is_certain &= alternatives.size() == 1 && (is_sample || !sampling.tells_cumulative_logprob());
    if (!is_certain && (most_drafts < kLeastDrafts || foreseen.num_drafts == most_drafts)) break;
    const auto next = likely_token(alternatives, tokens, bytes_of);
    const std::int64_t num_generated = std::ssize(tokens) + 1 - static_cast<std::int64_t>(num_before);
    if (!next || ends.is_banned(*next, num_generated)) break;
    const bool is_end = ends.end_of(*next, num_generated).has_value();
    if (is_end && !is_certain) break;  // how it ends is left to the sampling
    tokens.push_back(*next);
    if (!is_sample) foreseen.tokens.push_back(*next);
    foreseen.num_drafts += !is_sample && !is_certain ? 1 : 0;
    foreseen.ends = is_end;
    if (is_end) break;
    fill_mask(group, sequence, std::span(tokens).subspan(num_before), true, mask);
    alternatives = few_tokens(mask);
    is_sample = false;
  }
  if (foreseen.num_drafts < kLeastDrafts) {
    foreseen.tokens.resize(foreseen.tokens.size() - static_cast<std::size_t>(foreseen.num_drafts));
    foreseen.num_drafts = 0;
  }
  return foreseen;
}

void SchedulerCore::jump_ahead(const std::vector<ForeseenTokens>& foreseen) {
  for (const ForeseenTokens& one : foreseen) {
    const auto owner = table_.group_of.find(one.sequence);
    Sequence* s = owner == table_.group_of.end() ? nullptr : table_.find(table_.find(owner->second), one.sequence);
    if (s == nullptr || s->num_placeholders != 1 || s->waits) continue;
    const auto num_drafts = std::clamp<std::ptrdiff_t>(one.num_drafts, 0, std::ssize(one.tokens));
    s->forced.assign(one.tokens.begin(), one.tokens.end() - num_drafts);
    s->drafts.assign(one.tokens.end() - num_drafts, one.tokens.end());
    s->will_end = one.ends;
    metrics_.forced_tokens += std::ssize(s->forced);
  }
}

}  // namespace pagoda::scheduling
