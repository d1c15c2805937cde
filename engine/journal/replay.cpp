#include "engine/journal/replay.hpp"

#include <algorithm>
#include <utility>

#include "engine/journal/recorded_block_manager.hpp"
#include "engine/journal/recorded_orders.hpp"
#include "engine/journal/recorded_scheduler.hpp"

namespace pagoda::journal {
namespace {

bool is_part(Range range, std::size_t size) {
  return range.first >= 0 && range.count >= 0 &&
         std::int64_t{range.first} + range.count <= static_cast<std::int64_t>(size);
}

bool is_valid(const StepResult& result) {
  return std::ranges::all_of(result.rows, [&](const RowResult& row) {
    return is_part(row.samples(), result.samples.size()) && is_part(row.prompt_logprobs, result.prompt_logprobs.size());
  });
}

bool is_valid(const MemoryGrant& grant) {
  return std::ranges::all_of(grant.table_deltas,
                             [&](const TableDelta& delta) { return is_part(delta.blocks, grant.blocks.size()); });
}

bool is_valid(const MemoryRequest& plan) {
  const auto has_needs = [&](const auto& candidate) { return is_part(candidate.sequences, plan.needs.size()); };
  const auto has_tokens = [](const AdmissionCandidate& candidate) {
    return candidate.tokens != nullptr && !candidate.tokens->empty();
  };
  const auto is_place = [&](const SwapInCandidate& candidate) {
    return candidate.num_waiting_before >= 0 && candidate.num_waiting_before <= std::ssize(plan.waiting);
  };
  return std::ranges::all_of(plan.running, has_needs) && std::ranges::all_of(plan.swapped, has_needs) &&
         std::ranges::all_of(plan.swapped, is_place) && std::ranges::all_of(plan.waiting, has_tokens) &&
         plan.num_preempted_for_rows >= 0 && plan.num_giving_way >= 0;
}

constexpr std::int32_t kMaxRows = 1 << 20;
constexpr std::size_t kMaxKvGroups = 1 << 10;
constexpr std::int64_t kMaxVocab = 1 << 24;
constexpr std::int32_t kMaxStages = 1 << 10;

bool is_valid(const scheduling::SchedulerConfig& config) {
  return config.max_num_seqs > 0 && config.max_num_seqs <= config.max_num_batched_tokens &&
         config.max_num_seqs <= kMaxRows && config.vocab_size >= 0 && config.vocab_size <= kMaxVocab &&
         (config.pipeline_depth == 1 || config.pipeline_depth == 2) && config.num_stages > 0 &&
         config.num_stages <= kMaxStages && config.speculation.is_valid();
}

/// Returns whether the config is valid. The state after the config has a number for each block, so `state_bytes` limits
/// the number of blocks.
bool is_valid(const memory::BlockSpaceConfig& config, std::size_t state_bytes) {
  return config.layout.is_valid() && config.layout.groups.size() <= kMaxKvGroups &&
         config.layout.block_size() <= kMaxRows && config.num_device_blocks > 0 && config.num_host_blocks >= 0 &&
         std::int64_t{config.num_device_blocks} + config.num_host_blocks <= static_cast<std::int64_t>(state_bytes) &&
         config.watermark >= 0 && config.watermark < 1;
}

std::string of_step(const char* what, StepId step) {
  return what + (" of step " + std::to_string(step));
}

}  // namespace

void Replay::begin_segment(std::uint64_t number, bool follows_gap) {
  // Records before the first state belong to a state that was lost with an older segment.
  if (follows_gap || number != segment_ + 1) progress_.clear();
  for (auto& [core, progress] : progress_)
    progress.effect.reset();  // effects of inputs in the segment before are left out
  segment_ = number;
  record_ = 0;
  ++report_.num_segments;
}

void Replay::differs(const CoreId& core, std::string what) {
  progress_of(core) = {};
  report_.differences.push_back({segment_, record_, core, std::move(what)});
}

void Replay::record(std::span<const std::byte> bytes) {
  ++report_.num_records;
  const auto header = read_header(bytes);
  if (!header) {
    differs(Source::setup, "a record does not name a core");
    ++record_;
    return;
  }
  const auto& [core, what] = *header;
  Decoder in(bytes.subspan(kRecordHeaderBytes));
  if (core == Source::output && (tokenizer_ == nullptr || what == kRecoveryState)) {
    ++report_.num_not_replayed;
  } else if (what == kState) {
    if (!load_state(core, in)) differs(core, "its state cannot be read");
  } else if (const CoreProgress& progress = progress_of(core); progress.is_known) {
    if (what == kEffect) {
      compare_effect(core, in);
    } else if (progress.effect) {
      differs(core, "did more than its records hold: " + progress.effect_name);
    } else {
      ++report_.num_inputs[static_cast<std::size_t>(core.source)];
      if (!apply_input(core, static_cast<std::uint8_t>(what - kFirstInput), in)) {
        differs(core, "an input cannot be read");
      }
    }
  }
  ++record_;
}

void Replay::compare_effect(const CoreId& core, Decoder& in) {
  CoreProgress& progress = progress_of(core);
  std::uint64_t recorded = 0;
  if (!read(in, recorded)) return differs(core, "an effect cannot be read");
  if (!progress.effect) return differs(core, "did less than its records hold");
  if (*progress.effect != recorded) return differs(core, "did something else than its record: " + progress.effect_name);
  progress.effect.reset();
  ++report_.num_effects;
}

template <class Order>
bool Replay::load_order(const CoreId& core, bool went_on, Order& order, Decoder& in) {
  if (went_on) compare_unless_new(core, order, {}, in);
  order = {};
  return read(in, order);
}

bool Replay::load_scheduler(const CoreId& core, bool went_on, Decoder& in) {
  OfReplica& its = replicas_[core.replica];
  if (!in.get(its.scheduler_config) || !is_valid(its.scheduler_config)) return false;
  auto fresh = std::make_unique<scheduling::SchedulerCore>(its.scheduler_config);
  if (went_on) compare_unless_new(core, *its.scheduler, *fresh, in);
  its.scheduler = std::move(fresh);
  if (!its.scheduler->load(in) || in.num_left() > 0) return false;
  if (watcher_.grammar) its.scheduler->compile_grammars(watcher_.grammar);
  if (watcher_.masks) {
    auto made = its.scheduler->made_masks();
    add_words(*its.scheduler, made);
    its.scheduler->masks_made(std::move(made));
  }
  return true;
}

bool Replay::load_block_manager(const CoreId& core, bool went_on, Decoder& in) {
  OfReplica& its = replicas_[core.replica];
  std::vector<OfferedCandidate> offered;
  if (!in.get(its.block_config) || !in.get(offered) || !is_valid(its.block_config, in.num_left())) return false;
  its.offered.clear();
  for (const OfferedCandidate& candidate : offered) its.offered.emplace(candidate.sequence, candidate.tokens);
  auto fresh = std::make_unique<memory::BlockSpaceManager>(its.block_config);
  if (went_on) compare_unless_new(core, *its.block_manager, *fresh, in);
  its.block_manager = std::move(fresh);
  return its.block_manager->load(in) && in.num_left() == 0;
}

bool Replay::load_state(const CoreId& core, Decoder& in) {
  const bool went_on = progress_of(core).is_known;
  progress_of(core) = {};
  switch (core.source) {
    case Source::setup: {
      std::string setup;
      std::string model;
      if (!read(in, setup, model)) return false;
      if (watcher_.setup) watcher_.setup(setup);
      return true;
    }
    case Source::scheduler:
      if (!load_scheduler(core, went_on, in)) return false;
      break;
    case Source::block_manager:
      if (!load_block_manager(core, went_on, in)) return false;
      break;
    case Source::step_order:
      if (!load_order(core, went_on, replicas_[core.replica].step_orders[core.rank], in)) return false;
      break;
    case Source::cache_order:
      if (!load_order(core, went_on, replicas_[core.replica].cache_orders[core.rank], in)) return false;
      break;
    case Source::router:
      if (!load_router(went_on, in)) return false;
      break;
    case Source::output:
      if (!load_output(went_on, in)) return false;
      break;
  }
  progress_of(core).is_known = true;
  return true;
}

void Replay::save(const CoreId& core, Encoder& out) const {
  PAGODA_ASSERT(matches_record(core), "a state is saved of a core that differs from its records");
  const auto of_replica = [&]() -> const OfReplica& { return replicas_.at(core.replica); };
  switch (core.source) {
    case Source::setup:
      return;
    case Source::scheduler:
      out.put(of_replica().scheduler_config);
      return of_replica().scheduler->save(out);
    case Source::block_manager: {
      const OfReplica& its = of_replica();
      out.put(its.block_config);
      std::vector<OfferedCandidate> offered;
      for (const auto& [sequence, tokens] : its.offered) offered.push_back({sequence, tokens});
      out.put(offered);
      return its.block_manager->save(out);
    }
    case Source::step_order:
      return out.put(of_replica().step_orders.at(core.rank));
    case Source::cache_order:
      return out.put(of_replica().cache_orders.at(core.rank));
    case Source::router:
      out.put(router_limits_);
      out.put(router_started_us_);
      return router_->save(out);
    case Source::output:
      return output_->save(out);
  }
}

bool Replay::apply_input(const CoreId& core, std::uint8_t input, Decoder& in) {
  switch (core.source) {
    case Source::setup:
      return false;
    case Source::scheduler:
      return apply_scheduler_input(core, input, in);
    case Source::block_manager:
      return apply_block_manager_input(core, input, in);
    case Source::step_order:
      return apply_step_order_input(core, input, in);
    case Source::cache_order:
      return apply_cache_order_input(core, input, in);
    case Source::router:
      return apply_router_input(input, in);
    case Source::output:
      return apply_output_input(input, in);
  }
  return false;
}

SharedSpec Replay::with_grammar(SharedSpec spec) const {
  if (!watcher_.grammar || !spec->sampling.structured_outputs) return spec;
  auto complete = std::make_shared<RequestSpec>(*spec);
  complete->grammar = watcher_.grammar(*spec->sampling.structured_outputs);
  return complete;
}

/// Makes the words of masks that were recorded or saved as made, if their grammars are known.
void Replay::add_words(scheduling::SchedulerCore& scheduler, std::vector<scheduling::MadeMask>& made) {
  for (scheduling::MadeMask& mask : made) {
    auto job = scheduler.mask_job_of(mask.sequence);
    if (!job) continue;
    job->wants_jump_forward = false;
    for (std::uint64_t work = grammar::kMaxMaskWork; !job->run(work);) work = grammar::kMaxMaskWork;
    mask.words = std::move(job->made.words);
  }
}

bool Replay::apply_scheduler_input(const CoreId& core, std::uint8_t input, Decoder& in) {
  if (input > static_cast<std::uint8_t>(last_value(SchedulerInput{}))) return false;
  scheduling::SchedulerCore& scheduler = *replicas_.at(core.replica).scheduler;
  TimeUs now = 0;
  switch (static_cast<SchedulerInput>(input)) {
    case SchedulerInput::add_group: {
      SharedSpec spec;
      if (!read(in, spec) || !pagoda::is_valid(spec)) return false;
      scheduler.add_group(with_grammar(std::move(spec)));
      return true;
    }
    case SchedulerInput::abort_group: {
      RequestId request = 0;
      if (!read(in, request)) return false;
      scheduler.abort_group(request);
      return true;
    }
    case SchedulerInput::release_group: {
      RequestId request = 0;
      if (!read(in, request)) return false;
      scheduler.release_group(request);
      return true;
    }
    case SchedulerInput::expire_group: {
      RequestId request = 0;
      Error error;
      if (!read(in, request, error)) return false;
      scheduler.expire_group(request, error);
      return true;
    }
    case SchedulerInput::reset_prefix_cache:
      if (!read(in)) return false;
      scheduler.reset_prefix_cache();
      return true;
    case SchedulerInput::stop_hit: {
      StopHit hit;
      if (!read(in, hit)) return false;
      scheduler.stop_hit(hit);
      return true;
    }
    case SchedulerInput::memory_grant: {
      MemoryGrant grant;
      if (!read(in, grant, now) || !is_valid(grant)) return false;
      const auto step = scheduler.on_memory_grant(grant, now);
      if (!step) return true;
      effect(core, *step, of_step("rows", step->step));
      ++report_.num_steps;
      report_.last_step = step->step;
      if (report_.first_step == 0) report_.first_step = step->step;
      if (watcher_.step) watcher_.step(*step);
      return true;
    }
    case SchedulerInput::step_result: {
      StepResult result;
      if (!read(in, result) || !is_valid(result)) return false;
      scheduler.on_step_result(result);
      if (watcher_.result) watcher_.result(result);
      return true;
    }
    case SchedulerInput::swap_measured: {
      SwapMeasured measured;
      if (!read(in, measured)) return false;
      scheduler.swap_measured(measured);
      return true;
    }
    case SchedulerInput::device_replaced: {
      bool memory_lost = false;
      bool crashed = false;
      if (!read(in, memory_lost, crashed)) return false;
      if (watcher_.device_replaced) watcher_.device_replaced(memory_lost);
      scheduler.device_replaced(memory_lost, crashed);
      return true;
    }
    case SchedulerInput::next_memory_request: {
      if (!read(in, now)) return false;
      if (const auto plan = scheduler.next_memory_request(now)) {
        effect(core, without_tokens(*plan), of_step("plan", plan->step));
      }
      return true;
    }
    case SchedulerInput::take_masks: {
      if (!read(in)) return false;
      if (const auto masks = scheduler.take_masks()) {
        effect(core, masks->work, of_step("masks", masks->step));
        if (watcher_.masks) watcher_.masks(*masks);
      }
      return true;
    }
    case SchedulerInput::masks_made: {
      std::vector<scheduling::MadeMask> made;
      if (!read(in, made)) return false;
      if (watcher_.masks) add_words(scheduler, made);
      scheduler.masks_made(std::move(made));
      return true;
    }
    case SchedulerInput::masks_late: {
      std::vector<SequenceId> sequences;
      if (!read(in, sequences)) return false;
      scheduler.masks_late(sequences);
      return true;
    }
    case SchedulerInput::take_outputs: {
      if (!read(in)) return false;
      const StepOutputs outputs = scheduler.take_outputs();
      if (!outputs.empty()) effect(core, outputs, of_step("outputs", outputs.step));
      return true;
    }
  }
  return false;
}

bool Replay::apply_block_manager_input(const CoreId& core, std::uint8_t input, Decoder& in) {
  if (input > static_cast<std::uint8_t>(last_value(BlockManagerInput{}))) return false;
  OfReplica& its = replicas_.at(core.replica);
  MemoryRequest request;
  if (!read(in, request)) return false;
  std::map<SequenceId, SharedTokens> offered;
  for (AdmissionCandidate& candidate : request.waiting) {
    if (candidate.tokens == nullptr) candidate.tokens = its.offered[candidate.sequence];
    offered.emplace(candidate.sequence, candidate.tokens);
  }
  its.offered = std::move(offered);
  if (!is_valid(request)) return false;
  const memory::GrantedStep planned = its.block_manager->plan(request);
  effect(core, planned, of_step("answer to the plan", request.step));
  if (!planned.cache_plan.empty() && watcher_.cache_plan) watcher_.cache_plan(planned.cache_plan);
  return true;
}

bool Replay::apply_step_order_input(const CoreId& core, std::uint8_t input, Decoder& in) {
  if (input > static_cast<std::uint8_t>(last_value(StepOrderInput{}))) return false;
  execution::StepOrder& order = replicas_.at(core.replica).step_orders.at(core.rank);
  StepId step = 0;
  switch (static_cast<StepOrderInput>(input)) {
    case StepOrderInput::step_arrived: {
      bool wait_for_cache = false;
      bool wait_for_masks = false;
      if (!read(in, step, wait_for_cache, wait_for_masks)) return false;
      const bool is_first = order.step_arrived(step, wait_for_cache, wait_for_masks);
      effect(core, is_first, is_first ? "asked to connect" : "did not ask to connect");
      return true;
    }
    case StepOrderInput::masks_arrived:
      if (!read(in, step)) return false;
      order.masks_arrived(step);
      return true;
    case StepOrderInput::plan_enqueued:
      if (!read(in, step)) return false;
      order.plan_enqueued(step);
      return true;
    case StepOrderInput::connected:
      if (!read(in, step)) return false;
      order.connected(step);
      return true;
    case StepOrderInput::next: {
      if (!read(in)) return false;
      if (const auto ready = order.next()) effect(core, *ready, of_step("start", ready->step));
      return true;
    }
  }
  return false;
}

bool Replay::apply_cache_order_input(const CoreId& core, std::uint8_t input, Decoder& in) {
  if (input > static_cast<std::uint8_t>(last_value(CacheOrderInput{}))) return false;
  execution::CacheOrder& order = replicas_.at(core.replica).cache_orders.at(core.rank);
  StepId step = 0;
  switch (static_cast<CacheOrderInput>(input)) {
    case CacheOrderInput::plan_arrived: {
      StepId last_touched = 0;
      if (!read(in, step, last_touched)) return false;
      order.plan_arrived(step, last_touched);
      return true;
    }
    case CacheOrderInput::step_enqueued:
      if (!read(in, step)) return false;
      order.step_enqueued(step);
      return true;
    case CacheOrderInput::connect:
      if (!read(in, step)) return false;
      order.connect(step);
      return true;
    case CacheOrderInput::next: {
      if (!read(in)) return false;
      if (const auto ready = order.next()) effect(core, *ready, of_step("moves", ready->plan));
      return true;
    }
  }
  return false;
}

}  // namespace pagoda::journal
