#include <atomic>
#include <map>

#include <spdlog/spdlog.h>

#include "actors/device_failure.hpp"
#include "actors/engine_actors.hpp"
#include "actors/trace_span.hpp"
#include "engine/journal/recorded_orders.hpp"

namespace pagoda::actors {
namespace {

/// Issues cache plans on its own stream in the order of CacheOrder, and sends the worker the event that ends each plan.
/// When a move fails, blocks do not hold what the block manager expects, so no step may run: this actor ends, and its
/// replacement begins with empty pools.
struct CacheEngineState {
  CacheEngineState() {}
  ~CacheEngineState() {
    if (parts.stream) parts.stream->synchronize();  // callbacks and moves use the memory
  }

  CacheParts parts;
  WorkerActor worker;
  StepSinkActor scheduler;
  caf::actor_addr supervisor;
  trace::SharedTracer trace;
  Place place;
  std::unique_ptr<journal::RecordedCacheOrder> order;
  std::map<StepId, std::shared_ptr<const CachePlan>> plans;       ///< plans that are not enqueued yet
  std::map<StepId, std::shared_ptr<kernels::Event>> step_events;  ///< events of steps whose end has not been seen yet
  std::shared_ptr<std::atomic<bool>> has_ended_a_plan = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<CallbackSender<CacheEngineActor>> sender = std::make_shared<CallbackSender<CacheEngineActor>>();
};

using Self = CacheEngineActor::stateful_pointer<CacheEngineState>;

/// Times and result of a plan on the copy stream.
struct PlanRun {
  TimeUs started_us = 0;
  TimeUs swapped_us = 0;
  TimeUs finished_us = 0;
  Error error;  ///< written before failed
  std::atomic<bool> failed = false;
  std::atomic<bool> was_notified = false;  ///< whether the worker was sent the event, so that its steps may run
};

/// Returns an error when the plan is already known to have failed.
Status issue(Self self, const std::shared_ptr<const CachePlan>& plan) {
  auto& state = state_of(self);
  const auto run = std::make_shared<PlanRun>();
  const auto submit = [&](Status (execution::KvMemory::*part)(kernels::Stream&, const CachePlan&) const) {
    state.parts.stream->submit([run, part, memory = state.parts.memory, stream = state.parts.stream.get(), plan] {
      const Status status = (*memory.*part)(*stream, *plan);
      if (status) return;
      run->error = status.error();
      run->failed = true;
      spdlog::error("cache plan of step {}: {}", plan->step, status.error().message);
      PAGODA_ASSERT(!run->was_notified, "a cache plan names blocks of the pools");
    });
  };
  // Callbacks run in stream order, so these are the times of the moves on any kind of device.
  state.parts.stream->on_complete([run] { run->started_us = now_us(); });
  submit(&execution::KvMemory::issue_swaps);
  state.parts.stream->on_complete([run] { run->swapped_us = now_us(); });
  submit(&execution::KvMemory::issue_copies);
  state.parts.stream->on_complete([run, plan, scheduler = state.scheduler, trace = state.trace, place = state.place,
                                   block_bytes = state.parts.memory->block_bytes(), stream = state.parts.stream.get(),
                                   has_ended_a_plan = state.has_ended_a_plan, sender = state.sender,
                                   me = caf::actor_cast<caf::actor_addr>(self)] {
    sender->run(me, true, [&] {
      if (const Status status = stream->status(); !status) {
        return report_failure<CacheEngineActor>(
            me, [&] { return status.error(); }, !*has_ended_a_plan, true);
      }
      *has_ended_a_plan = true;
      run->finished_us = now_us();
      const auto num_swaps = static_cast<std::int64_t>(plan->swap_out.size() + plan->swap_in.size());
      if (trace::is_on(trace)) {
        trace->span(
            trace::Row::cache_engine, "cache plan", run->started_us, run->finished_us,
            {arg("step", plan->step), arg("swap_out", plan->swap_out.size()), arg("swap_in", plan->swap_in.size()),
             arg("copies", plan->copies.size()), arg("swap_bytes", num_swaps * block_bytes)},
            place);
      }
      if (num_swaps > 0) {
        send_anonymously(scheduler, SwapMeasured{num_swaps * block_bytes, run->swapped_us - run->started_us});
      }
    });
  });
  run->was_notified = true;
  return run->failed ? Status(fail(run->error)) : Status();
}

/// Returns whether all ready plans were issued. If one could not be issued, this actor ends.
bool issue_ready_plans(Self self) {
  auto& state = state_of(self);
  while (const auto ready = state.order->next()) {
    if (const auto event = state.step_events.find(ready->after); event != state.step_events.end()) {
      state.parts.stream->wait(event->second);
    }
    if (const Status issued = issue(self, state.plans.extract(ready->plan).mapped()); !issued) {
      end_with(self, state.supervisor, DeviceFailed{issued.error(), !*state.has_ended_a_plan, true});
      return false;
    }
    send(self, state.worker, CacheReady{ready->plan, state.parts.stream->record()});
  }
  return true;
}

void forget_passed_steps(CacheEngineState& state) {
  while (!state.step_events.empty() && state.step_events.begin()->second->finished()) {
    state.step_events.erase(state.step_events.begin());
  }
}

CacheEngineActor::behavior_type behavior(Self self, const CacheParts& parts, const Instruments& instruments) {
  state_of(self).trace = instruments.trace;
  state_of(self).place = instruments.place;
  state_of(self).order = std::make_unique<journal::RecordedCacheOrder>(instruments.journal, instruments.place);
  state_of(self).parts = parts;
  return {
      [self](CachePlan& plan) {
        auto& state = state_of(self);
        state.order->plan_arrived(plan);
        state.plans.emplace(plan.step, std::make_shared<const CachePlan>(std::move(plan)));
        issue_ready_plans(self);
      },
      [self](const StepEnqueued& step) {
        auto& state = state_of(self);
        forget_passed_steps(state);
        state.step_events.emplace(step.step, step.event);
        state.order->step_enqueued(step.step);
        issue_ready_plans(self);
      },
      [self](const ConnectCache& connect) {
        auto& state = state_of(self);
        state.step_events.clear();
        state.order->connect(connect.first_step);
        if (!issue_ready_plans(self)) return;
        send(self, state.worker,
             CacheConnected{state.order->last_plan(), state.parts.stream->record(), state.parts.stream});
      },
      [self](const ConnectWorker& connect) {
        auto& state = state_of(self);
        state.worker = connect.worker;
        state.scheduler = connect.scheduler;
        state.supervisor = connect.supervisor;
      },
      [self](const DeviceFailed& failed) { end_with(self, state_of(self).supervisor, failed); },
  };
}

}  // namespace

CacheEngineActor spawn_cache_engine(caf::actor_system& system, CacheParts parts, Instruments instruments) {
  return system.spawn<caf::detached>(behavior, std::move(parts), std::move(instruments));
}

}  // namespace pagoda::actors
