#include "pagoda/spawn_engine.hpp"

#include <utility>

#include "io/serving/session.hpp"
#include "pagoda/engine_parts.hpp"

namespace pagoda {

void init_actor_types() {
  serving::init_actor_types();
}

void end_engine(const EngineHandle& engine) {
  // End the supervisor first: it treats the end of the router as a failure.
  caf::anon_send_exit(engine.supervisor, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(engine.router, caf::exit_reason::user_shutdown);
}

Result<RunningEngine> spawn_actors(caf::actor_system& system, EngineParts parts) {
  std::vector<actors::DeviceFactory> factories;
  factories.push_back(std::move(parts.device));
  auto devices = actors::spawn_devices(system, factories, parts.instruments);
  if (!devices) return fail(std::move(devices.error()));
  RunningEngine running;
  actors::SharedActors& shared = running.actors;
  actors::Replica& replica = running.replica;
  shared.tokenizer = actors::spawn_tokenizer(system, parts.tokenizer);
  const actors::Grammars grammars = actors::spawn_grammar_compiler(system, parts.tokenizer, std::move(parts.grammars));
  shared.grammar_compiler = grammars.compiler;
  shared.outputs = actors::spawn_output_processor(system, parts.tokenizer, parts.instruments);
  replica.devices = std::move(devices->actors);
  replica.block_manager = actors::spawn_block_manager(system, parts.blocks, replica.devices.cache_engines,
                                                      parts.instruments, factories.front().plans_done);
  replica.scheduler = actors::spawn_scheduler(system, parts.scheduler, replica.block_manager, replica.devices.workers,
                                              shared.outputs, parts.instruments);
  shared.router = actors::spawn_request_router(system, parts.limits, parts.info, shared.tokenizer, grammars,
                                               {replica.scheduler}, shared.outputs, parts.instruments);
  running.present = std::make_shared<actors::Replica>(replica);
  running.replica_supervisor =
      actors::spawn_replica_supervisor(system, running.present, factories, parts.instruments, devices->pids);
  running.supervisor = actors::spawn_supervisor(system, shared, running.replica_supervisor);
  // Calls give_up here and not in the replica's supervisor, because a start may block that actor.
  actors::when_ended(running.supervisor, [factories = std::move(factories)] {
    for (const actors::DeviceFactory& factory : factories) {
      if (factory.give_up) factory.give_up();
    }
  });
  return running;
}

Result<EngineHandle> spawn_engine(caf::actor_system& system, const EngineConfig& config, const EngineSetup& setup) {
  auto parts = load_engine_parts(config, setup);
  if (!parts) return fail(parts.error());
  auto model = parts->info;
  const auto journal = parts->journal_file;
  auto running = spawn_actors(system, std::move(*parts));
  if (!running) return fail(running.error());
  EngineHandle handle{running->actors.router, running->supervisor, std::move(model)};
  if (journal && setup.journal_takes_place_later) {
    handle.take_journal_place = [journal] { return journal->take_place(); };
  }
  return handle;
}

}  // namespace pagoda
