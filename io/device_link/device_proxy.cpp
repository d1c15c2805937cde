#include "io/device_link/device_proxy.hpp"

#include <map>
#include <utility>

#include "actors/device_failure.hpp"
#include "actors/promise.hpp"

namespace pagoda::device_link {
namespace {

struct DeviceProxyState {
  DeviceProxyState() {}

  std::shared_ptr<WorkerProcess> process;
  std::map<AdapterId, actors::Promise<actors::AdapterLoaded>> loading;
  caf::actor_addr supervisor;
};

using Self = actors::DeviceProcessActor::stateful_pointer<DeviceProxyState>;

/// Returns callbacks that send results directly to the scheduler, not through this actor.
WorkerProcess::Listener listener(Self self, const actors::StepSinkActor& scheduler, RankId rank) {
  return {.on_result =
              [scheduler, rank](StepResult result) {
                result.rank = rank;  // the process does not know its rank
                actors::send_anonymously(scheduler, std::move(result));
              },
          .on_swap = [scheduler](SwapMeasured measured) { actors::send_anonymously(scheduler, measured); },
          .on_adapter =
              [me = caf::actor_cast<caf::actor_addr>(self)](actors::AdapterLoaded loaded) {
                const auto proxy = caf::actor_cast<actors::DeviceProcessActor>(me);
                if (proxy) actors::send_anonymously(proxy, std::move(loaded));
              },
          .on_end =
              [me = caf::actor_cast<caf::actor_addr>(self)](actors::DeviceFailed failed) {
                const auto proxy = caf::actor_cast<actors::DeviceProcessActor>(me);
                if (proxy) actors::send_anonymously(proxy, std::move(failed));
              }};
}

actors::DeviceProcessActor::behavior_type behavior(Self self, const std::shared_ptr<WorkerProcess>& process) {
  actors::state_of(self).process = process;
  return {
      [self](ExecuteStep& step) { actors::state_of(self).process->send(std::move(step)); },
      [self](StepMasks& masks) { actors::state_of(self).process->send(std::move(masks)); },
      [](const actors::CacheReady&) { PAGODA_ASSERT(false, "streams and events stay in their process"); },
      [](const actors::CacheConnected&) { PAGODA_ASSERT(false, "streams and events stay in their process"); },
      [self](const actors::ConnectScheduler& connect) {
        auto& state = actors::state_of(self);
        state.supervisor = connect.supervisor;
        state.process->listen(listener(self, connect.scheduler, connect.rank));
      },
      [self](const actors::LoadAdapter& message) {
        auto& state = actors::state_of(self);
        actors::Promise<actors::AdapterLoaded> promise(self);
        state.loading.insert_or_assign(message.adapter.id, promise);
        state.process->send(message);
        return promise.handle();
      },
      [self](const actors::UnloadAdapter& message) { actors::state_of(self).process->send(message); },
      [self](actors::AdapterLoaded& loaded) {
        auto asked = actors::state_of(self).loading.extract(loaded.adapter);
        if (asked) actors::deliver(asked.mapped(), std::move(loaded));
      },
      [self](CachePlan& plan) { actors::state_of(self).process->send(std::move(plan)); },
      [](const actors::StepEnqueued&) { PAGODA_ASSERT(false, "streams and events stay in their process"); },
      [](const actors::ConnectCache&) { PAGODA_ASSERT(false, "a worker's cache engine is in its process"); },
      [](const actors::ConnectWorker&) {},  // worker and cache engine are connected in their process
      [self](const actors::DeviceFailed& failed) { actors::end_with(self, actors::state_of(self).supervisor, failed); },
  };
}

}  // namespace

actors::DeviceProcessActor spawn_device_proxy(caf::actor_system& system, std::unique_ptr<WorkerProcess> process) {
  return system.spawn<caf::detached>(behavior, std::shared_ptr<WorkerProcess>(std::move(process)));
}

}  // namespace pagoda::device_link
