#include "engine/output/output_core.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "engine/text/unicode.hpp"

namespace pagoda::output {
namespace {

/// Returns the value that best_of compares, as vLLM does. A sequence without tokens is worse than any other.
double rank_of(const SequenceResult& result) {
  return result.token_ids.empty() ? -std::numeric_limits<double>::infinity() : *result.cumulative_logprob;
}

double seconds_between(TimeUs from, TimeUs to) {
  return static_cast<double>(to - from) / 1e6;
}

/// Special tokens are text if a grammar allows them, or if they may be marks.
bool skips_special_tokens(const SamplingParams& sampling) {
  return sampling.skip_special_tokens && !sampling.structured_outputs && !sampling.shows_marks;
}

std::int64_t num_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

/// Returns the ending of a request from that of its worst sequence.
metrics::RequestEnding ending_of(FinishReason worst) {
  switch (worst) {
    case FinishReason::stop:
      return metrics::RequestEnding::stop;
    case FinishReason::length:
      return metrics::RequestEnding::length;
    case FinishReason::abort:
      return metrics::RequestEnding::abort;
  }
  return metrics::RequestEnding::abort;
}

}  // namespace

bool OutputCore::open(SharedSpec spec) {
  const SamplingParams& sampling = spec->sampling;
  RequestState request;
  const auto stop_strings = std::make_shared<const text::StopStrings>(sampling.stop);
  const auto scope = sampling.answer_marks && !sampling.stop.empty()
                         ? std::make_shared<const text::AnswerScope>(*sampling.answer_marks)
                         : nullptr;
  const text::IncrementalDetokenizer detokenizer(tokenizer_, skips_special_tokens(sampling), spec->own_prompt(),
                                                 sampling.spaces_between_special_tokens);
  // The outputs of a beam search come when it has ended, and only for the sequences that it returns.
  const std::int64_t num_sequences = sampling.use_beam_search ? sampling.n : sampling.num_sequences();
  for (std::int32_t index = 0; index < num_sequences; ++index) {
    SequenceState sequence{detokenizer, {stop_strings, sampling.include_stop_str_in_output, scope}, {}, {}};
    sequence.result.index = sequence.delta.index = index;
    if (sampling.reports_logprobs()) sequence.result.logprobs.emplace(tokenizer_);
    if (sampling.reports_cumulative_logprob()) sequence.result.cumulative_logprob = 0.0;
    request.sequences.push_back(std::move(sequence));
  }
  request.prompt_logprobs.set_texts(tokenizer_);
  if (const auto& progress = spec->progress) {
    for (std::size_t i = 0; i < request.sequences.size(); ++i) {
      const RequestProgress::Sequence& before = progress->sequences[i];
      if (!restore(*spec, before.result, before.ended, request.sequences[i])) return false;
      request.num_ended += before.ended ? 1 : 0;
    }
    request.prompt_logprobs.add(progress->prompt_logprobs);
    request.cached_tokens = std::min<std::int64_t>(progress->cached_tokens, std::ssize(spec->own_prompt()));
    request.preemptions = progress->preemptions;
    request.restarts = progress->restarts + 1;
    request.draft_tokens = progress->draft_tokens;
    request.drafts_accepted = progress->drafts_accepted;
  }
  const RequestId id = spec->id;
  request.spec = std::move(spec);
  requests_.emplace(id, std::move(request));
  return true;
}

bool OutputCore::takes(const StepOutputs& step) const {
  return std::ranges::all_of(step.outputs, [&](const SequenceOutput& output) {
    const auto found = requests_.find(output.request);
    return found == requests_.end() ||
           (output.sequence_index >= 0 && output.sequence_index < std::ssize(found->second.sequences));
  });
}

OutputCore::Effects OutputCore::process(const StepOutputs& step, TimeUs now) {
  Effects effects;
  std::vector<RequestId> touched;
  const auto touch = [&](RequestId id) -> RequestState* {
    const auto found = requests_.find(id);
    if (found == requests_.end()) return nullptr;
    if (!std::exchange(found->second.touched, true)) touched.push_back(id);
    return &found->second;
  };

  forget_ended(now);
  take_facts(step);
  for (const SequenceOutput& output : step.outputs) {
    RequestState* request = touch(output.request);
    if (request == nullptr) continue;
    PAGODA_ASSERT(output.sequence_index >= 0 && output.sequence_index < std::ssize(request->sequences),
                  "outputs are of a request's own sequences");
    SequenceState& sequence = request->sequences[static_cast<std::size_t>(output.sequence_index)];
    // A stop string ended it; the scheduler has not received this yet.
    if (sequence.ended) continue;
    if (output.token) {
      count_token(*request, sequence, step.finished_us);
      if (request->first_token_us < 0) request->first_token_us = step.finished_us;
      take_token(*request, sequence, output, effects);
    }
    if (output.finished && !sequence.ended) {
      if (output.stop_token) sequence.result.stop_reason = *output.stop_token;
      end_sequence(*request, sequence, *output.finished);
    }
  }
  for (const RequestEnd& end : step.ends) {
    RequestState* request = touch(end.request);
    if (request == nullptr) continue;
    if (end.error) {
      RequestOutput output{request->spec->id, request->spec->tag, {}, std::nullopt, end.error};
      effects.outputs.push_back(std::move(output));
      metrics_.ended(metrics::RequestEnding::error);
      remember_end(*request, std::nullopt, now);
      keep_ended(*request, end.error, now);
      requests_.erase(end.request);
      continue;
    }
    for (SequenceState& sequence : request->sequences) {
      if (!sequence.ended) end_sequence(*request, sequence, FinishReason::abort);
    }
  }

  for (const RequestId id : touched) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    RequestState& request = found->second;
    request.touched = false;
    RequestOutput output{id, request.spec->tag, {}, std::nullopt, std::nullopt};
    const bool done = request.num_ended == request.sequences.size();
    // Deltas come in the order of the sequences, also beside a result that is sorted best first.
    const bool chooses_at_end = request.spec->sampling.chooses_at_end();
    if (done) keep_ended(request, std::nullopt, now);
    if (done && chooses_at_end) keep_best(request);
    if (done || !chooses_at_end) take_deltas(request, output);
    if (done) count_end(request, now);
    if (done) finish(request, now, output);
    if (done || !output.deltas.empty()) effects.outputs.push_back(std::move(output));
    if (done) requests_.erase(found);
  }
  return effects;
}

