#include "engine/routing/router_core.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "engine/routing/prompt_estimate.hpp"
#include "engine/routing/queue_full.hpp"

namespace pagoda::routing {
namespace {

/// Returns the request without its prompt, which may be long and which the tokenizer has.
std::shared_ptr<const GenerateRequest> without_prompt(const GenerateRequest& request) {
  GenerateRequest without;
  without.sampling = request.sampling;
  without.open = request.open;
  without.stream = request.stream;
  without.priority = request.priority;
  without.user = request.user;
  without.cache_salt = request.cache_salt;
  without.adapter = request.adapter;
  without.adapter_fingerprint = request.adapter_fingerprint;
  without.timeout_ms = request.timeout_ms;
  without.request_id = request.request_id;
  without.resumable = request.resumable;
  without.truncate_prompt_tokens = request.truncate_prompt_tokens;
  without.resume = request.resume;
  without.progress = request.progress;
  if (request.prompt) {
    without.prompt.emplace();
  } else {
    without.prompt_token_ids.emplace(1, 0);
  }
  return std::make_shared<const GenerateRequest>(std::move(without));
}

/// Returns whether a request has texts for the tokenizer. A request that has ended samples no token, so its bad words
/// do not count.
bool has_texts(const GenerateRequest& request) {
  return request.prompt || (!request.sampling.bad_words.empty() && !has_ended(request));
}

/// Returns the bytes that the tokenizer reads of a request. It reads bad words twice: with a space before them and
/// without.
std::int64_t text_bytes(const GenerateRequest& request) {
  std::size_t num_bytes = request.prompt_literals.size() * sizeof(ByteRange);
  if (request.prompt) num_bytes += request.prompt->size();
  for (const std::string& word : request.sampling.bad_words) num_bytes += 2 * word.size() + 1;
  return static_cast<std::int64_t>(num_bytes);
}

/// Maximum number of grammars that wait. Each counts as many bytes as keep the compiler busy.
constexpr std::int64_t kMaxGrammars = 256;
constexpr std::int64_t kGrammarBytes = TokenizerQueue::kBytesAtTokenizer;

/// Average number of sequences that live requests may have, whatever their n.
constexpr std::int64_t kSequencesPerRequest = 64;

/// Share of the target that the forecast may use. The forecast is a mean; with this margin most requests come in time.
constexpr double kTtftMargin = 0.8;

/// Maximum time after which a refused client may retry, whatever the length of the queue.
constexpr double kMaxRetryAfterS = 600;

Error shutting_down() {
  return {ErrorCode::shutting_down, "the server is shutting down", {}};
}

Error goes_on_later() {
  return {ErrorCode::shutting_down, "the server is shutting down; the request continues after the restart", {}};
}

/// Returns whether another engine had admitted the request: then no limit of the queue refuses it here.
bool is_recovered(const GenerateRequest& request) {
  return request.progress != nullptr;
}

/// Returns whether the engine samples tokens for the request that a grammar restricts.
bool needs_grammar(const GenerateRequest& request) {
  return request.sampling.structured_outputs && !has_ended(request);
}

/// Returns whether the engine computes tokens of the request with an adapter.
bool needs_adapter(const GenerateRequest& request) {
  return !request.adapter.empty() && !has_ended(request);
}

Error out_of_time(std::int64_t timeout_ms) {
  return {ErrorCode::timeout, "the request did not end within its timeout of " + std::to_string(timeout_ms) +
                                  " ms, which includes waiting"};
}

}  // namespace

RouterCore::RouterCore(const AdmissionLimits& limits, TimeUs started_us)
    : limits_(limits),
      started_us_(started_us),
      placement_({.num_replicas = limits.num_replicas}),
      tokenizer_queue_(limits.max_queued_prompt_bytes),
      grammar_queue_(kMaxGrammars * (kGrammarBytes + TokenizerQueue::kJobBytes), "the grammar compiler"),
      ttft_forecast_(limits.max_num_seqs * limits.num_replicas) {}

bool RouterCore::is_full() const {
  return std::ssize(live_) >= limits_.max_queued_requests ||
         live_sequences_ >= limits_.max_queued_requests * kSequencesPerRequest ||
         live_prompt_tokens_ + estimated_prompt_tokens_ >= limits_.max_queued_prompt_tokens;
}

std::optional<JobId> RouterCore::shared_grammar_job(ClientId client, const StructuredOutput& constraint) const {
  const auto tags = of_client_.find(client);
  if (tags == of_client_.end()) return std::nullopt;
  for (const auto& [job, waiting] : wait_for_grammar_) {
    const Request& request = live_.at(waiting.front());
    if (request.client == client && request.outside->sampling.structured_outputs == constraint) return job;
  }
  return std::nullopt;
}

Status RouterCore::check(ClientId client, std::uint64_t tag, const GenerateRequest& request, bool has_grammar) const {
  if (live_request(client, tag)) {
    return fail(ErrorCode::duplicate_id, "the sink has a live request with this tag");
  }
  if (failure_) return fail(*failure_);
  if (draining_) return fail(shutting_down());
  if (has_ended(request)) return {};
  if (Status valid = check_request(request, limits_); !valid) return valid;
  if (is_recovered(request)) return {};
  if (needs_grammar(request) && !has_grammar && !shared_grammar_job(client, *request.sampling.structured_outputs)) {
    if (Status waits = grammar_queue_.check(client, kGrammarBytes); !waits) return waits;
  }
  if (is_full()) return fail(queue_full());
  if (Status in_time = check_ttft(std::ssize(live_), estimated_prompt_tokens(request)); !in_time) return in_time;
  return has_texts(request) ? tokenizer_queue_.check(client, text_bytes(request)) : Status();
}

Error RouterCore::queue_full() const {
  const std::int64_t prompt_tokens = live_prompt_tokens_ + estimated_prompt_tokens_;
  std::string message = std::to_string(live_.size()) + " requests with " +
                        (estimated_prompt_tokens_ > 0 ? "about " : "") + std::to_string(prompt_tokens) +
                        (prompt_tokens == 1 ? " token" : " tokens") + " are queued";
  const double seconds = work_rate_.seconds_for(std::ssize(live_), prompt_tokens);
  if (seconds <= 0) return {ErrorCode::queue_full, std::move(message), {}, kRetryAfterMs};
  constexpr double kRounding = 1e-6;
  const double retry_after_s = std::clamp(std::ceil(seconds - kRounding), 1.0, kMaxRetryAfterS);
  message += ", about " + std::to_string(std::llround(retry_after_s)) + " s of work at " +
             std::to_string(std::llround(work_rate_.tokens_per_s())) + " tokens/s";
  return {ErrorCode::queue_full, std::move(message), {}, static_cast<int>(retry_after_s) * 1000};
}

Status RouterCore::check_ttft(std::int64_t num_before, std::int64_t prompt_tokens) const {
  // Without requests before it, it cannot be served sooner.
  if (limits_.target_ttft_ms == 0 || num_before == 0) return {};
  const double forecast_s = ttft_forecast_.seconds(num_before, prompt_tokens);
  const double late_s = forecast_s - kTtftMargin * static_cast<double>(limits_.target_ttft_ms) / 1e3;
  if (late_s <= 0) return {};
  const double retry_after_s = std::clamp(std::ceil(late_s), 1.0, kMaxRetryAfterS);
  return fail(Error{ErrorCode::queue_full,
                    "the first token would come after about " + std::to_string(std::llround(forecast_s * 1e3)) +
                        " ms, but the server's target_ttft_ms is " + std::to_string(limits_.target_ttft_ms),
                    {},
                    static_cast<int>(retry_after_s) * 1000});
}

Result<RouterCore::Submitted> RouterCore::submit(ClientId client, std::uint64_t tag, const GenerateRequest& request,
                                                 TimeUs now, const std::optional<grammar::SharedGrammar>& grammar,
                                                 TimeUs waited_us) {
  if (Status checked = check(client, tag, request, grammar.has_value()); !checked) return fail(checked.error());
  Submitted submitted{next_id_++, std::nullopt, std::nullopt, needs_adapter(request)};
  const auto add_to = [&](TokenizerQueue& queue, std::int64_t num_bytes) -> Result<JobId> {
    if (is_recovered(request)) return queue.add_beyond_limits(client, num_bytes);
    return queue.add(client, num_bytes);
  };
  if (has_texts(request)) {
    const auto job = add_to(tokenizer_queue_, text_bytes(request));
    if (!job) return fail(job.error());
    submitted.job = *job;
  }
  std::optional<JobId> grammar_job;
  if (needs_grammar(request) && !grammar) {
    grammar_job = shared_grammar_job(client, *request.sampling.structured_outputs);
    if (!grammar_job) {
      const auto job = add_to(grammar_queue_, kGrammarBytes);
      if (!job) return fail(job.error());
      submitted.grammar_job = grammar_job = *job;
    }
    wait_for_grammar_[*grammar_job].push_back(submitted.id);
  }
  Request entry{.client = client,
                .arrival = {submitted.id, tag, now - waited_us},
                .outside = without_prompt(request),
                .job = submitted.job,
                .grammar_job = grammar_job,
                .waits_for_adapter = submitted.needs_adapter,
                .adapter = {},
                .encoded = nullptr,
                .num_prompt_tokens = 0,
                .estimated_prompt_tokens = estimated_prompt_tokens(request),
                .deadline_us = std::nullopt,
                .timeout_ms = request.timeout_ms.value_or(limits_.default_timeout_ms),
                .num_before = std::ssize(live_),
                .num_sequences = request.sampling.num_sequences(),
                .waited_us = waited_us,
                .request_id = request.request_id,
                .user = request.user,
                .resumable = request.resumable,
                .grammar = grammar.value_or(nullptr)};
  if (entry.timeout_ms > 0) {
    entry.deadline_us = entry.arrival.at_us + entry.timeout_ms * 1000;
    deadlines_.emplace(*entry.deadline_us, submitted.id);
  }
  if (live_.empty()) work_rate_.begin(now);
  estimated_prompt_tokens_ += entry.estimated_prompt_tokens;
  live_sequences_ += entry.num_sequences;
  live_.emplace(submitted.id, std::move(entry));
  ttft_forecast_.on_began(std::ssize(live_), now);
  of_client_[client].emplace(tag, submitted.id);
  return submitted;
}

RouterCore::Effects RouterCore::prompt_encoded(RequestId id, Result<TokenIds> prompt, std::vector<TokenIds> bad_words) {
  const auto found = live_.find(id);
  if (found == live_.end() || !found->second.outside) return {};
  Request& request = found->second;
  request.job.reset();
  auto spec = make_spec(request.arrival, *request.outside, std::move(prompt), limits_, std::move(bad_words));
  Effects effects;
  if (!spec) {
    refuse(found, std::move(spec.error()), effects);
    return with_end_of_drain(std::move(effects));
  }
  const std::int64_t num_prompt_tokens = std::ssize(*(*spec)->prompt);
  const bool has_limit = !is_recovered(*request.outside);
  if (Status in_time = has_limit ? check_ttft(request.num_before, num_prompt_tokens) : Status(); !in_time) {
    refuse(found, std::move(in_time.error()), effects);
    return with_end_of_drain(std::move(effects));
  }
  estimated_prompt_tokens_ -= std::exchange(request.estimated_prompt_tokens, 0);
  request.num_prompt_tokens = num_prompt_tokens;
  live_prompt_tokens_ += request.num_prompt_tokens;
  request.encoded = std::move(*spec);
  enter_if_ready(found, effects);
  return with_end_of_drain(std::move(effects));
}

RouterCore::Effects RouterCore::grammar_compiled(JobId job, const Result<grammar::SharedGrammar>& grammar) {
  const auto waiting = wait_for_grammar_.extract(job);
  Effects effects;
  for (const RequestId id : waiting ? waiting.mapped() : std::vector<RequestId>{}) {
    const auto found = live_.find(id);
    Request& request = found->second;
    request.grammar_job.reset();
    if (!grammar) {
      refuse(found, grammar.error(), effects);
      continue;
    }
    request.grammar = *grammar;
    enter_if_ready(found, effects);
  }
  return with_end_of_drain(std::move(effects));
}

RouterCore::Effects RouterCore::adapter_acquired(RequestId id, Result<AdapterRef> adapter) {
  Effects effects;
  const auto found = live_.find(id);
  if (found == live_.end() || !found->second.waits_for_adapter) {
    if (adapter) effects.adapters_released.push_back(adapter->id);
    return effects;
  }
  Request& request = found->second;
  request.waits_for_adapter = false;
  if (adapter) {
    request.adapter = std::move(*adapter);
    enter_if_ready(found, effects);
  } else {
    refuse(found, std::move(adapter.error()), effects);
  }
  return with_end_of_drain(std::move(effects));
}

void RouterCore::refuse(Requests::iterator request, Error error, Effects& effects) {
  withdraw(request->first, request->second, effects);
  effects.settled.push_back({request->first, std::move(error)});
  leave_outside(request, effects);
}

void RouterCore::enter_if_ready(Requests::iterator entry, Effects& effects) {
  auto& [id, request] = *entry;
  if (!request.encoded || request.grammar_job || request.waits_for_adapter) return;
  if (placement_.count(placement::ReplicaState::down) == placement_.num_replicas()) {
    return refuse(entry, {ErrorCode::internal, "no replica is left"}, effects);
  }
  SharedSpec spec = std::exchange(request.encoded, nullptr);
  if (request.adapter.id != 0) {
    auto with = with_adapter(*spec, *request.outside, request.adapter, limits_);
    if (!with) return refuse(entry, std::move(with.error()), effects);
    spec = std::move(*with);
  }
  if (request.grammar) {
    auto with = std::make_shared<RequestSpec>(*spec);
    with->grammar = std::exchange(request.grammar, nullptr);
    spec = std::move(with);
  }
  request.outside = nullptr;
  placement_.place(*spec);
  effects.settled.push_back({id, std::move(spec)});
}

std::optional<RequestId> RouterCore::live_request(ClientId client, std::uint64_t tag) const {
  const auto tags = of_client_.find(client);
  if (tags == of_client_.end()) return std::nullopt;
  const auto id = tags->second.find(tag);
  return id == tags->second.end() ? std::nullopt : std::optional(id->second);
}

RouterCore::Effects RouterCore::abort(RequestId id, TimeUs now) {
  Effects effects;
  abort(id, now, effects);
  return with_end_of_drain(std::move(effects));
}

void RouterCore::abort(RequestId id, TimeUs now, Effects& effects) {
  const auto found = live_.find(id);
  if (found == live_.end()) return;
  Request& request = found->second;
  if (!request.outside) {
    effects.aborted.push_back(id);
    return;
  }
  withdraw(id, request, effects);
  ++aborted_outside_;
  auto result = result_before_start(request.arrival, *request.outside, now, limits_);
  effects.settled.push_back({id, RequestOutput{id, request.arrival.tag, {}, std::move(result), std::nullopt}});
  leave_outside(found, effects);
}

RouterCore::Effects RouterCore::closed(RequestId id, const WorkDone& work, TimeUs now) {
  Effects effects;
  if (const auto found = live_.find(id); found != live_.end()) {
    work_rate_.on_ended(work, now);
    if (work.ttft_us > 0) {
      const TimeUs waited_us = found->second.waited_us;
      ttft_forecast_.record_times(found->second.num_before, std::max<TimeUs>(0, work.queue_us - waited_us),
                                  work.ttft_us - waited_us, work.prompt_tokens);
    }
    forget(found, effects);
    ttft_forecast_.on_ended(std::ssize(live_), now);
  }
  return with_end_of_drain(std::move(effects));
}

std::optional<TimeUs> RouterCore::next_deadline() const {
  return deadlines_.empty() ? std::nullopt : std::optional(deadlines_.begin()->first);
}

RouterCore::Effects RouterCore::expire(TimeUs now) {
  Effects effects;
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto found = live_.find(deadlines_.begin()->second);
    Request& request = found->second;
    Error error = out_of_time(request.timeout_ms);
    if (request.outside) {
      refuse(found, std::move(error), effects);
      continue;
    }
    deadlines_.erase(deadlines_.begin());
    request.deadline_us.reset();
    effects.expired.push_back({found->first, std::move(error)});
  }
  return with_end_of_drain(std::move(effects));
}

