#include "engine/request/request_spec.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace pagoda {
namespace {

/// Returns whether `progress` is possible for the request. Sampled sequences begin one after the other, when rows are
/// free. Beams have no tokens before the search has ended.
bool is_valid(const RequestProgress& progress, const RequestSpec& spec) {
  const SamplingParams& sampling = spec.sampling;
  const std::int64_t num_sequences = sampling.use_beam_search ? sampling.n : sampling.num_sequences();
  if (std::ssize(progress.sequences) != num_sequences) return false;
  const std::size_t max_prompt_logprobs = sampling.prompt_logprobs ? spec.own_prompt().size() - 1 : 0;
  if (progress.prompt_logprobs.size() > max_prompt_logprobs || !progress.prompt_logprobs.is_valid()) return false;
  if (!is_valid_count(progress.cached_tokens) || !is_valid_count(progress.preemptions) ||
      !is_valid_count(progress.restarts) || !is_valid_count(progress.draft_tokens) ||
      !is_valid_count(progress.drafts_accepted)) {
    return false;
  }
  const bool has_begun = progress.has_tokens();
  std::int32_t index = 0;
  return std::ranges::all_of(progress.sequences, [&](const RequestProgress::Sequence& sequence) {
    const SequenceResult& result = sequence.result;
    const std::int64_t num_tokens = std::ssize(result.token_ids);
    if (result.index != index++ || num_tokens > sampling.max_tokens) return false;
    if (result.logprobs.has_value() != sampling.reports_logprobs() ||
        result.cumulative_logprob.has_value() != sampling.reports_cumulative_logprob()) {
      return false;
    }
    if (result.logprobs && (!result.logprobs->is_valid() || std::ssize(*result.logprobs) != num_tokens)) return false;
    const auto is_id = [](TokenId token) { return token >= 0; };
    if (!std::ranges::all_of(result.token_ids, is_id)) return false;
    if (sequence.ended || progress.error) return true;
    return sampling.use_beam_search ? !has_begun : num_tokens < sampling.max_tokens;
  });
}

}  // namespace

bool is_valid(const SharedSpec& spec) {
  if (spec == nullptr || spec->prompt == nullptr) return false;
  if (spec->num_virtual_tokens() < 0 || spec->num_virtual_tokens() >= std::ssize(*spec->prompt)) return false;
  const SamplingParams& sampling = spec->sampling;
  constexpr std::int64_t kMaxLogprobs = std::numeric_limits<std::int32_t>::max();
  const auto is_number = [](const std::optional<std::int64_t>& count) {
    return !count || (*count >= 0 && *count <= kMaxLogprobs);
  };
  if (!is_number(sampling.logprobs) || !is_number(sampling.prompt_logprobs)) return false;
  if (sampling.stream_interval.value_or(1) < 1) return false;
  if (std::ranges::any_of(spec->bad_words, &TokenIds::empty)) return false;
  return sampling.n >= 1 && sampling.n <= sampling.num_sequences() &&
         sampling.num_sequences() <= SamplingLimits{}.max_sequences && sampling.max_tokens >= 1 &&
         sampling.thinking_token_budget.value_or(0) >= 0 && is_valid_time(spec->arrival_us) &&
         (spec->progress == nullptr || is_valid(*spec->progress, *spec));
}

bool is_valid(const std::shared_ptr<const ResumeNote>& note) {
  constexpr std::int64_t kMaxKeepMs = (TimeUs{1} << 60U) / 1000;
  return note == nullptr || (note->keep_ms >= 0 && note->keep_ms <= kMaxKeepMs);
}

SharedSpec with_note(const RequestSpec& spec, std::shared_ptr<const ResumeNote> note) {
  auto with = std::make_shared<RequestSpec>(spec);
  with->resume = std::move(note);
  return with;
}

SharedSpec with_progress(const RequestSpec& spec, std::shared_ptr<const RequestProgress> progress) {
  auto with = std::make_shared<RequestSpec>(spec);
  with->progress = std::move(progress);
  return with;
}

}  // namespace pagoda