/// Stores the facts that are sent with the end of a request.
void OutputCore::take_facts(const StepOutputs& step) {
  for (const RequestStarted& started : step.started) {
    const auto found = requests_.find(started.request);
    if (found == requests_.end()) continue;
    if (found->second.first_scheduled_us >= 0) continue;  // it has begun on another replica
    found->second.first_scheduled_us = started.first_scheduled_us;
    // A request that continues is admitted with its output, of which tokens may be cached, too.
    const RequestSpec& spec = *found->second.spec;
    found->second.cached_tokens =
        std::clamp<std::int64_t>(started.cached_tokens - spec.num_virtual_tokens(), 0, std::ssize(spec.own_prompt()));
  }
  for (const RequestInterrupted& interrupted : step.interrupted) {
    const auto found = requests_.find(interrupted.request);
    if (found == requests_.end()) continue;
    ++(interrupted.what == Interruption::preempted ? found->second.preemptions : found->second.restarts);
  }
  for (const RowDrafts& row : step.drafts) {
    const auto found = requests_.find(row.request);
    if (found == requests_.end()) continue;
    found->second.draft_tokens += row.num_drafts;
    found->second.drafts_accepted += row.num_accepted;
  }
  for (const PromptLogprobsOutput& output : step.prompt_logprobs) {
    const auto found = requests_.find(output.request);
    if (found == requests_.end()) continue;
    for (const TokenReport& report : output.tokens) found->second.prompt_logprobs.add(report, 0);
  }
}

