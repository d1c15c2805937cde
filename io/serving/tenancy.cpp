#include "io/serving/tenancy.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace pagoda::serving {
namespace {

/// Makes the salt of every request, so that a client cannot give the salt of another tenant.
std::string salt_of(const Principal* principal, const std::string& requested) {
  const bool shares = principal == nullptr || principal->tenant.share_prefix_cache;
  if (shares && requested.empty()) return {};
  // Unambiguous, because no id contains a line end.
  return to_hex(digest_of((shares ? std::string("shared") : principal->id) + "\n" + requested));
}

/// Moves the tenant's priority back by the requested priority; never forward.
std::int64_t priority_of(std::int64_t best, std::int64_t requested) {
  const auto behind = std::max<std::int64_t>(0, requested);
  return behind > std::numeric_limits<std::int64_t>::max() - std::max<std::int64_t>(0, best) ? behind : best + behind;
}

}  // namespace

void apply_tenant(const KeyRing& keys, const SharedPrincipal& principal, GenerateRequest& request) {
  if (!keys.has_names()) return;
  const bool has_name = principal && !principal->tenant.name.empty();
  request.user = has_name ? principal->tenant.name : std::string();
  request.cache_salt = salt_of(principal.get(), request.cache_salt);
  request.priority = priority_of(principal ? principal->tenant.priority : 0, request.priority);
}

}  // namespace pagoda::serving
