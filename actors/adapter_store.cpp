#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "actors/adapter_loads.hpp"
#include "actors/engine_actors.hpp"
#include "actors/gather.hpp"
#include "actors/promise.hpp"

namespace pagoda::actors {
namespace {

/// Drives AdapterStoreCore: loads and unloads adapters at every replica, and answers questions.
struct AdapterStoreState {
  AdapterStoreState() {}

  AdapterStoreParts parts;
  std::unique_ptr<adapters::AdapterStoreCore> core;
  std::vector<OfReplica<AdapterLoaderActor>> loaders;
  std::map<adapters::TicketId, Promise<AdapterAcquired>> acquires;  ///< the ticket is the request's id
  std::map<adapters::TicketId, Promise<AdapterReply>> changes;
  adapters::TicketId next_change = adapters::TicketId{1} << 63U;  ///< above the ids of requests
};

using Self = AdapterStoreActor::stateful_pointer<AdapterStoreState>;
using Effects = adapters::AdapterStoreCore::Effects;

void apply(Self self, Effects effects);

void unload(Self self, AdapterId id) {
  for (const auto& [replica, loader] : state_of(self).loaders) send(self, loader, UnloadAdapter{id});
}

void on_loaded(Self self, const AdapterLoaded& loaded) {
  if (!loaded.facts) unload(self, loaded.adapter);  // a replica may have it
  apply(self, state_of(self).core->load_ended(loaded.adapter, loaded.facts));
}

/// A load has failed if one replica has refused it, or if none is up. One that is down refuses nothing.
void load(Self self, const AdapterRef& adapter) {
  const auto on_answers = [self, adapter](const std::vector<OfReplica<AdapterLoaded>>& answers) {
    on_loaded(self, loaded_by_all(adapter, answers));
  };
  const auto none_is_up = [self, adapter](const caf::error&) {
    on_loaded(self, {adapter.id, fail(ErrorCode::device_failed,
                                      "adapter \"" + adapter.name + "\" cannot be loaded: no replica is up")});
  };
  gather<AdapterLoaded>(self, state_of(self).loaders, LoadAdapter{adapter}, on_answers, none_is_up);
}

void apply(Self self, Effects effects) {
  auto& state = state_of(self);
  for (auto& [ticket, adapter] : effects.answers) {
    if (auto acquire = state.acquires.extract(ticket)) {
      deliver(acquire.mapped(), AdapterAcquired{std::move(adapter)});
    } else if (auto change = state.changes.extract(ticket)) {
      deliver(change.mapped(), AdapterReply{adapter ? Status() : fail(std::move(adapter.error()))});
    }
  }
  for (const AdapterId id : effects.unloads) unload(self, id);
  for (const AdapterRef& adapter : effects.loads) load(self, adapter);
}

/// Begins a change of the known adapters; `begin` gets its ticket.
template <class Begin>
caf::typed_response_promise<AdapterReply> change(Self self, Begin begin) {
  auto& state = state_of(self);
  Promise<AdapterReply> promise(self);
  const auto ticket = state.next_change++;
  state.changes.emplace(ticket, promise);
  apply(self, begin(*state.core, ticket));
  return promise.handle();
}

caf::typed_response_promise<AdapterAcquired> acquire(Self self, const AcquireAdapter& message) {
  auto& state = state_of(self);
  Promise<AdapterAcquired> promise(self);
  state.acquires.emplace(message.request, promise);
  apply(self, state.core->acquire(message.request, message.name));
  return promise.handle();
}

AdapterList list(const adapters::AdapterStoreCore& core) {
  AdapterList list;
  const auto holders = core.holders();
  for (const AdapterRef& adapter : core.known()) {
    const auto held = holders.find(adapter.name);
    list.adapters.push_back(
        {adapter.name, adapter.path, core.is_loaded(adapter.name), held == holders.end() ? 0 : held->second});
  }
  return list;
}

/// Loads at a new scheduler what is loaded at the others, or is being loaded. A row whose adapter it cannot load fails
/// later, as after the replacement of a device.
caf::typed_response_promise<LoaderConnected> connect_loader(Self self, const ConnectLoader& message) {
  auto& state = state_of(self);
  state.loaders.at(static_cast<std::size_t>(message.replica)).value = message.loader;
  const auto promise = std::make_shared<Promise<LoaderConnected>>(self);
  const auto num_missing = std::make_shared<std::size_t>(1);
  const auto one_less = [promise, num_missing] {
    if (--*num_missing == 0) deliver(*promise, LoaderConnected{});
  };
  for (const AdapterRef& adapter : state.core->loads()) {
    ++*num_missing;
    pagoda::actors::request(
        self, message.loader, LoadAdapter{adapter},
        [name = adapter.name, replica = message.replica, one_less](const AdapterLoaded& loaded) {
          if (!loaded.facts) {
            spdlog::warn("replica {} cannot load adapter \"{}\": {}", replica, name, loaded.facts.error().message);
          }
          one_less();
        },
        [one_less](caf::error&) { one_less(); });
  }
  one_less();
  return promise->handle();
}

AdapterStoreActor::behavior_type behavior(Self self, const AdapterStoreParts& parts,
                                          const std::vector<AdapterLoaderActor>& loaders) {
  auto& initial = state_of(self);
  initial.parts = parts;
  initial.core = std::make_unique<adapters::AdapterStoreCore>(parts.max_loaded);
  for (const AdapterLoaderActor& loader : loaders) {
    initial.loaders.push_back({static_cast<ReplicaId>(initial.loaders.size()), loader});
  }
  return {
      [self](const AcquireAdapter& message) { return acquire(self, message); },
      [self](const WithdrawAdapter& message) {
        auto& state = state_of(self);
        state.acquires.erase(message.request);
        apply(self, state.core->withdraw(message.request));
      },
      [self](const ReleaseAdapter& message) { apply(self, state_of(self).core->release(message.adapter)); },
      [self](const AdapterBroken& message) { apply(self, state_of(self).core->broken(message.adapter)); },
      [self](const AddAdapter& message) {
        return change(self, [&](auto& core, auto ticket) {
          return core.add(ticket, message.name, message.path, message.stays_if_broken);
        });
      },
      [self](const RemoveAdapter& message) {
        return change(self, [&](auto& core, auto ticket) { return core.remove(ticket, message.name); });
      },
      [self](const ListAdapters&) { return reply(list(*state_of(self).core)); },
      [self](const ConnectLoader& message) { return connect_loader(self, message); },
      [self](const GetMetrics&) {
        const auto& state = state_of(self);
        return reply(metrics::AdapterMetrics{.max_in_step = state.parts.max_in_step,
                                             .loaded = static_cast<std::int64_t>(state.core->num_loaded()),
                                             .loads = state.core->counts().loads,
                                             .evictions = state.core->counts().evictions});
      },
  };
}

}  // namespace

AdapterStoreActor spawn_adapter_store(caf::actor_system& system, const AdapterStoreParts& parts,
                                      const std::vector<AdapterLoaderActor>& loaders) {
  return system.spawn(behavior, parts, loaders);
}

}  // namespace pagoda::actors