void OutputCore::count_token(RequestState& request, SequenceState& sequence, TimeUs sampled) {
  if (request.first_token_us < 0) {
    metrics_.time_to_first_token.observe(seconds_between(request.spec->arrival_us, sampled));
  } else if (sequence.last_token_us >= 0) {
    metrics_.inter_token_latency.observe(seconds_between(sequence.last_token_us, sampled));
  }
  sequence.last_token_us = request.last_token_us = sampled;
}

/// Counts the end of a request. Call before its results are moved out.
void OutputCore::count_end(const RequestState& request, TimeUs now) {
  auto worst = FinishReason::stop;
  std::int64_t num_tokens = request.discarded_tokens;
  std::int64_t longest = 0;
  for (const SequenceState& sequence : request.sequences) {
    worst = std::max(worst, sequence.result.finish_reason);
    num_tokens += std::ssize(sequence.result.token_ids);
    longest = std::max<std::int64_t>(longest, std::ssize(sequence.result.token_ids));
  }
  metrics_.ended(ending_of(worst));
  remember_end(request, worst, now);
  if (worst == FinishReason::abort) return;
  const RequestSpec& spec = *request.spec;
  // A request without tokens counts as if its prompt was computed at its end.
  const TimeUs scheduled = request.first_scheduled_us < 0 ? now : request.first_scheduled_us;
  const TimeUs first = request.first_token_us < 0 ? now : request.first_token_us;
  const TimeUs last = std::max(first, request.last_token_us);
  metrics_.e2e.observe(seconds_between(spec.arrival_us, now));
  metrics_.queue.observe(seconds_between(spec.arrival_us, scheduled));
  metrics_.prefill.observe(seconds_between(scheduled, first));
  metrics_.decode.observe(seconds_between(first, last));
  metrics_.inference.observe(seconds_between(scheduled, last));
  if (longest > 1) {
    metrics_.time_per_output_token.observe(seconds_between(first, last) / static_cast<double>(longest - 1));
  }
  metrics_.prompt_tokens.observe(static_cast<double>(spec.own_prompt().size()));
  metrics_.generation_tokens.observe(static_cast<double>(num_tokens));
  metrics_.max_generation_tokens.observe(static_cast<double>(longest));
  metrics_.n.observe(static_cast<double>(spec.sampling.n));
  metrics_.max_tokens.observe(static_cast<double>(spec.sampling.max_tokens));
}

/// Stores the end of a request for observers. Call before its results are moved out.
void OutputCore::remember_end(const RequestState& request, std::optional<FinishReason> reason, TimeUs now) {
  std::int64_t num_tokens = request.discarded_tokens;
  for (const SequenceState& sequence : request.sequences) num_tokens += std::ssize(sequence.result.token_ids);
  ended_.add({.id = request.spec->id,
              .finish_reason = reason,
              .prompt_tokens = std::ssize(request.spec->own_prompt()),
              .cached_tokens = request.cached_tokens,
              .completion_tokens = num_tokens,
              .adapter = request.spec->adapter.name,
              .ended_us = now,
              .arrival_us = request.spec->arrival_us,
              .first_scheduled_us = request.first_scheduled_us,
              .first_token_us = request.first_token_us,
              .preemptions = request.preemptions,
              .restarts = request.restarts,
              .draft_tokens = request.draft_tokens,
              .drafts_accepted = request.drafts_accepted});
}

view::RequestFacts OutputCore::facts(std::span<const RequestId> requests) const {
  view::RequestFacts facts;
  for (const RequestId id : requests) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    const RequestState& request = found->second;
    facts.open.push_back({id, request.first_token_us, request.cached_tokens, request.preemptions, request.restarts,
                          request.draft_tokens, request.drafts_accepted});
  }
  facts.ended = ended_.all();
  return facts;
}

