#include "tests/engine/scheduling/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>
#include <tuple>

#include "engine/sampling/beam_search.hpp"

namespace pagoda::test {
namespace {

constexpr TokenId kVocab = 50;
constexpr TokenId kEos = 0;
constexpr TokenId kWrong = kVocab;  ///< never the right one

std::uint64_t mix(std::uint64_t h, std::uint64_t x) {
  h ^= x + 0x9E3779B97F4A7C15U + (h << 6) + (h >> 2);
  h *= 0xFF51AFD7ED558CCDU;
  return h ^ (h >> 29);
}

scheduling::SchedulerConfig with_eos(scheduling::SchedulerConfig config) {
  config.eos_token_ids = {kEos};
  return config;
}

}  // namespace

SimulationConfig random_simulation(std::uint64_t seed) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15U + 1);
  const auto pick = [&](auto... values) {
    const std::vector<std::int32_t> all{values...};
    return all[random() % all.size()];
  };
  SimulationConfig config;
  config.most_prompt_tokens = pick(40, 40, 40, 150);
  config.most_new_tokens = pick(24, 24, 60);
  config.blocks.block_size = pick(1, 2, 4, 16);
  const std::int32_t tokens_for_one = config.most_prompt_tokens + config.most_new_tokens;
  config.blocks.num_device_blocks = (tokens_for_one * pick(1, 2, 4, 12)) / config.blocks.block_size + 1;
  config.blocks.num_host_blocks = pick(0, 1, 2, 3) * config.blocks.num_device_blocks / 2;
  config.blocks.enable_prefix_caching = pick(0, 1) == 1;
  config.blocks.sliding_window = pick(0, 0, 8, 20);
  config.scheduler.enable_chunked_prefill = pick(0, 1) == 1;
  config.scheduler.max_num_seqs = pick(4, 8, 32, 64);
  config.scheduler.max_num_batched_tokens = config.scheduler.enable_chunked_prefill
                                                ? std::max(config.scheduler.max_num_seqs, pick(8, 16, 64, 400))
                                                : tokens_for_one;
  config.scheduler.pipeline_depth = pick(1, 2);
  config.scheduler.can_swap = config.blocks.num_host_blocks > 0;
  config.scheduler.preemption = static_cast<PreemptionPolicy>(pick(0, 1, 2));
  config.scheduler.policy = static_cast<SchedulingPolicy>(pick(0, 1, 2));
  config.num_requests = pick(3, 12, 30);
  config.most_samples = pick(1, 3, 4, 30);
  config.abort_chance = pick(0, 0, 2, 10) / 100.0;
  config.stop_chance = pick(0, 30, 100) / 100.0;
  config.failure_chance = pick(0, 0, 5, 30) / 100.0;
  config.alike = pick(0, 1) == 1;
  config.burst = pick(1, 1, 6);
  config.crash_chance = pick(0, 0, 1, 4) / 100.0;
  config.scheduler.block_size = config.blocks.block_size;
  config.scheduler.block_bytes = pick(1, 100'000);
  config.scheduler.priority_aging_s = pick(0, 1) / 1000.0;
  config.scheduler.delay_factor = pick(0, 0, 2);
  config.scheduler.max_chunk_us = pick(0, 1, 10'000);
  return config;
}

std::string describe(const SimulationConfig& config) {
  const auto& scheduler = config.scheduler;
  const auto& blocks = config.blocks;
  const std::pair<const char*, double> facts[] = {{"block_size", blocks.block_size},
                                                  {"device_blocks", blocks.num_device_blocks},
                                                  {"host_blocks", blocks.num_host_blocks},
                                                  {"prefix_caching", blocks.enable_prefix_caching},
                                                  {"window", blocks.sliding_window},
                                                  {"chunked", scheduler.enable_chunked_prefill},
                                                  {"seqs", scheduler.max_num_seqs},
                                                  {"tokens", scheduler.max_num_batched_tokens},
                                                  {"depth", scheduler.pipeline_depth},
                                                  {"preemption", static_cast<double>(scheduler.preemption)},
                                                  {"policy", static_cast<double>(scheduler.policy)},
                                                  {"delay", scheduler.delay_factor},
                                                  {"chunk_us", static_cast<double>(scheduler.max_chunk_us)},
                                                  {"requests", config.num_requests},
                                                  {"samples", config.most_samples},
                                                  {"aborts", config.abort_chance},
                                                  {"stops", config.stop_chance},
                                                  {"failures", config.failure_chance},
                                                  {"crashes", config.crash_chance},
                                                  {"alike", config.alike},
                                                  {"burst", config.burst}};
  std::ostringstream text;
  for (const auto& [name, value] : facts) text << (text.tellp() > 0 ? ", " : "") << name << ' ' << value;
  return text.str();
}

Simulation::Simulation(const SimulationConfig& config, std::uint64_t seed)
    : config_(config),
      random_(seed),
      scheduler_(with_eos(config.scheduler)),
      blocks_(config.blocks),
      device_(config.blocks, static_cast<Timing>(seed % 3), seed) {}

bool Simulation::has_stop(const RequestSpec& spec) const {
  return static_cast<double>(mix(spec.seed, 99) % 1000) < config_.stop_chance * 1000;
}

bool Simulation::stops(const RequestSpec& spec, TokenId token) const {
  return has_stop(spec) && token % 12 == 5;
}

TokenId Simulation::next_token(const RequestSpec& spec, std::int32_t index, const TokenIds& tokens) const {
  std::uint64_t h = mix(spec.seed, static_cast<std::uint64_t>(index) + 1);
  for (const TokenId t : tokens) h = mix(h, static_cast<std::uint64_t>(t) + 7);
  if (static_cast<double>(h % 10000) < config_.eos_chance * 10000) return kEos;
  return 1 + static_cast<TokenId>((h >> 20) % (kVocab - 1));
}

std::vector<std::pair<TokenId, float>> Simulation::beam_candidates_after(const RequestSpec& spec,
                                                                         const TokenIds& tokens) const {
  std::uint64_t h = mix(spec.seed, 99);
  for (const TokenId t : tokens) h = mix(h, static_cast<std::uint64_t>(t) + 7);
  std::vector<std::pair<TokenId, float>> candidates;
  for (TokenId token = 0; token < kVocab; ++token) {
    const float chance = static_cast<float>(1 + mix(h, static_cast<std::uint64_t>(token)) % 1000) / 1001.0F;
    candidates.emplace_back(token, std::log(chance) * 4.0F);
  }
  std::ranges::sort(candidates, [](const auto& a, const auto& b) {
    return std::tie(b.second, a.first) < std::tie(a.second, b.first);
  });
  candidates.resize(static_cast<std::size_t>(beam_candidates(spec.sampling.num_sequences(), 1)));
  return candidates;
}

std::vector<TokenIds> Simulation::right_beams(const RequestSpec& spec) const {
  BeamSearch search({.width = spec.sampling.num_sequences(),
                     .max_new_tokens = spec.sampling.max_tokens,
                     .length_penalty = spec.sampling.length_penalty,
                     .early_stopping = spec.sampling.early_stopping,
                     .ending_tokens = {kEos}});
  while (!search.done()) {
    std::vector<BeamCandidate> candidates;
    for (std::size_t i = 0; i < search.running().size(); ++i) {
      TokenIds tokens = *spec.prompt;
      const TokenIds generated = search.tokens(search.running()[i].node);
      tokens.insert(tokens.end(), generated.begin(), generated.end());
      for (const auto& [token, logprob] : beam_candidates_after(spec, tokens)) {
        candidates.push_back({static_cast<std::int32_t>(i), token, logprob});
      }
    }
    search.step(candidates);
  }
  std::vector<TokenIds> best;
  for (std::int64_t i = 0; i < spec.sampling.n; ++i) {
    best.push_back(search.tokens(search.hypotheses()[static_cast<std::size_t>(i)].node));
  }
  return best;
}

TokenIds Simulation::right_answer(const RequestSpec& spec, std::int32_t index) const {
  TokenIds tokens = *spec.prompt;
  TokenIds output;
  while (static_cast<std::int64_t>(output.size()) < spec.sampling.max_tokens) {
    output.push_back(next_token(spec, index, tokens));
    tokens.push_back(output.back());
    if (output.back() == kEos || stops(spec, output.back())) break;
  }
  return output;
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
  if (random_() % 5 == 0) spec->sampling.prompt_logprobs = 0;
  if (static_cast<double>(random_() % 1000) < config_.beam_chance * 1000) {
    spec->sampling.use_beam_search = true;
    spec->sampling.best_of = up_to(most);
    spec->sampling.n = up_to(*spec->sampling.best_of);
    spec->sampling.early_stopping = static_cast<EarlyStopping>(random_() % 3);
    spec->sampling.length_penalty = static_cast<double>(random_() % 3);
  }
  told_[spec->id].spec = spec;
  scheduler_.add_group(spec);
}

void Simulation::after_scheduler_event() {
  if (const auto broken = scheduler_.check_invariants()) fail("scheduler: " + *broken);
  listen(scheduler_.take_outputs());
  if (auto plan = scheduler_.next_plan(now_)) {
    check_head_is_offered(*plan);
    to_block_manager_.push_back(std::move(*plan));
  }
}

/// Whether it fits is the block manager's to say, anew in each plan: memory may have appeared without anybody's end.
void Simulation::check_head_is_offered(const PlanStep& plan) {
  const auto head = scheduler_.head_of_queue();
  std::int64_t used = 0;
  for (const SequenceNeed& need : plan.needs) used += need.num_new_tokens;
  const bool has_reason = !head || !plan.waiting.empty() || !plan.swapped.empty() || used >= plan.token_budget ||
                          config_.scheduler.delay_factor > 0 ||
                          scheduler_.num_free_rows() < told_.at(*head).spec->sampling.num_sequences();
  plans_without_head_ = has_reason ? 0 : plans_without_head_ + 1;
  // It may wait for its own results in flight, or, where prompts have steps of their own, for its turn.
  if (plans_without_head_ > config_.scheduler.pipeline_depth + 2) fail("the head of the queue is not offered");
  for (const SwapInCandidate& group : plan.swapped) {
    num_half_swapped_ += std::ranges::find(plan.waiting, group.group, &AdmissionCandidate::group) != plan.waiting.end();
  }
}

void Simulation::listen(const StepOutputs& outputs) {
  for (const PromptLogprobsOutput& output : outputs.prompt_logprobs) {
    Told& told = told_.at(output.request);
    if (told.ended) fail("prompt logprobs after the end");
    for (const TokenReport& report : output.tokens) told.prompt_logprobs.push_back(report.token);
  }
  for (const SequenceOutput& output : outputs.outputs) {
    Told& told = told_.at(output.request);
    if (told.stopped.count(output.sequence_index) > 0) continue;
    if (told.ended || told.finished.count(output.sequence_index) > 0) {
      fail("request " + std::to_string(output.request) + " goes on after its end");
    }
    if (output.has_token) told.tokens[output.sequence_index].push_back(output.token);
    const SamplingParams& sampling = told.spec->sampling;
    if (output.finished) {
      told.finished[output.sequence_index] = *output.finished;
    } else if (output.has_token && !sampling.use_beam_search && stops(*told.spec, output.token)) {
      told.finished[output.sequence_index] = FinishReason::stop;
      told.stopped.insert(output.sequence_index);
      to_scheduler_stops_.push_back({output.request, output.sequence_index});
      ++num_stop_hits_;
    }
    const std::int64_t num_told = sampling.use_beam_search ? sampling.n : sampling.num_sequences();
    told.ended = static_cast<std::int64_t>(told.finished.size()) == num_told;
  }
  for (const RequestEnd& end : outputs.ends) {
    Told& told = told_.at(end.request);
    if (told.ended && !told.stopped.empty()) continue;  // the stop hit was still under way
    if (told.ended) fail("request " + std::to_string(end.request) + " ends twice");
    told.ended = told.aborted = true;
  }
}

void Simulation::worker(const ExecuteStep& step, const CachePlan& cache_plan) {
  for (const RowId row : step.rows_gone) {
    if (rows_.count(row) == 0) return fail("a row goes that was not there");
    device_.drop(rows_.at(row).sequence);
    rows_.erase(row);
  }
  for (const NewRow& fresh : step.new_rows) {
    if (rows_.count(fresh.row) > 0) return fail("a row comes that was there already");
    Row row{fresh.sequence, fresh.sequence_index, fresh.spec, *fresh.spec->prompt};
    row.tokens.insert(row.tokens.end(), fresh.tokens_so_far.begin(), fresh.tokens_so_far.end());
    rows_.emplace(fresh.row, std::move(row));
  }
  for (const ChosenToken& chosen : step.chosen_tokens) rows_.at(chosen.row).tokens.push_back(chosen.token);
  memory::PlannedStep planned;
  planned.plan.step = step.step;
  planned.plan.blocks = step.blocks;
  planned.plan.has_cache_plan = step.wait_for_cache;
  planned.cache_plan = cache_plan;
  for (const RowTableDelta& delta : step.table_deltas) {
    planned.plan.table_deltas.push_back({rows_.at(delta.row).sequence, delta.first_block, delta.blocks});
  }
  StepResult result;
  result.step = step.step;
  result.started_us = now_;
  result.finished_us = now_ + static_cast<TimeUs>(random_() % 300);
  const auto draws_failure = [this] {
    return config_.failure_chance > 0 && std::uniform_real_distribution<double>(0, 1)(random_) < config_.failure_chance;
  };
  if (!step.work.empty() && draws_failure()) {
    result.error = Error{ErrorCode::internal, "the step has failed", {}, -1};
  }
  std::vector<FakeRow> fake_rows;
  for (const RowWork& work : step.work) {
    Row& row = rows_.at(work.row);
    const std::int32_t end = work.first_position + work.num_tokens;
    if (row.sequence != work.sequence) return fail("a row runs for another sequence");
    if (end > static_cast<std::int32_t>(row.tokens.size())) return fail("a row runs tokens that do not exist yet");
    row.failed = row.failed || result.error || draws_failure();
    // A failed step has computed garbage, a failed row only sampled some.
    FakeRow fake{work.sequence,
                 work.first_position,
                 {},
                 result.error.has_value(),
                 awaiting_.contains(row.spec->id),
                 std::exchange(row.fresh, false)};
    Mark mark = root_mark(row.spec->cache_salt, 0);
    for (std::int32_t i = 0; i < end; ++i)
      fake.marks.push_back(mark = next_mark(mark, row.tokens[static_cast<std::size_t>(i)]));
    fake_rows.push_back(std::move(fake));
    if (row.failed) {
      if (work.num_samples > 0 && !row.spec->sampling.use_beam_search) row.tokens.push_back(0);
      if (result.error) continue;
      result.failures.push_back({work.sequence, {ErrorCode::internal, "the row has failed", {}, -1}});
      result.samples.resize(result.samples.size() + static_cast<std::size_t>(work.num_samples));
      result.prompt_logprobs.resize(result.prompt_logprobs.size() + static_cast<std::size_t>(work.num_prompt_logprobs));
      continue;
    }
    const TokenIds before = row.tokens;
    for (std::int32_t k = 0; k < work.num_prompt_logprobs; ++k) {
      const std::int32_t position = work.first_prompt_logprob + k;
      if (position <= work.first_position || position > end)
        return fail("a prompt logprob of a token that did not run");
      result.prompt_logprobs.push_back({row.tokens[static_cast<std::size_t>(position)], 0.0F, 0, {}});
    }
    if (row.spec->sampling.use_beam_search) {
      if (work.num_samples == 0) continue;
      if (end != static_cast<std::int32_t>(row.tokens.size())) return fail("a beam samples before its end");
      auto candidates = beam_candidates_after(*row.spec, row.tokens);
      result.samples.push_back({work.sequence, 0, candidates[0].first, candidates[0].second, 1, candidates});
      continue;
    }
    for (std::int32_t k = 0; k < work.num_samples; ++k) {
      const std::int32_t index = work.num_samples > 1 ? k : row.index;
      result.samples.push_back({work.sequence, k, next_token(*row.spec, index, before), 0.0F, 0, {}});
      if (k == 0) row.tokens.push_back(result.samples.back().token);
    }
  }
  device_.submit(planned, std::move(fake_rows));
  num_misled_readers_ = device_.num_misled();
  measure(cache_plan);
  to_scheduler_results_.push_back(std::move(result));
}

void Simulation::measure(const CachePlan& cache_plan) {
  const auto num_moves = static_cast<std::int64_t>(cache_plan.swap_out.size() + cache_plan.swap_in.size());
  if (num_moves == 0) return;
  scheduler_.swap_measured({num_moves * config_.scheduler.block_bytes, static_cast<TimeUs>(random_() % 500)});
}

/// What was enqueued passes, and so do the cache plans whose steps never will run; everything else of the worker is
/// lost.
void Simulation::replace_worker() {
  StepId last = to_scheduler_results_.empty() ? 0 : to_scheduler_results_.back().step;
  for (const ExecuteStep& step : to_worker_) {
    memory::PlannedStep lost;
    lost.plan.step = last = step.step;
    lost.cache_plan = std::move(cache_plans_.at(step.step));
    cache_plans_.erase(step.step);
    device_.submit(lost, {});
  }
  if (last > 0) device_.complete(last);
  device_.forget_failures();
  for (const auto& [id, row] : rows_) device_.drop(row.sequence);
  rows_.clear();
  to_worker_.clear();
  to_scheduler_results_.clear();
  scheduler_.workers_replaced();
  after_scheduler_event();
}

bool Simulation::deliver_one() {
  std::vector<int> choices;
  if (!to_block_manager_.empty()) choices.push_back(0);
  if (!to_scheduler_plans_.empty()) choices.push_back(1);
  if (!to_worker_.empty()) choices.push_back(2);
  if (!to_scheduler_results_.empty()) choices.push_back(3);
  if (arrived_ < config_.num_requests) choices.push_back(4);
  if (!to_scheduler_stops_.empty()) choices.push_back(5);
  if (choices.empty()) return false;
  switch (choices[random_() % choices.size()]) {
    case 0: {
      memory::PlannedStep planned = blocks_.plan(to_block_manager_.front());
      if (const auto broken = blocks_.check_invariants()) fail("block manager: " + *broken);
      for (std::size_t i = 0; i < planned.plan.waiting.size(); ++i) {
        if (planned.plan.waiting[i].awaits_step == 0) continue;
        awaiting_.insert(to_block_manager_.front().waiting[i].group);
        ++num_early_shares_;
      }
      to_block_manager_.pop_front();
      cache_plans_[planned.plan.step] = std::move(planned.cache_plan);
      to_scheduler_plans_.push_back(std::move(planned.plan));
      break;
    }
    case 1: {
      auto step = scheduler_.on_step_plan(to_scheduler_plans_.front(), now_);
      if (!step && !cache_plans_.at(to_scheduler_plans_.front().step).empty()) fail("a cache plan without a step");
      to_scheduler_plans_.pop_front();
      if (step) to_worker_.push_back(std::move(*step));
      after_scheduler_event();
      break;
    }
    case 2:
      worker(to_worker_.front(), cache_plans_.at(to_worker_.front().step));
      cache_plans_.erase(to_worker_.front().step);
      to_worker_.pop_front();
      break;
    case 3:
      device_.complete(to_scheduler_results_.front().step);
      for (SampleResult& sample : to_scheduler_results_.front().samples) {
        if (!device_.has_failed(sample.sequence, to_scheduler_results_.front().step)) continue;
        sample.token = kWrong;
        sample.top = {{kWrong, 0.0F}};
      }
      scheduler_.on_step_result(to_scheduler_results_.front());
      to_scheduler_results_.pop_front();
      after_scheduler_event();
      break;
    case 4:
      arrive();
      break;
    default:
      scheduler_.stop_hit(to_scheduler_stops_.front());
      to_scheduler_stops_.pop_front();
      after_scheduler_event();
      break;
  }
  device_.advance();
  return true;
}

std::optional<std::string> Simulation::run() {
  std::uniform_real_distribution<double> chance(0, 1);
  std::int64_t messages = 0;
  while (!error_ && deliver_one()) {
    now_ += 10;
    if (++messages > 200'000) fail("no end in sight");
    if (device_.error()) fail("device: " + *device_.error());
    if (arrived_ > 0 && chance(random_) < config_.abort_chance) {
      scheduler_.abort_group(1 + random_() % static_cast<RequestId>(arrived_));
      after_scheduler_event();
    }
    if (config_.crash_chance > 0 && chance(random_) < config_.crash_chance) replace_worker();
  }
  if (error_) return error_;
  if (!scheduler_.idle()) {
    const EngineStats stats = scheduler_.stats();
    return "the messages have run dry with " + std::to_string(stats.requests_waiting) + " waiting, " +
           std::to_string(stats.requests_running) + " running, " + std::to_string(stats.requests_swapped) + " swapped";
  }
  for (const auto& [id, told] : told_) {
    if (const auto problem = judge(told)) return "request " + std::to_string(id) + " " + *problem;
    beams_completed_ += told.spec->sampling.use_beam_search && !told.aborted ? 1 : 0;
  }
  const MemoryStats memory = blocks_.stats();
  if (memory.device_blocks_free + memory.device_blocks_cached != memory.device_blocks_total)
    return "device blocks leaked";
  if (memory.host_blocks_free != memory.host_blocks_total) return "host blocks leaked";
  return std::nullopt;
}

std::optional<std::string> Simulation::judge(const Told& told) const {
  if (!told.ended) return "never ended";
  const RequestSpec& spec = *told.spec;
  const std::int64_t capacity = std::int64_t{config_.blocks.num_device_blocks} * config_.blocks.block_size;
  const std::int64_t most =
      spec.sampling.num_sequences() * (std::ssize(*spec.prompt) + spec.sampling.max_tokens + config_.blocks.block_size);
  const bool may_be_cut = most > capacity;  // a group that outgrows the whole pool ends with what it has
  if (spec.sampling.prompt_logprobs && !told.aborted) {
    const TokenIds right(spec.prompt->begin() + 1, spec.prompt->end());
    if (told.prompt_logprobs != right) return "has wrong prompt logprobs";
  }
  if (spec.sampling.use_beam_search) {
    if (told.aborted)
      return told.tokens.empty() ? std::nullopt : std::optional<std::string>("tells beams before their end");
    if (may_be_cut) return std::nullopt;
    const auto right = right_beams(spec);
    for (std::size_t i = 0; i < right.size(); ++i) {
      const auto found = told.tokens.find(static_cast<std::int32_t>(i));
      if (found == told.tokens.end() || found->second != right[i]) return "has wrong beams";
    }
    return std::nullopt;
  }
  for (const auto& [index, tokens] : told.tokens) {
    TokenIds right = right_answer(spec, index);
    const bool whole = told.finished.count(index) > 0 && !told.aborted;
    if (whole && !may_be_cut && tokens.size() != right.size()) return "ended early";
    if (tokens.size() > right.size()) return "has too many tokens";
    right.resize(tokens.size());
    if (tokens != right) return "has wrong tokens";
  }
  return std::nullopt;
}

std::int64_t Simulation::preemptions() const {
  return scheduler_.stats().preemptions_recompute_total + scheduler_.stats().preemptions_swap_total;
}

}  // namespace pagoda::test
