#include "apps/served_engine.hpp"

#include <utility>

#include "io/model_files/model_files.hpp"

namespace pagoda::apps {

Result<ServedEngine> start_served_engine(caf::actor_system& system, const EngineFlags& flags,
                                         const JournalPlace& journal, const memory::SharedKvEventSink& kv_events) {
  const auto& config = flags.config;
  auto adapters = serving::ServedAdapters::of(config);
  if (!adapters) return fail(std::move(adapters.error()));
  auto chat = io::load_chat_prompts(config);
  if (!chat) return fail(std::move(chat.error()));
  auto setup = flags.setup();
  setup.journal_takes_place_later = journal.is_taken_later;
  setup.journal_lock = journal.lock;
  setup.kv_events = kv_events;
  auto engine = spawn_engine(system, config, setup);
  if (!engine) return fail(std::move(engine.error()));
  serving::ServedModel model{.info = engine->model,
                             .router = engine->router,
                             .chat = std::move(*chat),
                             .max_queued_requests = config.max_queued_requests,
                             .adapters = std::move(*adapters)};
  if (model.adapters && model.adapters->contains(model.info.name)) {
    return fail(ErrorCode::bad_config, "lora_modules: " + model.info.name + " is the name of the model",
                "lora_modules");
  }
  if (auto names = config.served_model_names(); !names.empty()) model.aliases.assign(names.begin() + 1, names.end());
  return ServedEngine{std::move(model), std::move(*engine)};
}

}  // namespace pagoda::apps