void OutputCore::put_best_first(RequestState& request) {
  if (!request.spec->sampling.ranks_outputs()) return;
  std::ranges::stable_sort(request.sequences, std::ranges::greater{},
                           [](const SequenceState& sequence) { return rank_of(sequence.result); });
}

void OutputCore::keep_best(RequestState& request) {
  auto& sequences = request.sequences;
  const auto n = static_cast<std::size_t>(request.spec->sampling.n);
  if (sequences.size() <= n) return;
  put_best_first(request);
  for (auto other = sequences.begin() + static_cast<std::ptrdiff_t>(n); other != sequences.end(); ++other) {
    request.discarded_tokens += std::ssize(other->result.token_ids);
  }
  sequences.erase(sequences.begin() + static_cast<std::ptrdiff_t>(n), sequences.end());
  for (std::size_t i = 0; i < n; ++i) {
    sequences[i].result.index = sequences[i].delta.index = static_cast<std::int32_t>(i);
  }
}

void OutputCore::take_deltas(RequestState& request, RequestOutput& output) {
  for (SequenceState& sequence : request.sequences) {
    auto complete = std::exchange(sequence.complete_deltas, {});
    if (request.spec->stream) std::ranges::move(complete, std::back_inserter(output.deltas));
    if (sequence.delta.token_ids.empty() && sequence.delta.text.empty()) continue;
    if (!sequence.ended && !is_delta_complete(*request.spec, sequence)) continue;
    const std::int32_t index = sequence.delta.index;
    sequence.delta.ended = sequence.ended;
    if (request.spec->stream) output.deltas.push_back(std::move(sequence.delta));
    sequence.delta = SequenceDelta{};
    sequence.delta.index = index;
  }
}

void OutputCore::take_token(RequestState& request, SequenceState& sequence, const SequenceOutput& output,
                            Effects& effects) {
  const SamplingParams& sampling = request.spec->sampling;
  const TokenReport& token = *output.token;
  const bool is_sent_at_end = sampling.use_beam_search || sampling.chooses_at_end();
  if (!is_sent_at_end && !sequence.delta.token_ids.empty() && is_delta_complete(*request.spec, sequence)) {
    sequence.complete_deltas.push_back(std::exchange(sequence.delta, {}));
    sequence.delta.index = sequence.result.index;
  }
  sequence.result.token_ids.push_back(token.token);
  sequence.delta.token_ids.push_back(token.token);
  if (sequence.result.cumulative_logprob) {
    *sequence.result.cumulative_logprob += static_cast<double>(token.logprob);
  }
  if (sampling.reports_logprobs()) {
    if (request.spec->stream) {
      sequence.delta.logprobs.set_texts(tokenizer_);
      sequence.delta.logprobs.add(token, sequence.num_characters);
    }
    sequence.result.logprobs->add(token, sequence.num_characters);
  }
  // The text of the token that stops a sequence is left out, unless the request wants it in the output.
  const bool is_skipped = sampling.skip_special_tokens && tokenizer_->is_special(token.token);
  if (output.finished != FinishReason::stop || (!is_skipped && sampling.include_stop_str_in_output)) {
    // As in vLLM, and unlike end tokens, a stop string counts only behind min_tokens.
    const bool may_stop = static_cast<std::int64_t>(sequence.result.token_ids.size()) > sampling.min_tokens;
    take_text(sequence, push_token(*request.spec, sequence, token.token, may_stop), *request.spec, effects);
    if (sequence.ended) ++request.num_ended;
  }
  sequence.result.text_ends.push_back(sequence.result.text.size());
}

text::AnswerStopMatcher::Output OutputCore::push_token(const RequestSpec& spec, SequenceState& sequence, TokenId token,
                                                       bool may_stop) const {
  if (!spec.sampling.detokenize) return {};
  if (skips_special_tokens(spec.sampling) && spec.sampling.answer_marks) {
    if (const auto hidden = tokenizer_->special_text(token))
      return sequence.stop_matcher.push_hidden(*hidden, may_stop);
  }
  const std::string text = sequence.detokenizer.push(token);
  sequence.num_characters += num_characters(text);
  return text.empty() ? text::AnswerStopMatcher::Output{} : sequence.stop_matcher.push(text, may_stop);
}