RouterCore::Effects RouterCore::client_gone(ClientId client, TimeUs now) {
  Effects effects;
  if (const auto tags = of_client_.find(client); tags != of_client_.end()) {
    const TagMap requests = tags->second;  // abort removes them from the original
    for (const auto& [tag, id] : requests) abort(id, now, effects);
  }
  for (const JobId job : tokenizer_queue_.forget(client)) effects.taken_back.push_back(job);
  for (const JobId job : grammar_queue_.forget(client)) effects.grammars_taken_back.push_back(job);
  return with_end_of_drain(std::move(effects));
}

Result<JobId> RouterCore::ask(ClientId client, std::size_t num_bytes) {
  if (failure_) return fail(*failure_);
  return tokenizer_queue_.add(client, static_cast<std::int64_t>(num_bytes));
}

std::optional<JobId> RouterCore::next_job() {
  if (failure_) return std::nullopt;
  return tokenizer_queue_.next();
}

std::optional<JobId> RouterCore::next_grammar() {
  if (failure_) return std::nullopt;
  return grammar_queue_.next();
}

Error RouterCore::no_answer() const {
  return failure_.value_or(Error{ErrorCode::internal, "an actor of the engine has ended"});
}

RouterCore::Effects RouterCore::drain() {
  draining_ = true;
  drain_waits_ = true;
  return with_end_of_drain({});
}

