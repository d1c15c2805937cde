#pragma once

#include "actors/messages.hpp"

namespace pagoda::actors {

/// Sends `Gone` to the watcher when the other actor has ended, if the watcher still lives.
template <class Gone = ChildGone, class Watcher, class Other>
void watch(const Watcher& watcher, const Other& other) {
  const auto address = caf::actor_cast<caf::actor_addr>(other);
  when_ended(other, [me = caf::actor_cast<caf::actor_addr>(watcher), address] {
    if (const auto alive = caf::actor_cast<Watcher>(me))
      retry_on_bad_alloc([&] { send_anonymously(alive, Gone{address}); });
  });
}

}  // namespace pagoda::actors
