#include "engine/scheduling/request_masks.hpp"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "engine/request/ending_tokens.hpp"
#include "engine/request/token_bans.hpp"
#include "kernels/sample.hpp"

namespace pagoda::scheduling {
namespace {

bool is_prefix(std::span<const TokenId> prefix, std::span<const TokenId> tokens) {
  return prefix.size() <= tokens.size() && std::ranges::equal(prefix, tokens.first(prefix.size()));
}

std::span<const TokenId> last(std::span<const TokenId> tokens, std::size_t count) {
  return tokens.last(std::min(tokens.size(), count));
}

}  // namespace

std::optional<ThinkingBudget> thinking_budget_of(const RequestSpec& spec, const SchedulerConfig& config) {
  const auto& budget = spec.sampling.thinking_token_budget;
  if (!budget || !config.thinking.are_known()) return std::nullopt;
  return ThinkingBudget(config.thinking, *budget, spec.own_prompt());
}

bool MaskJob::run(std::uint64_t& max_work) {
  return masks->make(*this, max_work);
}

bool MaskJob::has_grammar() const {
  return masks->grammar() != nullptr;
}

const void* MaskJob::key() const {
  return has_grammar() ? static_cast<const void*>(masks->grammar().get()) : masks.get();
}

RequestMasks::RequestMasks(SharedSpec spec, const SchedulerConfig& config)
    : spec_(std::move(spec)),
      thinking_(thinking_budget_of(*spec_, config)),
      eos_token_ids_(config.eos_token_ids),
      num_words_(kernels::mask_words(config.vocab_size)) {
  if (spec_->grammar && spec_->grammar->vocab_size() == config.vocab_size) grammar_ = spec_->grammar;
  if (const auto& allowed = spec_->sampling.allowed_token_ids) {
    allowed_tokens_ = token_mask(TokenIds(allowed->begin(), allowed->end()), config.vocab_size);
  }
}

RequestMasks::GrammarPosition RequestMasks::GrammarPosition::fork() const {
  return {matcher ? std::optional(matcher->fork()) : std::nullopt, tokens, num_accepted, thinking};
}

RequestMasks::GrammarPosition RequestMasks::begin(const MaskJob& job) const {
  const auto parent = sequences_.find(job.parent);
  if (parent != sequences_.end() && is_prefix(parent->second.position.tokens, job.tokens)) {
    return parent->second.position.fork();
  }
  GrammarPosition position;
  if (grammar_) position.matcher.emplace(grammar_, budget_);
  return position;
}

void RequestMasks::FollowedSequence::append(std::span<const TokenId> tokens) {
  position.tokens.insert(position.tokens.end(), tokens.begin(), tokens.end());
  const std::size_t size = position.tokens.size();
  const bool goes_there =
      ahead && ahead->tokens.size() >= size &&
      std::ranges::equal(tokens, std::span(ahead->tokens).subspan(size - tokens.size(), tokens.size()));
  if (ahead && !goes_there) {
    ahead.reset();
    masks_ahead.clear();
  }
  masks_ahead.erase(masks_ahead.begin(), masks_ahead.lower_bound(size));
}

RequestMasks::FollowedSequence* RequestMasks::follow(MaskJob& job) {
  for (const SequenceId id : std::exchange(job.ended, {})) {
    sequences_.erase(id);
    ended_.insert(id);
  }
  if (ended_.contains(job.sequence)) return nullptr;
  const auto known = sequences_.find(job.sequence);
  const bool is_newer = known == sequences_.end() || known->second.course <= job.course;
  if (std::exchange(job.begins_anew, false) && is_newer) {
    sequences_.insert_or_assign(job.sequence, FollowedSequence{job.course, begin(job), {}, {}});
  }
  const auto followed = sequences_.find(job.sequence);
  if (followed == sequences_.end() || followed->second.course != job.course) return nullptr;
  FollowedSequence& sequence = followed->second;
  const std::size_t size = sequence.position.tokens.size();  // a fork has the tokens that its parent had
  const std::size_t num_followed = size > job.num_known ? std::min(size - job.num_known, job.tokens.size()) : 0;
  job.num_known += job.tokens.size();
  sequence.append(std::span(job.tokens).subspan(num_followed));
  job.tokens.clear();
  return &sequence;
}

bool RequestMasks::make(MaskJob& job, std::uint64_t& max_work) {
  MadeMask& made = job.made;
  made.sequence = job.sequence;
  made.course = job.course;
  FollowedSequence* const followed = follow(job);
  if (followed == nullptr) return true;  // the mask is not needed any more
  FollowedSequence& sequence = *followed;
  made.num_tokens = job.num_known;
  const bool is_free = !grammar_ && job.drafts.empty() &&
                       (!thinking_ || !thinking_->next(sequence.position.tokens, sequence.position.thinking));
  if (is_free) return true;
  for (auto k = static_cast<std::size_t>(made.num_masks); k <= job.drafts.size(); ++k) {
    made.words.resize((k + 1) * num_words_);
    const auto mask = std::span(made.words).last(num_words_);
    const bool is_made = k == 0 ? fill_next_mask(sequence, mask, max_work)
                                : fill_mask_ahead(sequence, std::span(job.drafts).first(k), mask, max_work);
    if (!is_made) return false;
    ++made.num_masks;
  }
  if (!job.wants_jump_forward || !job.drafts.empty()) return true;
  TokenIds alternatives = allowed_tokens_if_few(made.words);
  if (!alternatives.empty()) made.jump_forward = propose(job, sequence, std::move(alternatives), max_work);
  return true;
}

bool RequestMasks::fill_next_mask(FollowedSequence& sequence, std::span<std::uint32_t> mask,
                                  std::uint64_t& max_work) const {
  const auto known = sequence.masks_ahead.find(sequence.position.tokens.size());
  if (known == sequence.masks_ahead.end()) return fill_mask(sequence.position, mask, max_work);
  std::ranges::copy(known->second, mask.begin());
  return true;
}

/// A grammar, allowed_token_ids and bad_words have priority over the end of a thinking budget: a grammar defines how a
/// thinking ends.
bool RequestMasks::fill_mask(GrammarPosition& position, std::span<std::uint32_t> mask, std::uint64_t& max_work) const {
  std::ranges::fill(mask, ~std::uint32_t{0});
  if (position.matcher) {
    const TokenIds& tokens = position.tokens;
    while (position.num_accepted < tokens.size() && position.matcher->accept(tokens[position.num_accepted], max_work)) {
      ++position.num_accepted;
      if (max_work == 0) return false;
    }
    if (position.num_accepted < tokens.size() || position.matcher->has_ended()) {
      std::ranges::fill(mask, 0U);
    } else if (!position.matcher->fill_mask(mask, max_work)) {
      return false;
    }
  }
  for (std::size_t i = 0; i < allowed_tokens_.size(); ++i) mask[i] &= allowed_tokens_[i];
  ban_bad_words(spec_->bad_words, position.tokens, mask);
  const auto forced = thinking_ ? thinking_->next(position.tokens, position.thinking) : std::nullopt;
  if (!forced) return true;
  const auto word = static_cast<std::size_t>(*forced) / 32;
  const auto bit = std::uint32_t{1} << static_cast<std::uint32_t>(*forced) % 32;
  if (word >= mask.size() || (mask[word] & bit) == 0) return true;
  std::ranges::fill(mask, 0U);
  mask[word] = bit;
  return true;
}

bool RequestMasks::fill_mask_ahead(FollowedSequence& sequence, std::span<const TokenId> path,
                                   std::span<std::uint32_t> mask, std::uint64_t& max_work) const {
  auto& [course, position, ahead, masks] = sequence;
  const std::size_t num_tokens = position.tokens.size() + path.size();
  const auto tokens_ahead =
      ahead ? std::span<const TokenId>(ahead->tokens).subspan(position.tokens.size()) : std::span<const TokenId>();
  if (const auto known = masks.find(num_tokens); known != masks.end() && is_prefix(path, tokens_ahead)) {
    std::ranges::copy(known->second, mask.begin());
    return true;
  }
  if (!ahead || !is_prefix(tokens_ahead, path)) {
    ahead = position.fork();
    masks.clear();
  }
  const auto missing = path.subspan(ahead->tokens.size() - position.tokens.size());
  ahead->tokens.insert(ahead->tokens.end(), missing.begin(), missing.end());
  if (!fill_mask(*ahead, mask, max_work)) return false;
  masks.insert_or_assign(num_tokens, std::vector<std::uint32_t>(mask.begin(), mask.end()));
  return true;
}

/// Proposes the tokens that follow the sample in flight. `alternatives` are the possible tokens of this sample. If
/// log-probabilities are requested, all tokens are sampled.
JumpForwardTokens RequestMasks::propose(const MaskJob& job, FollowedSequence& sequence, TokenIds alternatives,
                                        std::uint64_t& max_work) const {
  const SamplingParams& sampling = spec_->sampling;
  const EndingTokens ends(sampling, eos_token_ids_);
  const auto bytes_of = [this](TokenId token) { return grammar_ ? grammar_->bytes_of(token) : std::string_view(); };
  const auto prompt_end = last(*spec_->prompt, kMaxLookedBack);
  const auto output_end = last(sequence.position.tokens, kMaxLookedBack);
  TokenIds context(prompt_end.begin(), prompt_end.end());  // prompt and generated tokens
  context.insert(context.end(), output_end.begin(), output_end.end());
  TokenIds path;
  std::vector<std::uint32_t> mask(num_words_);
  JumpForwardTokens jump_forward{job.sequence, {}, 0, false};
  bool is_certain = true;
  while (jump_forward.tokens.size() < kMaxJumpForwardTokens) {
    const bool is_sample = path.empty();
    is_certain &= alternatives.size() == 1 && (is_sample || !sampling.reports_cumulative_logprob());
    if (!is_certain && (job.max_drafts < kMinDrafts || jump_forward.num_drafts == job.max_drafts)) break;
    const auto next = likely_token(alternatives, context, bytes_of);
    const std::int64_t num_generated = std::ssize(sequence.position.tokens) + std::ssize(path) + 1;
    if (!next || ends.is_banned(*next, num_generated)) break;
    const bool is_end = ends.end_of(*next, num_generated).has_value();
    if (is_end && !is_certain) break;  // sampling decides how the sequence ends
    context.push_back(*next);
    path.push_back(*next);
    if (!is_sample) jump_forward.tokens.push_back(*next);
    jump_forward.num_drafts += !is_sample && !is_certain ? 1 : 0;
    jump_forward.ends = is_end;
    if (is_end || !fill_mask_ahead(sequence, path, mask, max_work)) break;
    alternatives = allowed_tokens_if_few(mask);
  }
  if (jump_forward.num_drafts < kMinDrafts) {
    jump_forward.tokens.resize(jump_forward.tokens.size() - static_cast<std::size_t>(jump_forward.num_drafts));
    jump_forward.num_drafts = 0;
  }
  return jump_forward;
}

}  // namespace pagoda::scheduling
