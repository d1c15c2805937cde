#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "io/serving/tenant_usage.hpp"

namespace pagoda::serving {

enum class KeyRole : std::uint8_t {
  user,   ///< may generate, and ask for what there is to know
  admin,  ///< and everything else
};

/// Who has a key, or several: all that the keys file says of one name. Keys of files without names are a tenant each.
struct Tenant {
  std::string name = {};  ///< empty: of a key without a name
  KeyRole role = KeyRole::user;
  TenantLimits limits = {};
  std::int64_t priority = 0;        ///< of its requests; what they ask for themselves can only put them further back
  bool share_prefix_cache = false;  ///< with all others that share it; else it finds only what is its own

  bool operator==(const Tenant&) const = default;
};

/// What a key opens. Servers hold it for as long as somebody uses the key, also when the keys have been read anew.
struct Principal {
  Tenant tenant;
  std::string id;  ///< never that of another tenant, and the same for ever; no key, and nothing that leads to one
  std::shared_ptr<TenantUsage> usage;
  std::atomic<bool> is_outdated = false;  ///< the keys were read anew: whoever keeps it looks its key up again

  bool is_admin() const { return tenant.role == KeyRole::admin; }
};

using SharedPrincipal = std::shared_ptr<const Principal>;

}  // namespace pagoda::serving
