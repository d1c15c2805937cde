#pragma once

#include <cstddef>

#include <caf/actor_registry.hpp>
#include <caf/actor_system.hpp>

namespace pagoda::actors {

/// Returns the number of actors of the system that have not ended, including CAF's own.
inline std::size_t num_running_actors(caf::actor_system& system) {
#ifdef CAF_VERSION_MAJOR  // as in caf_compat.hpp
  return system.running_actors_count();
#else
  return system.registry().running();
#endif
}

}  // namespace pagoda::actors
