#pragma once

#include <cstdint>

#include "engine/request/generate_request.hpp"
#include "io/serving/key_ring.hpp"

namespace pagoda::serving {

/// Sets the fields of a request that depend on the tenant of its key (null: no key): `user` becomes the key's name,
/// `priority` is not better than the tenant's, and `cache_salt` limits the request to the tenant's own entries in the
/// prefix cache. Does nothing if no key has a name.
void apply_tenant(const KeyRing& keys, const SharedPrincipal& principal, GenerateRequest& request);

}  // namespace pagoda::serving