bool OutputCore::is_delta_complete(const RequestSpec& spec, const SequenceState& sequence) {
  const std::int64_t num_behind_first = std::ssize(sequence.result.token_ids) - 1;
  return num_behind_first % spec.sampling.stream_interval.value_or(1) == 0;
}

void OutputCore::take_text(SequenceState& sequence, text::AnswerStopMatcher::Output matched, const RequestSpec& spec,
                           Effects& effects) {
  sequence.result.text += matched.text;
  sequence.delta.text += matched.text;
  if (!matched.stop) return;
  sequence.ended = true;
  sequence.result.finish_reason = FinishReason::stop;
  sequence.result.stop_reason = spec.sampling.stop[*matched.stop];
  effects.stop_hits.push_back({spec.id, sequence.result.index});
}

void OutputCore::end_sequence(RequestState& request, SequenceState& sequence, FinishReason reason) {
  sequence.result.finish_reason = reason;
  sequence.ended = true;
  ++request.num_ended;
  // The scheduler already knows that the sequence has ended.
  Effects ignored;
  const bool may_stop = reason == FinishReason::length;
  const std::string last = sequence.detokenizer.flush();
  if (!last.empty()) take_text(sequence, sequence.stop_matcher.push(last, may_stop), *request.spec, ignored);
  if (!ignored.stop_hits.empty()) return;
  take_text(sequence, sequence.stop_matcher.finish(may_stop), *request.spec, ignored);
}

/// Sets the text offsets of the prompt's log-probabilities. Behind a special token at its beginning, the prompt is
/// decoded as a text of its own.
void OutputCore::set_prompt_offsets(RequestState& request) const {
  const auto prompt = request.spec->own_prompt();
  text::IncrementalDetokenizer detokenizer(tokenizer_, /*skip_special_tokens=*/false, {});
  const auto first = tokenizer_->special_text(prompt.front());
  std::int64_t offset = first ? num_characters(*first) : 0;
  for (std::size_t i = 0; i <= request.prompt_logprobs.size() && i < prompt.size(); ++i) {
    if (i > 0) request.prompt_logprobs.set_text_offset(i - 1, offset);
    if (i > 0 || !first) offset += num_characters(detokenizer.push(prompt[i]));
  }
}

void OutputCore::finish(RequestState& request, TimeUs now, RequestOutput& output) const {
  const auto ms_since_arrival = [&](TimeUs us) {
    return us < 0 ? 0.0 : static_cast<double>(us - request.spec->arrival_us) / 1000.0;
  };
  const bool has_run = request.first_scheduled_us >= 0;
  put_best_first(request);
  RequestResult result;
  result.usage.prompt_tokens = std::ssize(request.spec->own_prompt());
  result.usage.cached_tokens = request.cached_tokens;
  result.usage.completion_tokens = request.discarded_tokens;
  for (SequenceState& sequence : request.sequences) {
    result.usage.completion_tokens += static_cast<std::int64_t>(sequence.result.token_ids.size());
    result.outputs.push_back(std::move(sequence.result));
  }
  result.timing = {.queue_ms = ms_since_arrival(request.first_scheduled_us),
                   .ttft_ms = ms_since_arrival(request.first_token_us),
                   .total_ms = ms_since_arrival(now),
                   .cache_miss = has_run ? result.usage.prompt_tokens - request.cached_tokens : 0,
                   .preemptions = request.preemptions,
                   .restarts = request.restarts,
                   .draft_tokens = request.draft_tokens,
                   .drafts_accepted = request.drafts_accepted};
  if (request.spec->sampling.prompt_logprobs) {
    set_prompt_offsets(request);
    result.prompt_logprobs = std::move(request.prompt_logprobs);
  }
  output.done = std::move(result);
}

}  // namespace pagoda::output
