#include <memory>
#include <utility>

#include "actors/engine_actors.hpp"

namespace pagoda::actors {
namespace {

/// Loads adapters on a thread of its own, so that the steps of its device do not wait.
struct AdapterLoaderState {
  AdapterLoaderState() {}

  std::shared_ptr<adapters::AdapterTable> table;
};

using Self = AdapterLoaderActor::stateful_pointer<AdapterLoaderState>;

AdapterLoaderActor::behavior_type behavior(Self self, const std::shared_ptr<adapters::AdapterTable>& table) {
  state_of(self).table = table;
  return {
      [self](const LoadAdapter& message) {
        const auto loaded = state_of(self).table->load(message.adapter);
        return reply(AdapterLoaded{message.adapter.id, loaded.map([](const auto& one) { return one->facts(); })});
      },
      [self](const UnloadAdapter& message) { state_of(self).table->unload(message.adapter); },
  };
}

}  // namespace

AdapterLoaderActor spawn_adapter_loader(caf::actor_system& system, std::shared_ptr<adapters::AdapterTable> table) {
  return system.spawn<caf::detached>(behavior, std::move(table));
}

}  // namespace pagoda::actors
