#pragma once

#include <cstdint>

#include "engine/request/generate_request.hpp"
#include "io/serving/key_ring.hpp"

namespace pagoda::serving {

/// Makes a request that of the tenant whose key it came with (null: of none): `user` is the key's name, `priority` no
/// better than its, and `cache_salt` such that it finds in the prefix cache what is the tenant's own. Where no key has
/// a name, requests stay as they are.
void apply_tenant(const KeyRing& keys, const SharedPrincipal& principal, GenerateRequest& request);

}  // namespace pagoda::serving