RouterCore::Effects RouterCore::abort_all(TimeUs now, bool leave_resumable) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : live_) ids.push_back(id);
  Effects effects;
  for (const RequestId id : ids) {
    const auto found = live_.find(id);
    const bool is_left = leave_resumable && found->second.resumable;
    if (is_left && !found->second.outside) {
      effects.expired.push_back({id, goes_on_later()});
      continue;
    }
    ++aborted_by_drain_;
    if (is_left) {
      // It is not in the journal yet: its client sends it again.
      refuse(found, shutting_down(), effects);
    } else {
      abort(id, now, effects);
    }
  }
  return with_end_of_drain(std::move(effects));
}

Result<std::int64_t> RouterCore::drained() const {
  if (failure_) return fail(*failure_);
  return aborted_by_drain_;
}

RouterCore::Effects RouterCore::engine_failed(Error error) {
  failure_ = std::move(error);
  Effects effects;
  for (auto next = live_.begin(); next != live_.end();) {
    const auto request = next++;
    if (!request->second.outside) continue;
    withdraw(request->first, request->second, effects);
    effects.settled.push_back({request->first, *failure_});
    leave_outside(request, effects);
  }
  return with_end_of_drain(std::move(effects));
}

/// Takes back what a request waits for. A job that has begun, or that other requests need too, continues.
void RouterCore::withdraw(RequestId id, const Request& request, Effects& effects) {
  if (request.job) {
    tokenizer_queue_.withdraw(*request.job);
    effects.taken_back.push_back(*request.job);
  }
  if (request.waits_for_adapter) effects.adapters_withdrawn.push_back(id);
  if (!request.grammar_job) return;
  const auto waiting = wait_for_grammar_.find(*request.grammar_job);
  std::erase(waiting->second, id);
  if (!waiting->second.empty()) return;
  wait_for_grammar_.erase(waiting);
  grammar_queue_.withdraw(*request.grammar_job);
  effects.grammars_taken_back.push_back(*request.grammar_job);
}

void RouterCore::forget(Requests::iterator request, Effects& effects) {
  const auto& [id, entry] = *request;
  const auto tags = of_client_.find(entry.client);
  tags->second.erase(entry.arrival.tag);
  if (tags->second.empty()) of_client_.erase(tags);
  live_prompt_tokens_ -= entry.num_prompt_tokens;
  estimated_prompt_tokens_ -= entry.estimated_prompt_tokens;
  live_sequences_ -= entry.num_sequences;
  if (entry.deadline_us) deadlines_.erase({*entry.deadline_us, id});
  placement_.ended(id);
  if (entry.adapter.id != 0) effects.adapters_released.push_back(entry.adapter.id);
  live_.erase(request);
}

void RouterCore::leave_outside(Requests::iterator request, Effects& effects) {
  forget(request, effects);
  ttft_forecast_.on_left(std::ssize(live_));
}

RouterCore::Effects RouterCore::with_end_of_drain(Effects effects) {
  if (live_.empty()) effects.drained = std::exchange(drain_waits_, false);
  return effects;
}

}  // namespace pagoda::routing
