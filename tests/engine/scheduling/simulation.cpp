#include "tests/engine/scheduling/simulation.hpp"

#include <algorithm>
#include <utility>

#include "tests/engine/scheduling/simulated_grammar.hpp"

namespace pagoda::test {
namespace {

scheduling::SchedulerConfig with_eos(scheduling::SchedulerConfig config) {
  config.eos_token_ids = {kEos};
  config.vocab_size = kVocab;
  config.thinking = kThinking;
  return config;
}

/// Returns whether the mailbox still has the news of a replacement, so that its owner sends to an actor that has ended.
template <class News, class Mailbox>
bool is_still_to_hear(const Mailbox& mailbox) {
  return std::ranges::any_of(mailbox, [](const auto& message) { return std::holds_alternative<News>(message); });
}

}  // namespace

Simulation::Simulation(const SimulationConfig& config, std::uint64_t seed, const journal::SharedJournal& journal)
    : config_(config),
      model_(config),
      random_(seed),
      scheduler_(with_eos(config.scheduler), journal),
      blocks_(config.blocks, journal),
      device_(
          config, model_, seed, [this](const RowSpec& row) { return request_of(row); }, journal) {}

SharedSpec Simulation::request_of(const RowSpec& row) {
  const auto found =
      std::ranges::find_if(received_, [&](const auto& entry) { return entry.second.spec->seed == row.seed; });
  PAGODA_ASSERT(found != received_.end(), "a row comes for a request that nobody has made");
  return found->second.spec;
}

void Simulation::arrive() {
  for (std::int32_t i = 0; i < config_.burst && arrived_ < config_.num_requests; ++i) add_request();
  after_scheduler_event();
}

void Simulation::add_request() {
  auto spec = std::make_shared<RequestSpec>();
  spec->id = static_cast<RequestId>(++arrived_);
  spec->seed = random_();
  spec->arrival_us = now_;
  spec->priority = static_cast<std::int64_t>(random_() % 3);
  spec->user = "tenant" + std::to_string(random_() % 3);
  spec->cache_salt = random_() % 4 == 0 && !config_.alike ? "salt" : "";
  const auto length = static_cast<std::size_t>(1 + random_() % static_cast<std::uint64_t>(config_.most_prompt_tokens));
  TokenIds prompt;
  const std::uint64_t family = config_.alike ? 0 : random_() % 2;  // prompts of a family share their beginning
  for (std::size_t i = 0; i < length; ++i) {
    prompt.push_back(i < 24 || config_.alike ? static_cast<TokenId>(1 + (i * 7 + family) % (kVocab - 1))
                                             : static_cast<TokenId>(1 + random_() % (kVocab - 1)));
  }
  spec->prompt = std::make_shared<const TokenIds>(std::move(prompt));
  spec->sampling.max_tokens =
      1 + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(config_.most_new_tokens));
  const auto most = std::min(config_.most_samples, config_.scheduler.max_num_seqs);
  const auto up_to = [&](std::int64_t count) {
    return 1 + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(count));
  };
  spec->sampling.n = random_() % 3 == 0 ? up_to(most) : 1;
  if (random_() % 4 == 0) spec->sampling.best_of = spec->sampling.n + up_to(most - spec->sampling.n + 1) - 1;
  // Some requests want so many that a step has room for only a few tokens.
  if (random_() % 5 == 0)
    spec->sampling.prompt_logprobs = spec->id % 3 == 0 ? scheduling::kMaxPromptLogprobsOfStep / 7 : 0;
  if (static_cast<double>(random_() % 1000) < config_.beam_chance * 1000) {
    spec->sampling.use_beam_search = true;
    spec->sampling.best_of = up_to(most);
    spec->sampling.n = up_to(*spec->sampling.best_of);
    spec->sampling.early_stopping = static_cast<EarlyStopping>(random_() % 3);
    spec->sampling.length_penalty = static_cast<double>(random_() % 3);
  }
  Received& received = received_[spec->id];
  received.spec = spec;
  if (config_.poison_chance > 0 && static_cast<double>(random_() % 1000) < config_.poison_chance * 1000) {
    received.is_poison = true;
    device_.poison(spec->id, static_cast<std::int32_t>(random_() % (length + 12)));
  }
  // Derived from the seed and not drawn, so that later draws of a seed do not change.
  if (static_cast<double>(spec->seed % 1000) < config_.grammar_chance * 1000) {
    spec->grammar = simulated_grammar(spec->seed / 1'000'000'000'000);
    // Lets a replay compile the grammar.
    if (spec->grammar)
      spec->sampling.structured_outputs.emplace().text = std::to_string(spec->seed / 1'000'000'000'000);
  }
  if (static_cast<double>(spec->seed / 1000 % 1000) < config_.budget_chance * 1000) {
    spec->sampling.thinking_token_budget = static_cast<std::int64_t>(spec->seed / 1'000'000 % 8);
  }
  if (static_cast<double>(spec->seed / 7 % 1000) < config_.adapter_chance * 1000)
    spec->adapter.id = 1 + spec->seed / 7000 % 5;
  // A prompt adapter: the first tokens are its virtual tokens.
  constexpr std::size_t kVirtualTokens = 6;
  if (spec->adapter.id >= 4) {
    spec->adapter.facts.num_virtual_tokens = static_cast<std::int32_t>(std::min(kVirtualTokens, length - 1));
  }
  if (static_cast<double>(spec->seed / 1'000'000'000 % 1000) < config_.resume_chance * 1000) resume(*spec, received);
  scheduler_.add_group(spec);
}

void Simulation::resume(RequestSpec& spec, Received& received) const {
  if (spec.sampling.use_beam_search) return;  // nothing of a beam search is reported before its end
  auto progress = std::make_shared<RequestProgress>();
  for (std::int32_t index = 0; index < spec.sampling.num_sequences(); ++index) {
    const TokenIds right = model_.right_answer(spec, index);
    // The first sequence continues, unless its first token is its last.
    const std::size_t most = index == 0 ? right.size() - 1 : right.size();
    if (most == 0) return;
    // Other sequences may not have begun yet.
    const bool waits = index > 0 && (spec.seed >> static_cast<unsigned>(index % 32 + 16)) % 3 == 0;
    const std::size_t known = waits ? 0 : 1 + (spec.seed >> static_cast<unsigned>(index)) % most;
    auto& sequence = progress->sequences.emplace_back();
    sequence.result.index = index;
    sequence.result.token_ids.assign(right.begin(), right.begin() + static_cast<std::ptrdiff_t>(known));
    if (spec.sampling.reports_cumulative_logprob()) sequence.result.cumulative_logprob = 0;
    sequence.ended = known == right.size();
  }
  for (const auto& [result, ended] : progress->sequences) {
    received.tokens[result.index] = result.token_ids;
    if (ended) received.finished[result.index] = FinishReason::stop;
  }
  if (spec.sampling.prompt_logprobs) {
    const auto own = spec.own_prompt();
    for (std::size_t i = 1; i < own.size(); ++i) progress->prompt_logprobs.add(LogprobEntry{});
    received.prompt_logprobs.assign(own.begin() + 1, own.end());
  }
  spec.progress = std::move(progress);
}

void Simulation::give_up(RequestId request) {
  const StepId last_planned = scheduler_.core().last_planned();
  forget_samples_of(request);
  if (scheduler_.release_group(request)) given_up_.emplace(request, last_planned);
}

void Simulation::give_back() {
  for (auto request = given_up_.begin(); request != given_up_.end();) {
    const auto& [id, last_planned] = *request;
    if (!scheduler_.core().is_given_up(last_planned)) {
      ++request;
      continue;
    }
    const Received& received = received_.at(id);
    const RequestSpec& spec = *received.spec;
    auto progress = std::make_shared<RequestProgress>();
    const bool is_beam_search = spec.sampling.use_beam_search;
    const std::int64_t count = is_beam_search ? spec.sampling.n : spec.sampling.num_sequences();
    for (std::int32_t index = 0; index < count; ++index) {
      auto& sequence = progress->sequences.emplace_back();
      sequence.result.index = index;
      if (const auto tokens = received.tokens.find(index); tokens != received.tokens.end()) {
        sequence.result.token_ids = tokens->second;
      }
      if (spec.sampling.reports_cumulative_logprob()) sequence.result.cumulative_logprob = 0;
      sequence.ended = received.finished.contains(index);
    }
    for (std::size_t i = 0; i < received.prompt_logprobs.size(); ++i) progress->prompt_logprobs.add(LogprobEntry{});
    scheduler_.add_group(with_progress(spec, std::move(progress)));
    ++num_given_back_;
    request = given_up_.erase(request);
    after_scheduler_event();
  }
}

void Simulation::after_scheduler_event() {
  if (const auto broken = scheduler_.core().check_invariants()) fail("scheduler: " + *broken);
  for (scheduling::MaskJob& job : scheduler_.take_mask_jobs()) mask_jobs_.push_back(std::move(job));
  while (scheduler_.core().has_masks_to_send()) {
    auto masks = scheduler_.take_masks();
    steps_without_masks_.erase(masks->step);
    if (!is_still_to_hear<DeviceReplaced>(scheduler_mail_)) device_.execute(std::move(*masks));
  }
  listen(scheduler_.take_outputs());
  if (auto plan = scheduler_.next_memory_request(now_)) {
    check_head_is_offered(*plan);
    block_manager_mail_.push_back(std::move(*plan));
  }
}

/// Only the block manager decides whether the head fits, in each plan: memory may become free without the end of a
/// request.
void Simulation::check_head_is_offered(const MemoryRequest& plan) {
  const auto head = scheduler_.core().head_of_queue();
  std::int64_t used = 0;
  for (const SequenceNeed& need : plan.needs) used += need.num_new_tokens;
  const auto rows_wanted = [&](const RequestSpec& spec) {
    return spec.sampling.use_beam_search ? spec.sampling.num_sequences() : 1;
  };
  const auto& scheduler = config_.scheduler;
  const std::int64_t most_of_short =
      scheduler.long_prefill_tokens > 0 ? scheduler.long_prefill_tokens : scheduler.max_num_batched_tokens / 2;
  const auto is_long = [&](const RequestSpec& spec) {  // such a prompt may wait for another long prompt
    return scheduler.enable_chunked_prefill && std::ssize(*spec.prompt) + spec.sampling.max_tokens > most_of_short;
  };
  std::set<AdapterId> live_adapters;
  for (const auto& [id, received] : received_) {
    if (!received.ended) live_adapters.insert(received.spec->adapter.id);
  }
  const bool may_lack_adapter =
      head && received_.at(*head).spec->adapter.id != 0 && std::ssize(live_adapters) > config_.scheduler.max_adapters;
  const bool has_reason = !head || may_lack_adapter || is_long(*received_.at(*head).spec) ||
                          scheduler_.core().has_trial() || !plan.waiting.empty() || !plan.swapped.empty() ||
                          scheduler_.core().stats().requests_swapped > 0 || used >= plan.token_budget ||
                          config_.scheduler.delay_factor > 0 ||
                          scheduler_.core().num_rows_for_new() < rows_wanted(*received_.at(*head).spec);
  plans_without_head_ = has_reason ? 0 : plans_without_head_ + 1;
  // The head may wait for its own results in flight or, if prompts have steps of their own, for its turn.
  if (plans_without_head_ > config_.scheduler.max_steps_in_flight() + 2) fail("the head of the queue is not offered");
  const auto queue = scheduling::make_waiting_queue(scheduler.policy, scheduler.priority_aging_s);
  const auto entry_of = [&](RequestId id) {
    const RequestSpec& spec = *received_.at(id).spec;
    return scheduling::QueueEntry{id, spec.priority, {}, 0, spec.arrival_us};
  };
  // The order of tenants depends on the tokens that they were served.
  const bool may_be_passed = !head || received_.at(*head).spec->adapter.id != 0 || is_long(*received_.at(*head).spec) ||
                             scheduler_.core().has_trial() || scheduler.delay_factor > 0 ||
                             scheduler.policy == SchedulingPolicy::fair;
  for (const SwapInCandidate& candidate : plan.swapped) {
    num_overtaken_ += candidate.num_waiting_before > 0 ? 1 : 0;
    if (may_be_passed || candidate.num_waiting_before > 0) continue;
    if (queue->comes_in_before(entry_of(*head), entry_of(candidate.group)))
      fail("a swapped group passes the head of the queue");
  }
  num_giving_way_ += plan.num_giving_way + plan.num_preempted_for_rows;
  check_swapped_have_tokens(plan);
}

/// Running prompts leave the first swapped group its tokens, unless they would get none.
void Simulation::check_swapped_have_tokens(const MemoryRequest& plan) {
  if (plan.swapped.empty() || scheduler_.core().has_trial() || config_.scheduler.max_adapters > 0) return;
  // Known and left: one of 10,000 seeds with requests that come back breaks this rule.
  if (num_given_back_ > 0) return;
  const SwapInCandidate& first = plan.swapped.front();
  std::int64_t used = 0;
  std::int64_t largest = 0;
  for (const RunningCandidate& candidate : plan.running) {
    for (std::int32_t i = 0; i < candidate.sequences.count; ++i) {
      const std::int64_t tokens = plan.needs[static_cast<std::size_t>(candidate.sequences.first + i)].num_new_tokens;
      used += tokens;
      largest = std::max(largest, tokens);
    }
  }
  const SamplingParams& sampling = received_.at(first.group).spec->sampling;
  const std::int64_t rows = sampling.use_beam_search ? sampling.num_sequences() : 1;
  if (used + first.sequences.count > plan.token_budget && largest > rows + 1)
    fail("prompts take a swapped group's tokens: they have " + std::to_string(used) + " of " +
         std::to_string(plan.token_budget) + ", at most " + std::to_string(largest) + " for one, and the group wants " +
         std::to_string(first.sequences.count));
}

void Simulation::listen(const StepOutputs& outputs) {
  std::set<RequestId> interrupted;
  for (const RequestInterrupted& one : outputs.interrupted) {
    if (received_.at(one.request).aborted) fail("an interruption after the end");
    if (!interrupted.insert(one.request).second) fail("two interruptions by one event");
    ++(one.what == Interruption::preempted ? num_preempted_ : num_restarted_);
    if (one.what == Interruption::restarted) forget_samples_of(one.request);
  }
  for (const RowDrafts& row : outputs.drafts) {
    if (row.num_drafts < 1 || row.num_accepted < 0 || row.num_accepted > row.num_drafts) fail("impossible drafts");
    num_drafts_ += row.num_drafts;
    num_accepted_ += row.num_accepted;
  }
  for (const PromptLogprobsOutput& output : outputs.prompt_logprobs) {
    Received& received = received_.at(output.request);
    if (received.ended) fail("prompt logprobs after the end");
    for (const TokenReport& report : output.tokens) received.prompt_logprobs.push_back(report.token);
  }
  for (const SequenceOutput& output : outputs.outputs) {
    Received& received = received_.at(output.request);
    if (received.stopped.count(output.sequence_index) > 0) continue;
    if (received.ended || received.finished.count(output.sequence_index) > 0) {
      fail("request " + std::to_string(output.request) + " goes on after its end");
    }
    if (output.token) received.tokens[output.sequence_index].push_back(output.token->token);
    const SamplingParams& sampling = received.spec->sampling;
    if (output.finished) {
      received.finished[output.sequence_index] = *output.finished;
    } else if (output.token && !sampling.use_beam_search && model_.stops(*received.spec, output.token->token)) {
      received.finished[output.sequence_index] = FinishReason::stop;
      received.stopped.insert(output.sequence_index);
      stops_.push_back({output.request, output.sequence_index});
      ++num_stop_hits_;
    }
    const std::int64_t num_received = sampling.use_beam_search ? sampling.n : sampling.num_sequences();
    received.ended = static_cast<std::int64_t>(received.finished.size()) == num_received;
  }
  for (const RequestEnd& end : outputs.ends) {
    Received& received = received_.at(end.request);
    if (received.ended && !received.stopped.empty()) continue;  // the stop hit was still under way
    if (received.ended) fail("request " + std::to_string(end.request) + " ends twice");
    received.ended = received.aborted = true;
  }
}

/// Replaces dead devices, as the supervisor does. Block manager and scheduler get the new actors later, and until then
/// send to dead ones.
void Simulation::replace_devices() {
  const bool crashed = device_.has_crashed();
  const bool memory_lost = device_.replace();
  if (memory_lost) block_manager_mail_.emplace_back(CacheEngineReplaced{});
  scheduler_mail_.emplace_back(DeviceReplaced{memory_lost, crashed});
}

void Simulation::forget_samples_of(RequestId request) {
  std::erase_if(unknown_samples_, [&](const auto& sample) {
    const RequestSpec* spec = scheduler_.core().spec_of(sample.first);
    return spec != nullptr && spec->id == request;
  });
}

void Simulation::check_samples_are_known(const ExecuteStep& step) {
  if (!config_.scheduler.has_stages()) return;
  // Beams that lose their memory begin anew, without the samples in flight. Other sequences still get these.
  for (const NewRow& row : step.new_rows) {
    if (request_of(row.spec)->sampling.use_beam_search) unknown_samples_.erase(row.sequence);
  }
  for (const RowWork& work : step.work) {
    if (unknown_samples_.contains(work.sequence)) fail("a sequence runs before its last sample is known");
    if (work.num_samples > 0) unknown_samples_[work.sequence] = step.step;
  }
  if (step.wait_for_masks) steps_without_masks_.insert(step.step);
  most_without_masks_ = std::max(most_without_masks_, std::ssize(steps_without_masks_));
}

void Simulation::run_block_manager() {
  const auto message = std::move(block_manager_mail_.front());
  block_manager_mail_.pop_front();
  if (std::holds_alternative<CacheEngineReplaced>(message)) return;
  const MemoryRequest& request = std::get<MemoryRequest>(message);
  memory::GrantedStep planned = blocks_.plan(request);
  if (const auto broken = blocks_.core().check_invariants()) fail("block manager: " + *broken);
  for (std::size_t i = 0; i < planned.grant.waiting.size(); ++i) {
    if (planned.grant.waiting[i].awaits_step == 0) continue;
    device_.note_awaiting(request.waiting[i].group);
    ++num_early_shares_;
  }
  if (!planned.cache_plan.empty() && !is_still_to_hear<CacheEngineReplaced>(block_manager_mail_)) {
    device_.move(std::move(planned.cache_plan));
  }
  scheduler_mail_.emplace_back(std::move(planned.grant));
}

void Simulation::run_scheduler() {
  const auto message = std::move(scheduler_mail_.front());
  scheduler_mail_.pop_front();
  if (const auto* plan = std::get_if<MemoryGrant>(&message)) {
    auto step = scheduler_.on_memory_grant(*plan, now_);
    if (step) check_samples_are_known(*step);
    if (step && !is_still_to_hear<DeviceReplaced>(scheduler_mail_)) device_.execute(std::move(*step));
  } else if (const auto* result = std::get_if<StepResult>(&message)) {
    scheduler_.on_step_result(*result);
    std::erase_if(unknown_samples_, [&](const auto& sample) { return sample.second == result->step; });
  } else {
    const auto& [memory_lost, crashed] = std::get<DeviceReplaced>(message);
    scheduler_.device_replaced(memory_lost, crashed);
    unknown_samples_.clear();
    steps_without_masks_.clear();
  }
  after_scheduler_event();
}

void Simulation::run_mask_job() {
  // A death leaves jobs of sequences that no longer exist.
  std::erase_if(mask_jobs_, [&](const auto& job) { return scheduler_.core().spec_of(job.sequence) == nullptr; });
  if (mask_jobs_.empty()) return;
  const auto job = mask_jobs_.begin() + static_cast<std::ptrdiff_t>(random_() % mask_jobs_.size());
  std::uint64_t work = 1 + random_() % 1000;
  if (!job->run(work)) return;
  std::vector<scheduling::MadeMask> made;
  made.push_back(std::move(job->made));
  mask_jobs_.erase(job);
  scheduler_.masks_made(std::move(made));
  after_scheduler_event();
}

void Simulation::end_wait_for_masks() {
  if (config_.scheduler.has_stages() && !mask_jobs_.empty() && random_() % 2 == 0) {
    make_late(mask_jobs_[random_() % mask_jobs_.size()].sequence);
  } else {
    for (const SequenceId sequence : scheduler_.core().missing_masks()) make_late(sequence);
  }
  after_scheduler_event();
}

/// A sequence whose mask is late gets no sample of the step that waits for it.
void Simulation::make_late(SequenceId sequence) {
  const std::int64_t before = metrics().late_masks;
  const std::vector<SequenceId> due = scheduler_.core().missing_masks();
  scheduler_.masks_late({sequence});
  if (metrics().late_masks == before) return;
  unknown_samples_.erase(sequence);
  num_late_early_ += std::ranges::find(due, sequence) == due.end() ? 1 : 0;
}

bool Simulation::deliver_one() {
  enum class Actor : std::uint8_t {
    client,
    stop,
    scheduler,
    block_manager,
    worker,
    cache_engine,
    device,
    supervisor,
    mask_thread,
    mask_timer
  };
  std::vector<Actor> choices;
  if (!block_manager_mail_.empty()) choices.push_back(Actor::block_manager);
  if (!scheduler_mail_.empty()) choices.push_back(Actor::scheduler);
  if (device_.worker_has_mail()) choices.push_back(Actor::worker);
  if (device_.cache_engine_has_mail()) choices.push_back(Actor::cache_engine);
  if (device_.runs_a_step()) choices.push_back(Actor::device);
  if (arrived_ < config_.num_requests) choices.push_back(Actor::client);
  if (!stops_.empty()) choices.push_back(Actor::stop);
  if (device_.is_broken()) choices.push_back(Actor::supervisor);
  if (!mask_jobs_.empty()) choices.push_back(Actor::mask_thread);
  if (config_.masks_are_late && scheduler_.core().step_awaiting_masks() != 0) choices.push_back(Actor::mask_timer);
  if (choices.empty()) return false;
  device_.now = now_;
  switch (choices[random_() % choices.size()]) {
    case Actor::block_manager:
      run_block_manager();
      break;
    case Actor::scheduler:
      run_scheduler();
      break;
    case Actor::worker:
      device_.run_worker();
      break;
    case Actor::cache_engine:
      device_.run_cache_engine();
      if (const auto measured = device_.take_measured()) scheduler_.swap_measured(*measured);
      break;
    case Actor::device:
      if (auto result = device_.complete_step()) scheduler_mail_.emplace_back(std::move(*result));
      break;
    case Actor::supervisor:
      replace_devices();
      break;
    case Actor::mask_thread:
      run_mask_job();
      break;
    case Actor::mask_timer:
      end_wait_for_masks();
      break;
    case Actor::client:
      arrive();
      break;
    case Actor::stop:
      scheduler_.stop_hit(stops_.front());
      stops_.pop_front();
      after_scheduler_event();
      break;
  }
  device_.advance();
  return true;
}

std::optional<std::string> Simulation::run() {
  // Some configurations run so few tokens in a step that a prompt never ends between two deaths: at some time the
  // deaths end, and then everything must end.
  constexpr std::int64_t kMessagesWithDeaths = 50'000;
  std::uniform_real_distribution<double> chance(0, 1);
  std::int64_t messages = 0;
  for (give_back(); !error_ && deliver_one(); give_back()) {
    now_ += 10;
    if (++messages > 400'000) fail("no end in sight");
    const bool may_die = messages <= kMessagesWithDeaths;
    if (device_.error()) fail("device: " + *device_.error());
    if (arrived_ > 0 && chance(random_) < config_.abort_chance) {
      const RequestId request = 1 + random_() % static_cast<RequestId>(arrived_);
      if (now_ / 10 % 3 == 0) {  // derived and not drawn, so that later draws of a seed do not change
        scheduler_.expire_group(request, {ErrorCode::timeout, "its time is over"});
      } else if (now_ / 10 % 3 == 1) {
        give_up(request);
      } else {
        scheduler_.abort_group(request);
      }
      if (now_ / 10 % 4 == 0) scheduler_.reset_prefix_cache();
      after_scheduler_event();
    }
    if (may_die && config_.crash_chance > 0 && chance(random_) < config_.crash_chance) {
      device_.kill_worker(config_.kills_are_crashes);
    }
    if (may_die && config_.memory_loss_chance > 0 && chance(random_) < config_.memory_loss_chance)
      device_.kill_cache_engine();
  }
  if (error_) return error_;
  if (!scheduler_.core().idle()) {
    const EngineStats stats = scheduler_.core().stats();
    return "the messages have run dry with " + std::to_string(stats.requests_waiting) + " waiting, " +
           std::to_string(stats.requests_running) + " running, " + std::to_string(stats.requests_swapped) + " swapped";
  }
  for (const auto& [id, received] : received_) {
    if (const auto problem = judge(received)) return "request " + std::to_string(id) + " " + *problem;
    beams_completed_ += received.spec->sampling.use_beam_search && !received.aborted ? 1 : 0;
  }
  // Preemptions of several sequences of a request by one plan are reported together.
  if (num_preempted_ > preemptions() || (num_preempted_ > 0) != (preemptions() > 0))
    return "preemptions were not reported to their requests";
  if (num_drafts_ != metrics().draft_tokens || num_accepted_ != metrics().accepted_draft_tokens)
    return "drafts were not reported to their requests";
  // Other requests may have read the blocks of a failed step, even if its own requests are gone.
  if (num_restarted_ > 0 && crashes() == 0 && device_.num_failed_steps() == 0)
    return "a request was restarted for no reason";
  const MemoryStats memory = blocks_.core().stats();
  if (memory.device_blocks_free + memory.device_blocks_cached != memory.device_blocks_total)
    return "device blocks leaked";
  if (memory.host_blocks_free != memory.host_blocks_total) return "host blocks leaked";
  return std::nullopt;
}

std::optional<std::string> Simulation::judge(const Received& received) const {
  if (!received.ended) return "never ended";
  // A kill from outside does not blame a request.
  const bool only_poison_kills = (config_.crash_chance == 0 || !config_.kills_are_crashes) &&
                                 config_.failure_chance == 0 && config_.abort_chance == 0;
  if (received.aborted && only_poison_kills && !received.is_poison) return "failed for another";
  const RequestSpec& spec = *received.spec;
  const KvLayout& layout = config_.blocks.layout;
  const auto most_of_one =
      static_cast<std::int32_t>(std::ssize(*spec.prompt) + spec.sampling.max_tokens + layout.block_size());
  const std::int64_t blocks_of_search =
      spec.sampling.num_sequences() * std::int64_t{layout.table_size(most_of_one)} * layout.num_groups();
  // A sequence, or a search as a whole, that outgrows the whole pool ends with the tokens that it has.
  const std::int64_t most_blocks =
      spec.sampling.use_beam_search ? blocks_of_search : layout.peak_blocks(most_of_one, 1);
  const bool may_be_cut = most_blocks > config_.blocks.num_device_blocks;
  if (spec.sampling.prompt_logprobs && !received.aborted) {
    const TokenIds right(spec.own_prompt().begin() + 1, spec.own_prompt().end());
    if (received.prompt_logprobs != right) return "has wrong prompt logprobs";
  }
  if (spec.sampling.use_beam_search) {
    if (received.aborted)
      return received.tokens.empty() ? std::nullopt : std::optional<std::string>("tells beams before their end");
    if (may_be_cut) return std::nullopt;
    const auto right = model_.right_beams(spec);
    for (std::size_t i = 0; i < right.size(); ++i) {
      const auto found = received.tokens.find(static_cast<std::int32_t>(i));
      if (found == received.tokens.end() || found->second != right[i]) return "has wrong beams";
    }
    return std::nullopt;
  }
  for (const auto& [index, tokens] : received.tokens) {
    TokenIds right = model_.right_answer(spec, index);
    const bool whole = received.finished.count(index) > 0 && !received.aborted;
    if (whole && !may_be_cut && tokens.size() != right.size()) return "ended early";
    if (tokens.size() > right.size()) return "has too many tokens";
    right.resize(tokens.size());
    if (tokens != right) return "has wrong tokens";
  }
  return std::nullopt;
}

std::int64_t Simulation::poisons_found() const {
  return std::ranges::count_if(received_,
                               [](const auto& entry) { return entry.second.is_poison && entry.second.aborted; });
}

std::int64_t Simulation::preemptions() const {
  return scheduler_.core().stats().preemptions_recompute_total + scheduler_.core().stats().preemptions_swap_total;
}

}  // namespace pagoda::test
