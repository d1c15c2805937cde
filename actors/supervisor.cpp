#include <optional>
#include <unordered_map>

#include <spdlog/spdlog.h>

#include "actors/engine_actors.hpp"

namespace pagoda::actors {
namespace {

/// So many workers, one after the other, whose stream failed before it had ended a step: the device has failed, even if
/// it gives out new streams. More than a request may lose (scheduling::kMaxWorkersLost), so that one that makes streams
/// fail ends alone.
constexpr int kMaxWorkersInVain = 2 * scheduling::kMaxWorkersLost;

/// Keeps the engine's actors alive or ends them together.
///
/// Shutdown ladder: (1) Drain at the router: nothing new, live requests end; (2) the supervisor is told to exit; (3) it
/// sends every actor an exit that overtakes what waits in its mailbox; a worker's state waits for its stream, so no op
/// outlives the memory it uses.
///
/// An engine that fails: (1) the router is told why, refuses from then on, and passes it on to the output processor,
/// which ends every live request and then itself; all others are ended meanwhile; (2) so when the supervisor ends,
/// every live request has been told. The router stays for whoever asks later.
struct SupervisorState {
  SupervisorState() {}

  struct Kept {
    SupervisedActors actors;
    bool router_stays = false;
  };
  std::shared_ptr<Kept> kept;
  WorkerFactory make_worker;
  trace::SharedTrace trace;
  std::unordered_map<caf::actor_id, Error> device_errors;  ///< told by actors that are about to end
  int workers_in_vain = 0;
  bool failing = false;
};

using Self = SupervisorActor::stateful_pointer<SupervisorState>;

template <class Handle>
void watch(Self self, const Handle& child) {
  const auto me = caf::actor_cast<caf::actor_addr>(self);
  when_ended(child, [me, address = child.address()] {
    if (const auto supervisor = caf::actor_cast<SupervisorActor>(me)) send_anonymously(supervisor, ChildGone{address});
  });
}

void end_those_behind_the_router(const SupervisedActors& actors) {
  end_now(actors.tokenizer);
  end_now(actors.scheduler);
  end_now(actors.worker);
  end_now(actors.block_manager);
  end_now(actors.cache_engine);
}

void end_all(const SupervisedActors& actors, bool router_stays) {
  if (!router_stays) end_now(actors.router);
  end_those_behind_the_router(actors);
  // Behind what waits in its mailbox: requests that it does not know yet must hear of the end too.
  caf::anon_send_exit(actors.outputs, caf::exit_reason::user_shutdown);
}

void connect_worker(Self self, const SupervisedActors& actors) {
  send(self, actors.worker, ConnectScheduler{actors.scheduler, self->address()});
  send(self, actors.cache_engine, ConnectWorker{actors.worker, actors.scheduler, self->address()});
}

/// Nothing can be computed any more: see SupervisorState.
void fail_engine(Self self, Error error) {
  auto& state = state_of(self);
  spdlog::critical("the engine stops: {}", error.message);
  state.failing = true;
  send(self, state.kept->actors.router, EngineFailed{std::move(error)});
  end_those_behind_the_router(state.kept->actors);
}

/// The dead worker's stream is empty by now. The new one has the weights and the KV memory, but no rows.
void replace_worker(Self self, const std::optional<Error>& device_error) {
  auto& state = state_of(self);
  if (device_error && state.workers_in_vain >= kMaxWorkersInVain) {
    return fail_engine(
        self, {ErrorCode::device_failed, "the device has failed again and again: " + device_error->message, {}, -1});
  }
  auto parts = state.make_worker();
  if (!parts) {
    const std::string& why = parts.error().message;
    if (!device_error) {
      return fail_engine(self, {ErrorCode::internal, "the worker has ended and cannot be replaced: " + why, {}, -1});
    }
    return fail_engine(self, {ErrorCode::device_failed,
                              "the device has failed: " + device_error->message + "; it cannot be used again: " + why,
                              {},
                              -1});
  }
  spdlog::warn("the worker has ended; a new one recomputes what was running");
  auto& actors = state.kept->actors;
  actors.worker = spawn_worker(self->system(), std::move(*parts), actors.cache_engine, state.trace);
  watch(self, actors.worker);
  connect_worker(self, actors);
  send(self, actors.scheduler, WorkerReplaced{actors.worker});
}

void on_child_gone(Self self, const caf::actor_addr& child) {
  auto& state = state_of(self);
  const SupervisedActors& actors = state.kept->actors;
  std::optional<Error> device_error;
  if (auto told = state.device_errors.extract(child.id())) device_error = std::move(told.mapped());
  const bool is_end_of_output = child == actors.router.address() || child == actors.outputs.address();
  if (state.failing) {
    if (!is_end_of_output) return;
    state.kept->router_stays = true;
    self->quit(caf::exit_reason::user_shutdown);
  } else if (child == actors.worker.address()) {
    replace_worker(self, device_error);
  } else if (is_end_of_output) {
    spdlog::critical("an actor of the engine has ended; the engine stops");
    self->quit(caf::exit_reason::user_shutdown);
  } else if (device_error) {
    fail_engine(self, {ErrorCode::device_failed, "the device has failed: " + device_error->message, {}, -1});
  } else {
    fail_engine(self, {ErrorCode::internal, "an actor of the engine has ended", {}, -1});
  }
}

SupervisorActor::behavior_type behavior(Self self, const SupervisedActors& actors, const WorkerFactory& make_worker,
                                        const trace::SharedTrace& trace) {
  auto& state = state_of(self);
  state.kept = std::make_shared<SupervisorState::Kept>(SupervisorState::Kept{actors});
  state.make_worker = make_worker;
  state.trace = trace;
  self->attach_functor([kept = state.kept] { end_all(kept->actors, kept->router_stays); });
  watch(self, actors.router);
  watch(self, actors.tokenizer);
  watch(self, actors.scheduler);
  watch(self, actors.block_manager);
  watch(self, actors.cache_engine);
  watch(self, actors.worker);
  watch(self, actors.outputs);
  connect_worker(self, actors);
  send(self, actors.outputs, ConnectOutputs{actors.scheduler, actors.router});
  return {
      [self](const ChildGone& gone) { on_child_gone(self, gone.child); },
      [self](const DeviceFailed& failed) {
        auto& state_now = state_of(self);
        spdlog::error("the device has failed: {}", failed.error.message);
        state_now.device_errors.emplace(self->current_sender()->id(), failed.error);
        state_now.workers_in_vain = failed.in_vain ? state_now.workers_in_vain + 1 : 0;
      },
  };
}

}  // namespace

caf::actor spawn_supervisor(caf::actor_system& system, SupervisedActors actors, WorkerFactory make_worker,
                            trace::SharedTrace trace) {
  return caf::actor_cast<caf::actor>(
      system.spawn(behavior, std::move(actors), std::move(make_worker), std::move(trace)));
}

}  // namespace pagoda::actors
