#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "io/serving/tenant_usage.hpp"

namespace pagoda::serving {

enum class KeyRole : std::uint8_t {
  user,   ///< may generate and query
  admin,  ///< may do everything
};

/// Owner of one or several keys: the settings of one name in the keys file. Each key without a name is a tenant of its
/// own.
struct Tenant {
  std::string name = {};  ///< empty: the key has no name
  KeyRole role = KeyRole::user;
  TenantLimits limits = {};
  std::int64_t priority = 0;  ///< priority of its requests; a request's own priority can only make it less urgent
  /// Whether the tenant shares its entries of the prefix cache with all tenants that have this flag. If not, the
  /// entries are private.
  bool share_prefix_cache = false;

  bool operator==(const Tenant&) const = default;
};

/// Tenant and usage that a key gives access to. Servers keep the principal while a client uses the key, even after the
/// keys are replaced.
struct Principal {
  Tenant tenant;
  std::string id;  ///< unique to the tenant, and never changes; does not reveal the key
  std::shared_ptr<TenantUsage> usage;
  std::atomic<bool> is_outdated = false;  ///< whether the keys were replaced, so the key must be looked up again

  bool is_admin() const { return tenant.role == KeyRole::admin; }
};

using SharedPrincipal = std::shared_ptr<const Principal>;

}  // namespace pagoda::serving
