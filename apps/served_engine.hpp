#pragma once

#include <memory>

#include "apps/flags.hpp"
#include "engine/memory/kv_events.hpp"
#include "io/journal/journal_lock.hpp"
#include "io/serving/served_models.hpp"
#include "kernels/result.hpp"
#include "pagoda/spawn_engine.hpp"

namespace pagoda::apps {

/// An engine, and its model as the HTTP APIs serve it.
struct ServedEngine {
  serving::ServedModel model;
  EngineHandle engine;
};

/// Settings for EngineSetup::journal_takes_place_later and journal_lock.
struct JournalPlace {
  bool is_taken_later = false;
  std::shared_ptr<io::JournalLock> lock = nullptr;
};

/// `kv_events`: as EngineSetup::kv_events. Loads the model and its chat template, and
/// starts the engine. Blocks while the model loads. Errors: as spawn_engine, and those of the template.
Result<ServedEngine> start_served_engine(caf::actor_system& system, const EngineFlags& flags,
                                         const JournalPlace& journal = {},
                                         const memory::SharedKvEventSink& kv_events = nullptr);

}  // namespace pagoda::apps
