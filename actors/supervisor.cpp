#include <spdlog/spdlog.h>

#include "actors/engine_actors.hpp"

namespace pagoda::actors {
namespace {

/// Keeps the engine's actors alive or ends them together.
///
/// Shutdown ladder: (1) Drain at the router: nothing new, live requests end; (2) the supervisor is told to exit; (3) it
/// sends every actor an exit that overtakes what waits in its mailbox; a worker's state waits for its stream, so no op
/// outlives the memory it uses.
struct SupervisorState {
  SupervisorState() {}

  std::shared_ptr<SupervisedActors> actors;
  WorkerFactory make_worker;
  trace::SharedTrace trace;
};

using Supervisor = Interface<caf::result<void>(ChildGone)>;
using Self = Supervisor::stateful_pointer<SupervisorState>;

template <class Handle>
void watch(Self self, const Handle& child) {
  const auto me = caf::actor_cast<caf::actor_addr>(self);
  when_ended(child, [me, address = child.address()] {
    if (const auto supervisor = caf::actor_cast<Supervisor>(me)) send_anonymously(supervisor, ChildGone{address});
  });
}

void end_all(const SupervisedActors& actors) {
  end_now(actors.router);
  end_now(actors.tokenizer);
  end_now(actors.scheduler);
  end_now(actors.worker);
  end_now(actors.block_manager);
  end_now(actors.cache_engine);
  // Behind what waits in its mailbox: requests that it does not know yet must hear of the end too.
  caf::anon_send_exit(actors.outputs, caf::exit_reason::user_shutdown);
}

/// The dead worker's stream is empty by now. The new one has the weights and the KV memory, but no rows.
void replace_worker(Self self) {
  auto& state = state_of(self);
  auto parts = state.make_worker();
  if (!parts) {
    spdlog::error("the worker has ended and cannot be replaced: {}", parts.error().message);
    self->quit(caf::exit_reason::user_shutdown);
    return;
  }
  spdlog::warn("the worker has ended; a new one recomputes what was running");
  auto& actors = *state.actors;
  actors.worker = spawn_worker(self->system(), std::move(*parts), actors.cache_engine, state.trace);
  watch(self, actors.worker);
  send(self, actors.worker, ConnectScheduler{actors.scheduler});
  send(self, actors.cache_engine, ConnectWorker{actors.worker, actors.scheduler});
  send(self, actors.scheduler, WorkerReplaced{actors.worker});
}

Supervisor::behavior_type behavior(Self self, const SupervisedActors& actors, const WorkerFactory& make_worker,
                                   const trace::SharedTrace& trace) {
  auto& state = state_of(self);
  state.actors = std::make_shared<SupervisedActors>(actors);
  state.make_worker = make_worker;
  state.trace = trace;
  self->attach_functor([kept = state.actors] { end_all(*kept); });
  watch(self, actors.router);
  watch(self, actors.tokenizer);
  watch(self, actors.scheduler);
  watch(self, actors.block_manager);
  watch(self, actors.cache_engine);
  watch(self, actors.worker);
  watch(self, actors.outputs);
  send(self, actors.worker, ConnectScheduler{actors.scheduler});
  send(self, actors.cache_engine, ConnectWorker{actors.worker, actors.scheduler});
  send(self, actors.outputs, ConnectOutputs{actors.scheduler, actors.router});
  return {[self](const ChildGone& gone) {
    if (gone.child == state_of(self).actors->worker.address()) {
      replace_worker(self);
    } else {
      spdlog::critical("an actor of the engine has ended; the engine stops");
      self->quit(caf::exit_reason::user_shutdown);
    }
  }};
}

}  // namespace

caf::actor spawn_supervisor(caf::actor_system& system, SupervisedActors actors, WorkerFactory make_worker,
                            trace::SharedTrace trace) {
  return caf::actor_cast<caf::actor>(
      system.spawn(behavior, std::move(actors), std::move(make_worker), std::move(trace)));
}

}  // namespace pagoda::actors
