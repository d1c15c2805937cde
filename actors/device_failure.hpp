#pragma once

#include "actors/interfaces.hpp"

namespace pagoda::actors {

/// The owner of a stream that has failed ends; the supervisor hears why before it hears of the end.
template <class Self>
void end_with(Self* self, const caf::actor_addr& supervisor, const DeviceFailed& failed) {
  if (const auto told = caf::actor_cast<DeviceKeeperActor>(supervisor)) send(self, told, failed);
  self->quit(caf::make_error(caf::sec::runtime_error, failed.error.message));
}

}  // namespace pagoda::actors
