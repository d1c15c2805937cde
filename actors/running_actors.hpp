#pragma once

#include <cstddef>

#include <caf/actor_registry.hpp>
#include <caf/actor_system.hpp>

namespace pagoda::actors {

/// How many actors of the system have not ended, CAF's own included.
inline std::size_t num_running_actors(caf::actor_system& system) {
#ifdef CAF_VERSION_MAJOR  // as in caf_compat.hpp
  return system.running_actors_count();
#else
  return system.registry().running();
#endif
}

}  // namespace pagoda::actors
