#pragma once

#include "actors/messages.hpp"

namespace pagoda::actors {

/// The watcher gets ChildGone when the child has ended, as long as it lives itself.
template <class Watcher, class Child>
void watch(const Watcher& watcher, const Child& child) {
  when_ended(child, [me = caf::actor_cast<caf::actor_addr>(watcher), address = child.address()] {
    if (const auto alive = caf::actor_cast<Watcher>(me)) send_anonymously(alive, ChildGone{address});
  });
}

}  // namespace pagoda::actors
