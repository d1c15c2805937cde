#include "pagoda/spawn_engine.hpp"

#include <utility>

#include "io/json_lines/bridge.hpp"
#include "pagoda/engine_parts.hpp"

namespace pagoda {

void init_actor_types() {
#ifdef CAF_VERSION_MAJOR
  caf::init_global_meta_objects<caf::id_block::pagoda>();
  caf::init_global_meta_objects<caf::id_block::pagoda_json_lines>();
  caf::core::init_global_meta_objects();
#endif
}

void end_engine(const EngineHandle& engine) {
  // The supervisor first: it would take the router's end for a failure.
  caf::anon_send_exit(engine.supervisor, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(engine.router, caf::exit_reason::user_shutdown);
}

Result<RunningEngine> spawn_actors(caf::actor_system& system, EngineParts parts) {
  auto worker_parts = parts.make_worker();
  if (!worker_parts) return fail(worker_parts.error());
  RunningEngine running;
  actors::SupervisedActors& spawned = running.actors;
  spawned.tokenizer = actors::spawn_tokenizer(system, parts.tokenizer);
  spawned.outputs = actors::spawn_output_processor(system, parts.tokenizer, parts.trace);
  spawned.cache_engine = actors::spawn_cache_engine(system, parts.memory, parts.copy_stream, parts.trace);
  spawned.block_manager = actors::spawn_block_manager(system, parts.blocks, spawned.cache_engine, parts.trace);
  spawned.worker = actors::spawn_worker(system, std::move(*worker_parts), spawned.cache_engine, parts.trace);
  spawned.scheduler = actors::spawn_scheduler(system, parts.scheduler, spawned.block_manager, spawned.worker,
                                              spawned.outputs, parts.trace);
  spawned.router = actors::spawn_request_router(system, parts.limits, parts.info, spawned.tokenizer, spawned.scheduler,
                                                spawned.outputs, parts.trace);
  running.supervisor = actors::spawn_supervisor(system, spawned, std::move(parts.make_worker), parts.trace);
  return running;
}

Result<EngineHandle> spawn_engine(caf::actor_system& system, const EngineConfig& config, const EngineSetup& setup) {
  auto parts = load_engine_parts(config, setup);
  if (!parts) return fail(parts.error());
  auto running = spawn_actors(system, std::move(*parts));
  if (!running) return fail(running.error());
  return EngineHandle{running->actors.router, running->supervisor};
}

}  // namespace pagoda
