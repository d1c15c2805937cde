#include <atomic>
#include <map>

#include "actors/clock.hpp"
#include "actors/device_failure.hpp"
#include "actors/engine_actors.hpp"
#include "actors/promise.hpp"
#include "actors/trace_span.hpp"
#include "engine/journal/recorded_orders.hpp"

namespace pagoda::actors {
namespace {

/// A step that was received and is not fully enqueued: the model or the sampling part is missing.
struct ReceivedStep {
  std::shared_ptr<const ExecuteStep> step;
  std::shared_ptr<const StepMasks> masks;  ///< null until they have come
  std::shared_ptr<execution::IssuedStep> issued = std::make_shared<execution::IssuedStep>();
};

/// Enqueues steps on the compute stream in the order of StepOrder.
///
/// When the stream itself has failed, no later step has a result, and the worker ends. The supervisor decides whether
/// there can be another worker.
struct WorkerState {
  WorkerState() {}
  ~WorkerState() {
    end_now(loader);
    if (parts.runner) parts.runner->leave_ranks();  // the other ranks may never come to a step that waits for them
    if (parts.stream) parts.stream->synchronize();  // callbacks and ops use the runner
  }

  WorkerParts parts;
  AdapterLoaderActor loader;  ///< spawned for the first adapter, because many workers never get one
  CacheEngineActor cache_engine;
  StepSinkActor scheduler;
  caf::actor_addr supervisor;
  RankId rank = 0;
  trace::SharedTracer trace;
  Place place;
  std::unique_ptr<journal::RecordedStepOrder> order;
  std::map<StepId, ReceivedStep> steps;
  std::map<StepId, std::shared_ptr<kernels::Event>> ends_of_plans;  ///< ends of the plans for which steps wait
  std::shared_ptr<const kernels::Stream> copy_stream;               ///< copy stream of the cache engine
  std::shared_ptr<std::atomic<bool>> has_ended_a_step = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<CallbackSender<WorkerActor>> sender = std::make_shared<CallbackSender<WorkerActor>>();
};

using Self = WorkerActor::stateful_pointer<WorkerState>;

void trace_step(trace::Tracer& trace, Place place, const ExecuteStep& step, const StepResult& result) {
  std::int64_t tokens = 0;
  for (const RowWork& work : step.work) tokens += work.num_tokens;
  trace.span(trace::Row::device, "step", result.started_us, result.finished_us,
             {arg("step", step.step), arg("rows", step.work.size()), arg("tokens", tokens),
              arg("failed", result.error.has_value())},
             place);
}

void enqueue(Self self, const ReceivedStep& received, execution::StepOrder::Part part) {
  using Part = execution::StepOrder::Part;
  auto& state = state_of(self);
  kernels::Stream* stream = state.parts.stream.get();
  stream->submit([runner = state.parts.runner, stream, received, part] {
    if (part != Part::sampling) *received.issued = runner->issue(*stream, *received.step);
    if (received.masks) runner->sample(*stream, *received.masks, *received.issued);
  });
  if (part == Part::model) return;
  // A plain pointer is enough: the state waits for the stream before it releases the runner.
  stream->on_complete([runner = state.parts.runner.get(), stream, copy_stream = state.copy_stream,
                       me = caf::actor_cast<caf::actor_addr>(self), scheduler = state.scheduler, rank = state.rank,
                       trace = state.trace, place = state.place, has_ended_a_step = state.has_ended_a_step,
                       sender = state.sender, step = received.step, issued = received.issued] {
    sender->run(me, true, [&] {
      // If the copy stream has failed, the step may have read blocks that were never moved.
      const Status moved = copy_stream->status();
      const Status status = stream->status() ? moved : stream->status();
      if (!status) {
        return report_failure<WorkerActor>(
            me, [&] { return status.error(); }, !*has_ended_a_step, !moved);
      }
      *has_ended_a_step = true;
      StepResult result = runner->collect(std::move(*issued));
      result.rank = rank;
      if (trace::is_on(trace)) trace_step(*trace, place, *step, result);
      send_anonymously(scheduler, std::move(result));
    });
  });
  send(self, state.cache_engine, StepEnqueued{received.step->step, stream->record()});
}

void enqueue_ready_steps(Self self) {
  auto& state = state_of(self);
  while (const auto ready = state.order->next()) {
    if (ready->waits_for_plan) state.parts.stream->wait(state.ends_of_plans.at(ready->step));
    state.ends_of_plans.erase(state.ends_of_plans.begin(), state.ends_of_plans.upper_bound(ready->step));
    const auto received = state.steps.find(ready->step);
    enqueue(self, received->second, ready->part);
    if (ready->part != execution::StepOrder::Part::model) state.steps.erase(received);
  }
}

const AdapterLoaderActor& loader_of(Self self) {
  auto& state = state_of(self);
  if (!state.loader) state.loader = spawn_adapter_loader(self->system(), state.parts.adapters);
  return state.loader;
}

caf::typed_response_promise<AdapterLoaded> load_adapter(Self self, const LoadAdapter& message) {
  Promise<AdapterLoaded> promise(self);
  const AdapterId id = message.adapter.id;
  if (!state_of(self).parts.adapters) {
    deliver(promise, AdapterLoaded{id, fail(ErrorCode::internal, "the device has no adapters")});
    return promise.handle();
  }
  request(
      self, loader_of(self), message, [promise](AdapterLoaded& loaded) mutable { deliver(promise, std::move(loaded)); },
      [promise, id](caf::error&) mutable {
        deliver(promise, AdapterLoaded{id, fail(ErrorCode::internal, "the loader of adapters has ended")});
      });
  return promise.handle();
}

WorkerActor::behavior_type behavior(Self self, const WorkerParts& parts, const CacheEngineActor& cache_engine,
                                    const Instruments& instruments) {
  state_of(self).parts = parts;
  state_of(self).cache_engine = cache_engine;
  state_of(self).trace = instruments.trace;
  state_of(self).place = instruments.place;
  state_of(self).order = std::make_unique<journal::RecordedStepOrder>(instruments.journal, instruments.place);
  return {
      [self](ExecuteStep& step) {
        auto& state = state_of(self);
        const StepId id = step.step;
        step.wait_for_masks &= state.parts.runner->samples();
        const bool is_first = state.order->step_arrived(id, step.wait_for_cache, step.wait_for_masks);
        state.steps.emplace(id, ReceivedStep{std::make_shared<const ExecuteStep>(std::move(step)), nullptr});
        if (is_first) send(self, state.cache_engine, ConnectCache{id});
        enqueue_ready_steps(self);
      },
      [self](StepMasks& masks) {
        auto& state = state_of(self);
        if (!state.parts.runner->samples()) return;
        const auto received = state.steps.find(masks.step);
        PAGODA_ASSERT(received != state.steps.end(), "masks arrive after their step");
        state.order->masks_arrived(masks.step);
        received->second.masks = std::make_shared<const StepMasks>(std::move(masks));
        enqueue_ready_steps(self);
      },
      [self](const CacheReady& ready) {
        auto& state = state_of(self);
        state.ends_of_plans.emplace(ready.step, ready.event);
        state.order->plan_enqueued(ready.step);
        enqueue_ready_steps(self);
      },
      [self](const CacheConnected& connected) {
        auto& state = state_of(self);
        state.copy_stream = connected.copy_stream;
        state.parts.stream->wait(connected.event);
        state.order->connected(connected.last_plan);
        enqueue_ready_steps(self);
      },
      [self](const ConnectScheduler& connect) {
        state_of(self).scheduler = connect.scheduler;
        state_of(self).supervisor = connect.supervisor;
        state_of(self).rank = connect.rank;
      },
      [self](const LoadAdapter& message) { return load_adapter(self, message); },
      [self](const UnloadAdapter& message) {
        if (state_of(self).parts.adapters) send(self, loader_of(self), message);
      },
      [self](const DeviceFailed& failed) { end_with(self, state_of(self).supervisor, failed); },
  };
}

}  // namespace

WorkerActor spawn_worker(caf::actor_system& system, WorkerParts parts, CacheEngineActor cache_engine,
                         Instruments instruments) {
  return system.spawn<caf::detached>(behavior, std::move(parts), std::move(cache_engine), std::move(instruments));
}

}  // namespace pagoda::actors
