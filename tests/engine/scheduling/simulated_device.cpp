#include "tests/engine/scheduling/simulated_device.hpp"

#include <algorithm>
#include <utility>

#include "kernels/sample.hpp"
#include "tests/engine/scheduling/simulated_grammar.hpp"

namespace pagoda::test {
namespace {

TokenIds without_last(const TokenIds& tokens, std::int32_t count) {
  return {tokens.begin(), tokens.end() - count};
}

}  // namespace

SimulatedDevice::SimulatedDevice(const SimulationConfig& config, const SimulatedModel& model, std::uint64_t seed,
                                 FindRequest find_request, const journal::SharedJournal& journal)
    : config_(config),
      model_(model),
      random_(seed),
      find_request_(std::move(find_request)),
      journal_(journal),
      device_(config.blocks, static_cast<Timing>(seed % 3), seed),
      step_order_(std::make_unique<journal::RecordedStepOrder>(journal)),
      cache_order_(std::make_unique<journal::RecordedCacheOrder>(journal)) {}

void SimulatedDevice::run_worker() {
  const auto message = std::move(worker_mail_.front());
  worker_mail_.pop_front();
  if (const auto* step = std::get_if<ExecuteStep>(&message)) {
    steps_.emplace(step->step, *step);
    if (config_.scheduler.has_stages()) run_first_stage(*step);
    if (step_order_->step_arrived(step->step, step->wait_for_cache, step->wait_for_masks)) {
      tell_cache_engine(ConnectCache{step->step});
    }
  } else if (const auto* masks = std::get_if<StepMasks>(&message)) {
    if (!steps_.contains(masks->step)) fail("masks come for a step that the worker does not have");
    masks_.emplace(masks->step, *masks);
    step_order_->masks_arrived(masks->step);
  } else if (const auto* ready = std::get_if<CacheReady>(&message)) {
    step_order_->plan_enqueued(ready->step);
  } else {
    connected_to_ = std::get<CacheConnected>(message).last_plan;
    step_order_->connected(connected_to_);
  }
  enqueue_steps();
}

void SimulatedDevice::run_first_stage(const ExecuteStep& step) {
  for (const RowId row : step.rows_gone) rows_of_first_stage_.erase(row);
  for (const NewRow& fresh : step.new_rows) {
    TokenIds tokens = *fresh.spec.prompt;
    tokens.insert(tokens.end(), fresh.tokens_so_far.begin(), fresh.tokens_so_far.end());
    rows_of_first_stage_[fresh.row] = std::move(tokens);
  }
  for (const ForcedToken& forced : step.forced_tokens) {
    TokenIds& tokens = rows_of_first_stage_[forced.row];
    if (forced.position > std::ssize(tokens)) return fail("the first stage gets a token behind a row's end");
    tokens.resize(static_cast<std::size_t>(forced.position));
    tokens.push_back(forced.token);
  }
  if (std::ssize(step.forced_tokens) > config_.scheduler.max_num_batched_tokens) fail("too many tokens are forced");
  std::vector<TokenIds>& ran = ran_on_first_stage_[step.step];
  for (const RowWork& work : step.work) {
    const TokenIds& tokens = rows_of_first_stage_[work.row];
    if (work.end_position() > std::ssize(tokens)) return fail("the first stage runs a token that it was not sent");
    ran.emplace_back(tokens.begin() + work.first_position, tokens.begin() + work.end_position());
  }
}

void SimulatedDevice::enqueue_steps() {
  while (const auto ready = step_order_->next()) {
    using Part = execution::StepOrder::Part;
    const ExecuteStep& step = steps_.at(ready->step);
    if (ready->part != Part::sampling) enqueue(step, ready->waits_for_plan ? ready->step : connected_to_);
    if (ready->part == Part::model) continue;
    if (step.wait_for_masks) sample(step, masks_.extract(ready->step).mapped());
    steps_.erase(ready->step);
    tell_cache_engine(StepEnqueued{ready->step});
  }
}

void SimulatedDevice::run_cache_engine() {
  const auto message = std::move(cache_mail_.front());
  cache_mail_.pop_front();
  if (const auto* plan = std::get_if<CachePlan>(&message)) {
    plans_.emplace(plan->step, *plan);
    cache_order_->plan_arrived(*plan);
  } else if (const auto* step = std::get_if<StepEnqueued>(&message)) {
    step_events_.insert(step->step);
    cache_order_->step_enqueued(step->step);
  } else if (const auto* connect = std::get_if<ConnectCache>(&message)) {
    step_events_.clear();
    cache_order_->connect(connect->first_step);
    enqueue_plans();
    tell_worker(CacheConnected{cache_order_->last_plan()});
  }
  enqueue_plans();
}

/// Sends to the worker that the cache engine knows: one that has ended, until it gets the next one.
template <class Message>
void SimulatedDevice::tell_worker(Message message) {
  const bool knows_it =
      std::ranges::none_of(cache_mail_, [](const auto& mail) { return std::holds_alternative<ConnectWorker>(mail); });
  if (knows_it && worker_lives_) worker_mail_.emplace_back(std::move(message));
}

void SimulatedDevice::enqueue_plans() {
  while (const auto ready = cache_order_->next()) {
    const auto plan = plans_.extract(ready->plan);
    num_swapped_ += std::ssize(plan.mapped().swap_out) + std::ssize(plan.mapped().swap_in);
    device_.enqueue_plan(plan.mapped(), step_events_.contains(ready->after) ? ready->after : 0);
    tell_worker(CacheReady{ready->plan});
  }
}

std::optional<SwapMeasured> SimulatedDevice::take_measured() {
  const std::int64_t moved = std::exchange(num_swapped_, 0);
  if (moved == 0) return std::nullopt;
  return SwapMeasured{moved * config_.scheduler.block_bytes, static_cast<TimeUs>(random_() % 500)};
}

bool SimulatedDevice::draws_failure() {
  return config_.failure_chance > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < config_.failure_chance;
}

/// Returns false when a scheduler cannot have planned the step.
bool SimulatedDevice::apply_rows(const ExecuteStep& step) {
  for (const RowId row : step.rows_gone) {
    if (rows_.count(row) == 0) {
      fail("a row goes that was not there");
      return false;
    }
    device_.drop(rows_.at(row).sequence);
    rows_.erase(row);
  }
  for (const NewRow& fresh : step.new_rows) {
    if (rows_.count(fresh.row) > 0) {
      fail("a row comes that was there already");
      return false;
    }
    Row row{fresh.sequence, fresh.sequence_index, find_request_(fresh.spec), *fresh.spec.prompt};
    if (fresh.spec.adapter.id != row.spec->adapter.id) fail("a row has another adapter than its request");
    row.tokens.insert(row.tokens.end(), fresh.tokens_so_far.begin(), fresh.tokens_so_far.end());
    // A copy has what its parent has, and the memory outlives a worker. Whatever else begins must be read.
    if (row.spec->sampling.n == 1 && !outlived_.contains(fresh.sequence)) row.num_drafted = 0;
    rows_.emplace(fresh.row, std::move(row));
  }
  for (const ForcedToken& forced : step.forced_tokens) {
    TokenIds& tokens = rows_.at(forced.row).tokens;
    if (forced.position > std::ssize(tokens)) fail("a row gets a token behind its end");
    tokens.resize(static_cast<std::size_t>(forced.position), kWrong);
    tokens.push_back(forced.token);
  }
  return true;
}

void SimulatedDevice::enqueue(const ExecuteStep& step, StepId last_plan) {
  if (!apply_rows(step)) return;
  MemoryGrant plan;
  plan.step = step.step;
  plan.blocks = step.blocks;
  for (const RowTableDelta& delta : step.table_deltas) {
    plan.table_deltas.push_back({rows_.at(delta.row).sequence, delta.first_block, delta.blocks, delta.kv_group});
  }
  StepResult result;
  result.step = step.step;
  result.started_us = now;
  result.finished_us = now + static_cast<TimeUs>(random_() % 300);
  if (!step.work.empty() && draws_failure()) {
    result.error = Error{ErrorCode::internal, "the step has failed", {}, -1};
    ++num_failed_steps_;
  }
  std::vector<FakeRow> fake_rows;
  tokens_of_rows_.clear();
  bool waits_for_masks = false;
  std::int64_t num_samples = 0;
  std::int64_t num_draft_inputs = 0;
  std::int32_t num_runs = 0;
  for (const RowWork& work : step.work) {
    num_samples += work.num_samples + work.num_drafts;
    Row& row = rows_.at(work.row);
    num_draft_inputs += work.num_draft_inputs;
    num_runs = std::max(num_runs, work.num_draft_inputs > 0 ? std::max(1, work.num_made_drafts()) : 0);
    if (work.num_draft_inputs > 0) run_draft_model(work, row);
    if (std::exchange(row.unmasked, false) && work.end_position() < std::ssize(row.tokens))
      row.tokens.resize(static_cast<std::size_t>(work.end_position()));
    if (config_.scheduler.has_stages() && !row.failed && work.end_position() <= std::ssize(row.tokens)) {
      const TokenIds& ran = ran_on_first_stage_.at(step.step)[tokens_of_rows_.size()];
      if (!std::equal(ran.begin(), ran.end(), row.tokens.begin() + work.first_position))
        fail("the first stage has run other tokens than the row has");
    }
    tokens_of_rows_.push_back(row.tokens);
    const bool samples = work.num_samples > 0 && !row.failed && row.sequence == work.sequence;
    for (std::int32_t k = 0; samples && !work.has_mask && k <= work.num_drafts; ++k) {
      if (right_mask(*row.spec, without_last(row.tokens, k))) fail("a row has no mask and needs one");
    }
    const bool may_have_mask = row.spec->grammar || row.spec->sampling.thinking_token_budget;
    if (work.has_mask && (work.num_samples == 0 || !may_have_mask)) fail("a row has a mask that asks for none");
    waits_for_masks |= work.has_mask;
    run_row(work, result, fake_rows);
  }
  std::set<AdapterId> adapters;
  for (const RowWork& work : step.work) adapters.insert(rows_.at(work.row).spec->adapter.id);
  adapters.erase(0);
  if (std::ssize(adapters) > config_.scheduler.max_adapters) fail("a step has too many adapters");
  if (num_draft_inputs > config_.scheduler.max_num_batched_tokens) fail("the draft model reads too many tokens");
  // By no random number, so that other seeds stay what they are.
  result.draft_us = std::min<TimeUs>(result.finished_us - result.started_us, (num_draft_inputs + 20) * num_runs);
  if (num_samples > config_.scheduler.samples_per_step()) fail("a step samples more than it has room for");
  if (step.wait_for_masks != waits_for_masks) fail("a step waits for masks in vain, or does not wait");
  device_.enqueue_step(plan, last_plan, std::move(fake_rows));
  ran_on_first_stage_.erase(step.step);
  if (step.wait_for_masks) {
    unsampled_ = std::move(result);
  } else {
    running_.push_back(std::move(result));
  }
}

void SimulatedDevice::run_draft_model(const RowWork& work, Row& row) {
  const std::int32_t end = work.first_draft_input + work.num_draft_inputs;
  if (!config_.scheduler.speculation.has_draft_model()) fail("there is no draft model");
  if (row.num_drafted && *row.num_drafted != work.first_draft_input) fail("the draft model does not read on");
  if (end > std::ssize(row.tokens)) return fail("the draft model reads tokens that do not exist yet");
  const bool is_head = config_.scheduler.speculation.has_draft_head();
  if (is_head && end > work.first_position + 1) fail("a draft head reads tokens whose features do not exist yet");
  row.num_drafted = end + (is_head ? 0 : std::max(0, work.num_made_drafts() - 1));
  if (work.num_made_drafts() == 0) return;
  if (work.has_mask) fail("a mask is for drafts that the scheduler does not know");
  if (end != work.end_position() - work.num_drafts) return fail("drafts do not follow what the draft model has read");
  row.tokens.resize(static_cast<std::size_t>(end));
  for (std::int32_t i = 0; i < work.num_drafts; ++i) {
    const TokenId right = model_.next_token(*row.spec, row.index, row.tokens);
    // Whether the draft is right depends on the tokens alone, as with a model.
    const auto drawn = static_cast<double>((static_cast<std::uint64_t>(right) * 2654435761U + row.tokens.size()) % 100);
    row.tokens.push_back(drawn < 100 * config_.right_draft_chance ? right : (right + 1) % kVocab);
  }
}

/// A token that is sampled without a mask is wrong, in case it is read.
void SimulatedDevice::sample(const ExecuteStep& step, const StepMasks& masks) {
  std::size_t next = 0;
  for (std::size_t i = 0; i < step.work.size(); ++i) {
    const RowWork& work = step.work[i];
    Row& row = rows_.at(work.row);
    row.unmasked = work.has_mask && (next == masks.work.size() || masks.work[next] != static_cast<std::int32_t>(i));
    if (next < masks.work.size() && masks.work[next] == static_cast<std::int32_t>(i)) {
      if (!work.has_mask) fail("a mask comes for a row that has none");
      for (std::int32_t k = work.num_drafts; k >= 0; --k, ++next) {
        if (next == masks.work.size() || masks.work[next] != static_cast<std::int32_t>(i))
          return fail("masks are missing");
        const auto right = right_mask(*row.spec, without_last(tokens_of_rows_[i], k));
        const std::vector<std::uint32_t> any(kernels::mask_words(kVocab), ~std::uint32_t{0});
        if (!row.failed && !std::ranges::equal(masks.mask(next), right.value_or(any)))
          fail("a row has another mask than its tokens ask for");
      }
    } else if (work.has_mask && !unsampled_->error && right_mask(*row.spec, tokens_of_rows_[i])) {
      const Range samples = unsampled_->rows[i].samples();
      for (std::int32_t k = 0; k < samples.count; ++k) {
        unsampled_->samples[static_cast<std::size_t>(samples.first + k)] = {kWrong, 0.0F, 0, {{kWrong, 0.0F}}};
      }
    }
  }
  if (next != masks.work.size()) fail("masks come that are for no row");
  running_.push_back(std::move(*unsampled_));
  unsampled_.reset();
}

/// None of the tokens is a placeholder here.
std::optional<std::vector<std::uint32_t>> SimulatedDevice::right_mask(const RequestSpec& spec, const TokenIds& tokens) {
  const auto forced = forced_token(spec, tokens);
  if (!spec.grammar && !forced) return std::nullopt;
  std::vector<std::uint32_t> mask(kernels::mask_words(kVocab), ~std::uint32_t{0});
  if (spec.grammar) mask = simulated_mask(spec.grammar, {tokens.begin() + std::ssize(*spec.prompt), tokens.end()});
  if (!forced) return mask;
  const auto word = static_cast<std::size_t>(*forced / 32);
  const auto bit = std::uint32_t{1} << static_cast<std::uint32_t>(*forced % 32);
  if ((mask[word] & bit) == 0) return mask;
  std::ranges::fill(mask, 0U);
  mask[word] = bit;
  return mask;
}

void SimulatedDevice::run_row(const RowWork& work, StepResult& result, std::vector<FakeRow>& fake_rows) {
  Row& row = rows_.at(work.row);
  const std::int32_t end = work.end_position();
  if (row.sequence != work.sequence) return fail("a row runs for another sequence");
  if (end > static_cast<std::int32_t>(row.tokens.size())) return fail("a row runs tokens that do not exist yet");
  row.failed = row.failed || result.error || draws_failure();
  if (const auto poisoned = poisoned_.find(row.spec->id); poisoned != poisoned_.end()) {
    if (end > poisoned->second) deadly_.insert(result.step);
  }
  // A failed step has computed garbage. A failed row has only sampled garbage.
  FakeRow fake{work.sequence,
               work.first_position,
               {},
               result.error.has_value(),
               awaiting_.contains(row.spec->id),
               std::exchange(row.fresh, false)};
  Mark mark = root_mark(row.spec->cache_salt, row.spec->adapter.id);
  for (std::int32_t i = 0; i < end; ++i)
    fake.marks.push_back(mark = next_mark(mark, row.tokens[static_cast<std::size_t>(i)]));
  fake_rows.push_back(std::move(fake));
  const bool is_beam = row.spec->sampling.use_beam_search;
  if (result.error) {
    if (work.num_samples > 0 && !is_beam) row.tokens.push_back(0);
    return;
  }
  RowResult& told = result.rows.emplace_back(RowResult{work.sequence, end, {}, {}});
  const auto first_sample = static_cast<std::int32_t>(result.samples.size());
  told.output = RowTokens{{first_sample, work.num_samples}};
  told.prompt_logprobs = {static_cast<std::int32_t>(result.prompt_logprobs.size()), work.num_prompt_logprobs};
  if (row.failed) {
    if (work.num_samples > 0 && !is_beam) row.tokens.push_back(0);
    told.output = Error{ErrorCode::internal, "the row has failed", {}, -1};
    result.prompt_logprobs.resize(result.prompt_logprobs.size() + static_cast<std::size_t>(work.num_prompt_logprobs));
    return;
  }
  for (std::int32_t k = 0; k < work.num_prompt_logprobs; ++k) {
    const std::int32_t position = work.first_prompt_logprob + k;
    if (position <= work.first_position || position > end) return fail("a prompt logprob of a token that did not run");
    result.prompt_logprobs.push_back({row.tokens[static_cast<std::size_t>(position)], 0.0F, 0, {}});
  }
  if (is_beam) {
    if (work.num_samples == 0) return;
    if (end != static_cast<std::int32_t>(row.tokens.size())) return fail("a beam samples before its end");
    auto candidates = model_.beam_candidates_after(*row.spec, row.tokens);
    result.samples.push_back({candidates[0].first, candidates[0].second, 1, candidates});
    return;
  }
  const TokenIds before = row.tokens;
  if (work.num_drafts > 0) {
    if (end != static_cast<std::int32_t>(before.size())) return fail("drafts are not the last of their row");
    // Accepts the drafts that are right, and samples one token more.
    std::int32_t left = work.num_drafts;
    for (bool is_right = true; is_right; left -= is_right ? 1 : 0) {
      row.tokens = without_last(before, left);
      const TokenId token = model_.next_token(*row.spec, row.index, row.tokens);
      result.samples.push_back({token, 0.0F, 0, {}});
      is_right = left > 0 && token == before[row.tokens.size()];
      row.tokens.push_back(token);
    }
    told.num_computed_tokens = end - left;
    if (row.num_drafted) row.num_drafted = std::min(*row.num_drafted, end - left);
    told.output = RowTokens{{first_sample, 1 + work.num_drafts - left}};
    return;
  }
  for (std::int32_t k = 0; k < work.num_samples; ++k) {
    const std::int32_t index = work.num_samples > 1 ? k : row.index;
    result.samples.push_back({model_.next_token(*row.spec, index, before), 0.0F, 0, {}});
    if (k == 0) row.tokens.push_back(result.samples.back().token);
  }
}

std::optional<StepResult> SimulatedDevice::complete_step() {
  if (deadly_.contains(running_.front().step)) {
    kill_worker(/*crashes=*/true);
    return std::nullopt;
  }
  StepResult result = std::move(running_.front());
  running_.pop_front();
  device_.complete(result.step);
  spoil(result);
  return result;
}

/// Replaces samples from garbage by tokens that the model would not have sampled.
void SimulatedDevice::spoil(StepResult& result) const {
  for (const RowResult& row : result.rows) {
    if (!device_.has_failed(row.sequence, result.step)) continue;
    for (std::int32_t i = 0; i < row.samples().count; ++i) {
      result.samples[static_cast<std::size_t>(row.samples().first + i)] = {kWrong, 0.0F, 0, {{kWrong, 0.0F}}};
    }
  }
}

void SimulatedDevice::kill_worker(bool crashes) {
  has_crashed_ |= crashes;
  if (!running_.empty()) device_.complete(running_.back().step);
  if (unsampled_) device_.complete(unsampled_->step);
  unsampled_.reset();
  masks_.clear();
  device_.forget_failures();
  for (const auto& [id, row] : rows_) {
    device_.drop(row.sequence);
    outlived_.insert(row.sequence);
  }
  rows_.clear();
  rows_of_first_stage_.clear();
  ran_on_first_stage_.clear();
  running_.clear();
  worker_mail_.clear();
  steps_.clear();
  step_order_ = std::make_unique<journal::RecordedStepOrder>(journal_);
  worker_lives_ = false;
}

void SimulatedDevice::kill_cache_engine() {
  cache_mail_.clear();
  cache_engine_lives_ = false;
}

bool SimulatedDevice::replace() {
  if (worker_lives_) kill_worker(/*crashes=*/false);
  const bool memory_lost = !cache_engine_lives_;
  if (memory_lost) {
    device_.synchronize();
    device_.lose_memory();
    plans_.clear();
    step_events_.clear();
    cache_order_ = std::make_unique<journal::RecordedCacheOrder>(journal_);
    num_swapped_ = 0;
  }
  worker_lives_ = cache_engine_lives_ = true;
  has_crashed_ = false;
  tell_cache_engine(ConnectWorker{});
  return memory_lost;
}

}  // namespace pagoda::test
