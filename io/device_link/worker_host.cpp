#include "io/device_link/worker_host.hpp"

#include <utility>

#include <spdlog/spdlog.h>
#include <unistd.h>

#include "io/memory_reserve.hpp"

namespace pagoda::device_link {
namespace {

/// Forwards messages to the scheduler and the supervisor, which are in the engine's process.
using UplinkActor = actors::Interface<caf::result<void>(StepResult), caf::result<void>(SwapMeasured),
                                      caf::result<void>(actors::DeviceFailed)>;

UplinkActor::behavior_type uplink(UplinkActor::pointer, FrameChannel* channel) {
  return {
      [channel](StepResult& result) {
        actors::happens_before::received();
        channel->send(FromWorker(std::move(result)));
      },
      [channel](const SwapMeasured& measured) {
        actors::happens_before::received();
        channel->send(FromWorker(measured));
      },
      [channel](const actors::DeviceFailed& failed) {
        actors::happens_before::received();
        channel->send(FromWorker(failed));
      },
  };
}

/// Passes adapters on to the worker, and its answers to the engine's process.
using AdapterUplinkActor =
    actors::Interface<caf::result<void>(actors::LoadAdapter), caf::result<void>(actors::UnloadAdapter)>;

AdapterUplinkActor::behavior_type adapter_uplink(AdapterUplinkActor::pointer self, FrameChannel* channel,
                                                 const actors::WorkerActor& worker) {
  return {
      [self, channel, worker](const actors::LoadAdapter& message) {
        actors::happens_before::received();
        actors::request(
            self, worker, message,
            [channel](actors::AdapterLoaded& loaded) { channel->send(FromWorker(std::move(loaded))); },
            [](caf::error&) {});  // the worker has ended, and the process ends with it
      },
      [self, worker](const actors::UnloadAdapter& message) {
        actors::happens_before::received();
        actors::send(self, worker, message);
      },
  };
}

}  // namespace

void host_device(caf::actor_system& system, FrameChannel& channel, actors::WorkerParts worker_parts,
                 actors::CacheParts cache_parts, const execution::DeviceLimits& limits, LoadedDeviceFacts facts,
                 StageLink* stages) {
  const UplinkActor up = system.spawn(uplink, &channel);
  const auto cache_engine = actors::spawn_cache_engine(system, std::move(cache_parts), {});
  const auto worker = actors::spawn_worker(system, std::move(worker_parts), cache_engine, {});
  const auto keeper = caf::actor_cast<caf::actor_addr>(up);
  // An actor that fails sends the reason before it ends. An actor that an exception ends sends none.
  const auto has_ended = [up] {
    actors::send_anonymously(up, actors::DeviceFailed{{ErrorCode::device_failed, "an actor has ended"}, true, true});
  };
  actors::when_ended(worker, has_ended);
  actors::when_ended(cache_engine, has_ended);
  actors::send_anonymously(worker, actors::ConnectScheduler{up, keeper});
  actors::send_anonymously(cache_engine, actors::ConnectWorker{worker, up, keeper});

  const AdapterUplinkActor adapters = system.spawn(adapter_uplink, &channel, worker);

  execution::DeviceMessageChecks checks(limits);
  const auto refuse = [&](const Error& error) {
    channel.send(FromWorker(actors::DeviceFailed{error, true, true}));
    spdlog::error("worker process: {}", error.message);
    return false;
  };
  const auto take = [&](auto& message, const auto& receiver) {
    if (const Status valid = checks.check(message); !valid) return refuse(valid.error());
    actors::send_anonymously(receiver, std::move(message));
    return true;
  };
  io::MemoryReserve reserve;
  channel.send(FromWorker(WorkerReady{::getpid(), std::move(facts)}));
  channel.run([&](std::span<const std::byte> frame) {
    reserve.restore();
    ToWorker message;
    if (!decode(frame, message)) return false;
    if (auto* step = std::get_if<ExecuteStep>(&message)) return take(*step, worker);
    if (auto* masks = std::get_if<StepMasks>(&message)) return take(*masks, worker);
    if (auto* plan = std::get_if<CachePlan>(&message)) return take(*plan, cache_engine);
    if (const auto* rows = std::get_if<StageRows>(&message)) {
      // Not through the worker, whose thread waits for them.
      if (stages != nullptr && stages->take(*rows)) return true;
      return refuse({ErrorCode::internal, "the rows of step " + std::to_string(rows->step) + " are out of order"});
    }
    if (auto* load = std::get_if<actors::LoadAdapter>(&message)) {
      actors::send_anonymously(adapters, std::move(*load));
      return true;
    }
    if (const auto* unload = std::get_if<actors::UnloadAdapter>(&message)) {
      actors::send_anonymously(adapters, *unload);
      return true;
    }
    return false;
  });
}

}  // namespace pagoda::device_link
