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

Result<EngineHandle> spawn_engine(caf::actor_system& system, const EngineConfig& config, const EngineSetup& setup) {
  auto parts = load_engine_parts(config, setup);
  if (!parts) return fail(parts.error());
  auto model = parts->info;
  const auto journal = parts->journal_file;
  auto running = start_engine(system, std::move(*parts), BrokenAdapters::fail_the_start);
  if (!running) return fail(running.error());
  EngineHandle handle{running->actors.router, running->supervisor, std::move(model)};
  if (journal && setup.journal_takes_place_later) {
    handle.take_journal_place = [journal] { return journal->take_place(); };
  }
  return handle;
}

}  // namespace pagoda
