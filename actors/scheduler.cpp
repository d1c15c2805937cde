#include <algorithm>
#include <optional>
#include <utility>

#include "actors/adapter_loads.hpp"
#include "actors/clock.hpp"
#include "actors/engine_actors.hpp"
#include "actors/gather.hpp"
#include "actors/promise.hpp"
#include "actors/trace_span.hpp"
#include "engine/execution/rank_results.hpp"
#include "engine/journal/recorded_scheduler.hpp"
#include "engine/scheduling/mask_threads.hpp"
#include "kernels/cpu/cpu_count.hpp"

namespace pagoda::actors {
namespace {

/// Drives SchedulerCore: after each event it may plan the next step and pass outputs on. A step goes to every rank.
struct SchedulerState {
  SchedulerState() {}

  std::unique_ptr<journal::RecordedScheduler> core;
  BlockManagerActor block_manager;
  std::vector<WorkerActor> workers;  ///< by rank
  std::optional<execution::RankResults> results;
  OutputProcessorActor outputs;
  trace::SharedTracer trace;
  memory::SharedKvEventSink kv_events;  ///< gets the names of adapters; null: there is none
  Place place;
  DeviceStatus devices;
  StepId last_step_limited = 0;  ///< the last step whose wait for masks was limited
  struct WaitingLoad {
    LoadAdapter message;
    Promise<AdapterLoaded> promise;
    std::int64_t num_crashes_before = 0;  ///< num_crashes when the load was first tried
  };
  struct Release {
    StepId last_planned = 0;  ///< the last step that was planned before it
    Promise<GroupReleased> promise;
  };
  std::vector<Release> releases;                  ///< wait for the steps and plans that were under way
  std::vector<WaitingLoad> loads_without_device;  ///< wait for the devices that replace dead ones
  std::int64_t num_replacements = 0;              ///< number of times that devices were replaced
  std::int64_t num_crashes = 0;                   ///< number of these times for which a crash was the reason
  /// Made for the first grammar, because many engines never get one.
  std::unique_ptr<scheduling::MaskThreads> mask_threads;
};

using Self = SchedulerActor::stateful_pointer<SchedulerState>;

void advance(Self self);

std::int32_t num_ranks(const std::vector<WorkerActor>& workers) {
  return static_cast<std::int32_t>(workers.size());
}

EngineStats stats_of(const SchedulerState& state) {
  EngineStats stats = state.core->core().stats();
  stats.recomputed_tokens_total = state.core->core().metrics().recomputed_tokens;
  stats.worker_pause_s_total = state.core->core().metrics().worker_pause.sum();
  stats.worker_deaths_total = state.devices.deaths;
  stats.worker_hangs_total = state.devices.hangs;
  stats.worker_pids = state.devices.pids;
  stats.health = state.devices.health;
  return stats;
}

metrics::SchedulerMetrics metrics_of(const SchedulerState& state) {
  return {stats_of(state), state.core->core().metrics()};
}

std::int64_t num_preempted(const MemoryGrant& grant) {
  return std::ranges::count_if(grant.running, [](RunningOutcome outcome) {
    return outcome == RunningOutcome::preempted_recompute || outcome == RunningOutcome::preempted_swap;
  });
}

void on_memory_grant(Self self, const MemoryGrant& grant) {
  auto& state = state_of(self);
  const TraceSpan span(state.trace, trace::Row::scheduler, "apply plan", state.place);
  auto step = state.core->on_memory_grant(grant, now_us());
  span.end({arg("step", grant.step), arg("runs", step.has_value()), arg("rows", step ? step->work.size() : 0),
            arg("preempted", trace::is_on(state.trace) ? num_preempted(grant) : 0)});
  if (step) send_to_all(self, state.workers, std::move(*step));
  advance(self);
}

scheduling::MaskThreads& mask_threads(Self self) {
  auto& state = state_of(self);
  if (!state.mask_threads) {
    constexpr int kCpusOfThread = 4;
    constexpr int kMaxThreads = 8;
    const int num_threads = std::clamp(kernels::usable_cpus().default_threads() / kCpusOfThread, 1, kMaxThreads);
    const auto notify = [me = caf::actor_cast<caf::actor_addr>(self)] {
      retry_on_bad_alloc([&] {
        if (const auto alive = caf::actor_cast<SchedulerActor>(me)) send_anonymously(alive, MasksAnswered{});
      });
    };
    state.mask_threads =
        std::make_unique<scheduling::MaskThreads>(scheduling::MaskThreadsConfig{.num_threads = num_threads}, notify);
  }
  return *state.mask_threads;
}

/// Has the masks made for which steps wait, or will wait. Masks without a grammar are made here at once. Masks of
/// grammars are made by the mask threads.
void ask_for_masks(Self self) {
  auto& state = state_of(self);
  std::vector<scheduling::MaskJob> jobs = state.core->take_mask_jobs();
  std::vector<scheduling::MadeMask> made;
  std::erase_if(jobs, [&](scheduling::MaskJob& job) {
    if (job.has_grammar()) return false;
    std::uint64_t no_work = 0;
    job.run(no_work);
    made.push_back(std::move(job.made));
    return true;
  });
  state.core->masks_made(std::move(made));
  const std::chrono::microseconds wait(state.core->core().mask_wait_us());
  if (!jobs.empty()) mask_threads(self).submit(std::move(jobs), wait);
}

/// Lets the step whose masks are sent next wait for them only for mask_wait_us().
void limit_wait_for_masks(Self self) {
  auto& state = state_of(self);
  const auto& core = state.core->core();
  const StepId step = core.step_awaiting_masks();
  if (step == 0 || step == state.last_step_limited) return;
  state.last_step_limited = step;
  const std::chrono::microseconds wait(core.mask_wait_us());
  send_later(self, caf::actor_cast<SchedulerActor>(self), wait, MasksDue{step});
}

void on_mask_answers(Self self) {
  auto& state = state_of(self);
  std::vector<scheduling::MadeMask> made;
  std::vector<SequenceId> late;
  for (scheduling::MaskAnswer& answer : state.mask_threads->take_answers()) {
    if (answer.made) {
      made.push_back(std::move(*answer.made));
    } else if (answer.error) {
      // The request may have been given up and have come back since; then its sequences are others.
      if (state.core->core().spec_of(answer.sequence) != nullptr)
        state.core->expire_group(answer.request, *answer.error);
    } else {
      late.push_back(answer.sequence);
    }
  }
  state.core->masks_made(std::move(made));
  state.core->masks_late(late);
}

/// Call after each event: sends masks that are due, plans the next step if the pipeline has room, and passes outputs
/// on.
void advance(Self self) {
  auto& state = state_of(self);
#ifdef PAGODA_CHECK_INVARIANTS
  const auto broken = state.core->core().check_invariants();
  PAGODA_ASSERT(!broken, *broken);
#endif
  ask_for_masks(self);
  while (state.core->core().has_masks_to_send()) {  // first: the worker may wait for them
    const TraceSpan span(state.trace, trace::Row::scheduler, "masks", state.place);
    StepMasks masks = *state.core->take_masks();
    span.end({arg("step", masks.step), arg("rows", masks.work.size())});
    send_to_all(self, state.workers, std::move(masks));
  }
  limit_wait_for_masks(self);
  StepOutputs outputs = state.core->take_outputs();
  const TraceSpan span(state.trace, trace::Row::scheduler, "plan step", state.place);
  if (auto plan = state.core->next_memory_request(now_us())) {
    span.end({arg("step", plan->step), arg("running", plan->running.size()), arg("swapped", plan->swapped.size()),
              arg("waiting", plan->waiting.size())});
    request(
        self, state.block_manager, std::move(*plan),
        [self](const MemoryGrant& answer) { on_memory_grant(self, answer); },
        [self](caf::error& reason) { self->quit(std::move(reason)); });
  }
  if (!outputs.empty()) send(self, state.outputs, std::move(outputs));
  // After the outputs: the router then asks the output processor for what it has received.
  std::erase_if(state.releases, [&](SchedulerState::Release& release) {
    if (!state.core->core().is_given_up(release.last_planned)) return false;
    deliver(release.promise, GroupReleased{true});
    return true;
  });
}

caf::typed_response_promise<GroupReleased> release_group(Self self, RequestId request) {
  auto& state = state_of(self);
  Promise<GroupReleased> promise(self);
  const StepId last_planned = state.core->core().last_planned();
  if (state.core->release_group(request)) {
    state.releases.push_back({last_planned, promise});
    advance(self);
  } else {
    deliver(promise, GroupReleased{false});
  }
  return promise.handle();
}

caf::typed_response_promise<view::ReplicaView> answer_view(Self self, const GetView& message) {
  Promise<view::ReplicaView> promise(self);
  request(
      self, state_of(self).block_manager, message,
      [self, promise](view::BlockMap& blocks) mutable {
        const auto& state = state_of(self);
        deliver(promise, view::ReplicaView{stats_of(state), state.core->core().queues(), std::move(blocks)});
      },
      [promise](caf::error& reason) mutable { deliver(promise, std::move(reason)); });
  return promise.handle();
}

/// Lets all devices load an adapter. If one of them ends meanwhile, the devices that replace them load it, unless
/// devices crash each time.
void load_adapter(Self self, const LoadAdapter& message, Promise<AdapterLoaded> promise,
                  std::int64_t num_crashes_before) {
  constexpr std::int64_t kMaxCrashes = 2;
  const auto& state = state_of(self);
  if (state.num_crashes - num_crashes_before >= kMaxCrashes) {
    return deliver(
        promise, AdapterLoaded{message.adapter.id, fail(ErrorCode::bad_adapter,
                                                        "adapter \"" + message.adapter.name +
                                                            "\" cannot be loaded: workers crash while they load it")});
  }
  std::vector<OfReplica<WorkerActor>> workers;
  for (const WorkerActor& worker : state.workers) workers.push_back({state.place.replica, worker});
  const auto load_later = [self, message, promise, num_crashes_before, asked = state.num_replacements] {
    auto& now = state_of(self);
    if (now.num_replacements > asked) return load_adapter(self, message, promise, num_crashes_before);
    now.loads_without_device.push_back({message, promise, num_crashes_before});
  };
  gather<AdapterLoaded>(
      self, workers, message,
      [promise, message, load_later,
       num_ranks = workers.size()](std::vector<OfReplica<AdapterLoaded>>& of_ranks) mutable {
        if (of_ranks.size() < num_ranks) return load_later();
        deliver(promise, loaded_by_all(message.adapter, of_ranks));
      },
      [load_later](caf::error&) { load_later(); });
}

SchedulerActor::behavior_type behavior(Self self, const scheduling::SchedulerConfig& config,
                                       const BlockManagerActor& block_manager, const std::vector<WorkerActor>& workers,
                                       const OutputProcessorActor& outputs, const Instruments& instruments) {
  auto& initial = state_of(self);
  initial.core = std::make_unique<journal::RecordedScheduler>(config, instruments.journal, instruments.place.replica);
  initial.block_manager = block_manager;
  initial.workers = workers;
  initial.results.emplace(num_ranks(workers), config.num_stages);
  initial.outputs = outputs;
  initial.trace = instruments.trace;
  initial.place = instruments.place;
  initial.kv_events = instruments.kv_events;
  return {
      [self](const AddGroup& message) {
        PAGODA_ASSERT(message.spec->grammar || !message.spec->sampling.structured_outputs ||
                          (message.spec->progress && message.spec->progress->has_ended()),
                      "a request with a constraint continues only with its grammar");
        state_of(self).core->add_group(message.spec);
        advance(self);
      },
      [self](const AbortGroup& message) {
        state_of(self).core->abort_group(message.request);
        advance(self);
      },
      [self](const ExpireGroup& message) {
        state_of(self).core->expire_group(message.request, message.error);
        advance(self);
      },
      [self](const ReleaseGroup& message) { return release_group(self, message.request); },
      [self](const GetProgress&) { return reply(Progress{state_of(self).core->core().progress()}); },
      [self](const LoadAdapter& message) {
        if (const auto& kv_events = state_of(self).kv_events) {
          kv_events->name_adapter(message.adapter.id, message.adapter.name);
        }
        Promise<AdapterLoaded> promise(self);
        load_adapter(self, message, promise, state_of(self).num_crashes);
        return promise.handle();
      },
      [self](const UnloadAdapter& message) {
        if (const auto& kv_events = state_of(self).kv_events) kv_events->forget_adapter(message.adapter);
        send_to_all(self, state_of(self).workers, message);
      },
      [self](const ResetPrefixCache&) {
        state_of(self).core->reset_prefix_cache();
        advance(self);
        return reply(PrefixCacheReset{});
      },
      [self](StepResult& of_rank) {
        auto& state = state_of(self);
        const auto result = state.results->add(std::move(of_rank));
        if (!result) return;
        const TraceSpan span(state.trace, trace::Row::scheduler, "step result", state.place);
        state.core->on_step_result(*result);
        span.end({arg("step", result->step), arg("tokens", result->samples.size()),
                  arg("requests_left", state.core->core().num_groups())});
        advance(self);
      },
      [self](const StopHit& hit) {
        state_of(self).core->stop_hit(hit);
        advance(self);
      },
      [self](const MasksAnswered&) {
        on_mask_answers(self);
        advance(self);
      },
      [self](const MasksDue& due) {
        auto& core = *state_of(self).core;
        if (core.core().step_awaiting_masks() != due.step) return;
        core.masks_late(core.core().missing_masks());
        advance(self);
      },
      [self](const SwapMeasured& measured) { state_of(self).core->swap_measured(measured); },
      [self](const DeviceReplaced& message) {
        auto& state = state_of(self);
        state.workers = message.workers;
        state.results->replaced(num_ranks(message.workers), state.core->core().last_step_in_flight());
        state.core->device_replaced(message.memory_lost, message.crashed);
        advance(self);
        ++state.num_replacements;
        state.num_crashes += message.crashed ? 1 : 0;
        for (const auto& load : std::exchange(state.loads_without_device, {})) {
          load_adapter(self, load.message, load.promise, load.num_crashes_before);
        }
      },
      [self](const DeviceStatus& status) { state_of(self).devices = status; },
      [self](const GetStats&) { return reply(stats_of(state_of(self))); },
      [self](const GetMetrics&) { return reply(metrics_of(state_of(self))); },
      [self](const EndScheduler&) {
        auto last = metrics_of(state_of(self));
        self->quit(caf::exit_reason::user_shutdown);
        return reply(std::move(last));
      },
      [self](const GetView& message) { return answer_view(self, message); },
  };
}

}  // namespace

SchedulerActor spawn_scheduler(caf::actor_system& system, scheduling::SchedulerConfig config,
                               BlockManagerActor block_manager, std::vector<WorkerActor> workers,
                               OutputProcessorActor outputs, Instruments instruments) {
  return system.spawn(behavior, std::move(config), std::move(block_manager), std::move(workers), std::move(outputs),
                      std::move(instruments));
}

}  // namespace pagoda::actors
