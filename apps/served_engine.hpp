#pragma once

#include <memory>

#include "apps/flags.hpp"
#include "io/journal/journal_lock.hpp"
#include "io/kv_events/publisher.hpp"
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

/// `publisher`: null if the changes of prefix caches are not published. Loads the model and its chat template, and
/// starts the engine. Blocks while the model loads. Errors: as spawn_engine, and those of the template.
Result<ServedEngine> start_served_engine(caf::actor_system& system, const EngineFlags& flags,
                                         const JournalPlace& journal = {},
                                         const std::shared_ptr<kv_events::Publisher>& publisher = nullptr);

}  // namespace pagoda::apps
