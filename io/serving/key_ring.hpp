#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "io/serving/tenant.hpp"
#include "kernels/result.hpp"

namespace pagoda::serving {

/// SHA-256 of a key. Keys themselves are not stored. The digest has no salt, because a key should be a long random text
/// (as `pagoda key` makes it), for which no table of digests can be computed.
using KeyDigest = std::array<unsigned char, 32>;
KeyDigest digest_of(std::string_view key);
std::string to_hex(const KeyDigest& digest);

/// Digests of keys with their tenants.
struct KeySet {
  struct Entry {
    KeyDigest digest{};
    Tenant tenant;
  };
  std::vector<Entry> entries;

  /// Adds a key without a name. `source`: the config key that the key comes from. Errors: bad_config with param =
  /// `source`, if the key is empty or was added with another role before.
  Status add(std::string_view key, KeyRole role, const char* source);
  Status add(const KeyDigest& digest, KeyRole role, const char* source);
  /// Adds a key with a name. Several keys may have one name, if their tenants are equal. Errors: bad_config, without a
  /// param, if the key was added before, or the tenants of one name differ.
  Status add(const KeyDigest& digest, Tenant tenant);
};

/// The keys of a process, which can be changed while it runs. Thread-safe.
class KeyRing {
 public:
  /// Has no keys: clients need no key, and there is no admin.
  KeyRing() = default;
  explicit KeyRing(const KeySet& keys) { replace(keys); }
  KeyRing(const KeyRing&) = delete;
  KeyRing& operator=(const KeyRing&) = delete;

  /// Replaces all keys by `keys`. A tenant whose name (or, without a name, whose key) was known before keeps its usage.
  void replace(const KeySet& keys);

  /// Returns the principal of the key; null if the key is unknown. The time of the search depends only on the number of
  /// keys (no timing leak).
  SharedPrincipal find(std::string_view key) const { return find(digest_of(key)); }
  SharedPrincipal find(const KeyDigest& digest) const;
  /// Returns the principal with this Principal::id; null if there is none.
  SharedPrincipal find_principal(std::string_view id) const;

  /// Returns whether there are keys of the role `user`. If there are, clients without a key are refused.
  bool requires_keys() const;
  bool has_admins() const;
  /// Returns whether any key has a name. If one has, the names of keys decide the tenant, not the fields of requests.
  bool has_names() const;

 private:
  struct Known {
    KeyDigest digest{};
    std::shared_ptr<Principal> principal;
  };
  struct State {
    std::vector<Known> known;
    bool requires_keys = false;
    bool has_admins = false;
    bool has_names = false;
  };
  std::shared_ptr<const State> state() const;

  mutable std::mutex mutex_;
  std::shared_ptr<const State> state_ = std::make_shared<const State>();
};

using SharedKeys = std::shared_ptr<KeyRing>;

/// Makes a key ring of keys without names, for a program that embeds a server. Errors: as KeySet::add, with the param
/// api_keys or admin_keys.
Result<SharedKeys> make_key_ring(const std::vector<std::string>& api_keys,
                                 const std::vector<std::string>& admin_keys = {});

}  // namespace pagoda::serving
