#include <atomic>
#include <deque>
#include <map>

#include <spdlog/spdlog.h>

#include "actors/device_failure.hpp"
#include "actors/engine_actors.hpp"
#include "actors/trace_span.hpp"

namespace pagoda::actors {
namespace {

/// Issues cache plans on its own stream. A plan waits, in stream order, for the last step that touches its blocks, and
/// for no other; the worker is told the event that ends the plan. When a move fails, blocks do not hold what the block
/// manager believes, so no step may run: this actor ends, and the engine with it.
struct CacheEngineState {
  CacheEngineState() {}

  std::shared_ptr<execution::KvMemory> memory;
  std::shared_ptr<kernels::Stream> stream;
  WorkerActor worker;
  SchedulerActor scheduler;
  caf::actor_addr supervisor;
  trace::SharedTrace trace;
  std::map<StepId, std::shared_ptr<kernels::Event>> step_events;  ///< of steps that have not been seen to end
  StepId last_enqueued = 0;  ///< every step up to here is enqueued on the compute stream
  StepId last_plan = 0;
  std::deque<CachePlan> plans;  ///< whose stamped steps the worker has not enqueued yet
};

using Self = CacheEngineActor::stateful_pointer<CacheEngineState>;

StepId last_touched_step(const CachePlan& plan) {
  StepId last = 0;
  for (const auto* moves : {&plan.swap_out, &plan.swap_in, &plan.copies}) {
    for (const BlockMove& move : *moves) last = std::max(last, move.last_touched_step);
  }
  return last;
}

/// What becomes of a plan on the copy stream.
struct PlanRun {
  TimeUs started_us = 0;
  TimeUs swapped_us = 0;
  TimeUs finished_us = 0;
  Error error;  ///< written before failed
  std::atomic<bool> failed = false;
  std::atomic<bool> was_told = false;  ///< the worker, that its steps may run
};

/// Error: it is known to have failed.
Status issue(Self self, const std::shared_ptr<const CachePlan>& plan) {
  auto& state = state_of(self);
  const auto run = std::make_shared<PlanRun>();
  const auto submit = [&](Status (execution::KvMemory::*part)(kernels::Stream&, const CachePlan&) const) {
    state.stream->submit([run, part, memory = state.memory, stream = state.stream.get(), plan] {
      const Status status = (*memory.*part)(*stream, *plan);
      if (status) return;
      run->error = status.error();
      run->failed = true;
      spdlog::error("cache plan of step {}: {}", plan->step, status.error().message);
      PAGODA_ASSERT(!run->was_told, "a cache plan names blocks of the pools");
    });
  };
  // Times are taken in stream order, so they are those of the moves, on a device of whatever kind.
  state.stream->on_complete([run] { run->started_us = now_us(); });
  submit(&execution::KvMemory::issue_swaps);
  state.stream->on_complete([run] { run->swapped_us = now_us(); });
  submit(&execution::KvMemory::issue_copies);
  state.stream->on_complete([run, plan, scheduler = state.scheduler, trace = state.trace,
                             block_bytes = state.memory->block_bytes(), stream = state.stream.get(),
                             me = caf::actor_cast<caf::actor_addr>(self)] {
    if (const Status status = stream->status(); !status) {
      if (const auto mover = caf::actor_cast<CacheEngineActor>(me)) {
        send_anonymously(mover, DeviceFailed{status.error()});
      }
      return;
    }
    run->finished_us = now_us();
    const auto num_swaps = static_cast<std::int64_t>(plan->swap_out.size() + plan->swap_in.size());
    if (trace) {
      trace->span(
          trace::Row::cache_engine, "cache plan", run->started_us, run->finished_us,
          {arg("step", plan->step), arg("swap_out", plan->swap_out.size()), arg("swap_in", plan->swap_in.size()),
           arg("copies", plan->copies.size()), arg("swap_bytes", num_swaps * block_bytes)});
    }
    if (num_swaps > 0) {
      send_anonymously(scheduler, SwapMeasured{num_swaps * block_bytes, run->swapped_us - run->started_us});
    }
  });
  run->was_told = true;
  return run->failed ? Status(fail(run->error)) : Status();
}

void issue_ready_plans(Self self) {
  auto& state = state_of(self);
  while (!state.plans.empty()) {
    const StepId wait_for = last_touched_step(state.plans.front());
    if (wait_for > state.last_enqueued) return;
    const auto plan = std::make_shared<const CachePlan>(std::move(state.plans.front()));
    state.plans.pop_front();
    // Steps pass in order, so the last one that touches the blocks covers the others.
    if (const auto event = state.step_events.find(wait_for); event != state.step_events.end()) {
      state.stream->wait(event->second);
    }
    if (const Status issued = issue(self, plan); !issued) {
      end_with(self, state.supervisor, DeviceFailed{issued.error()});
      return;
    }
    send(self, state.worker, CacheReady{plan->step, state.stream->record()});
  }
}

void forget_passed_steps(CacheEngineState& state) {
  while (!state.step_events.empty() && state.step_events.begin()->second->finished()) {
    state.step_events.erase(state.step_events.begin());
  }
}

CacheEngineActor::behavior_type behavior(Self self, const std::shared_ptr<execution::KvMemory>& memory,
                                         const std::shared_ptr<kernels::Stream>& stream,
                                         const trace::SharedTrace& trace) {
  state_of(self).trace = trace;
  state_of(self).memory = memory;
  state_of(self).stream = stream;
  return {
      [self](const CachePlan& plan) {
        state_of(self).last_plan = plan.step;
        state_of(self).plans.push_back(plan);
        issue_ready_plans(self);
      },
      [self](const StepEnqueued& step) {
        auto& state = state_of(self);
        forget_passed_steps(state);
        state.step_events.emplace(step.step, step.event);
        state.last_enqueued = step.step;
        issue_ready_plans(self);
      },
      [self](const ConnectWorker& connect) {
        // What the last worker had enqueued has passed, and what it had not never will.
        auto& state = state_of(self);
        state.worker = connect.worker;
        state.scheduler = connect.scheduler;
        state.supervisor = connect.supervisor;
        state.step_events.clear();
        for (const CachePlan& plan : state.plans)
          state.last_enqueued = std::max(state.last_enqueued, last_touched_step(plan));
        issue_ready_plans(self);
        send(self, state.worker, CacheReady{state.last_plan, state.stream->record(), true, state.stream});
      },
      [self](const DeviceFailed& failed) { end_with(self, state_of(self).supervisor, failed); },
  };
}

}  // namespace

CacheEngineActor spawn_cache_engine(caf::actor_system& system, std::shared_ptr<execution::KvMemory> memory,
                                    std::shared_ptr<kernels::Stream> stream, trace::SharedTrace trace) {
  return system.spawn<caf::detached>(behavior, std::move(memory), std::move(stream), std::move(trace));
}

}  // namespace pagoda::actors
