#pragma once

#include "apps/flags.hpp"
#include "io/serving/served_models.hpp"
#include "kernels/result.hpp"
#include "pagoda/spawn_engine.hpp"

namespace pagoda::apps {

/// An engine, and its model as the HTTP APIs serve it.
struct ServedEngine {
  serving::ServedModel model;
  EngineHandle engine;
};

/// Loads the model and its chat template, and starts the engine. Blocks while the model loads. `journal_waits`: see
/// EngineSetup::journal_takes_place_later. Errors as spawn_engine; those of the template.
Result<ServedEngine> start_served_engine(caf::actor_system& system, const EngineFlags& flags,
                                         bool journal_waits = false);

}  // namespace pagoda::apps
