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

/// SHA-256 of a key: all that is kept of one. Without a salt, for a key is to be a long random text (`pagoda key`
/// makes such), of which nobody can make a table.
using KeyDigest = std::array<unsigned char, 32>;
KeyDigest digest_of(std::string_view key);
std::string to_hex(const KeyDigest& digest);

/// Keys and whose they are.
struct KeySet {
  struct Entry {
    KeyDigest digest{};
    Tenant tenant;
  };
  std::vector<Entry> entries;

  /// A key without a name. Errors: bad_config, param = `source`, the config key that brings it: it is empty, or is one
  /// of another role already.
  Status add(std::string_view key, KeyRole role, const char* source);
  Status add(const KeyDigest& digest, KeyRole role, const char* source);
  /// Several may have one name, if they say the same of it. Errors: bad_config, without a param.
  Status add(const KeyDigest& digest, Tenant tenant);
};

/// The keys of a process, which can be changed while it runs. Thread-safe.
class KeyRing {
 public:
  /// Nobody needs a key, and nobody is admin.
  KeyRing() = default;
  explicit KeyRing(const KeySet& keys) { replace(keys); }
  KeyRing(const KeyRing&) = delete;
  KeyRing& operator=(const KeyRing&) = delete;

  /// From now on these are known and no others. What tenants of the same name have used stays used.
  void replace(const KeySet& keys);

  /// Whose key it is; null: nobody's. The time that it takes says nothing about the keys but how many there are.
  SharedPrincipal find(std::string_view key) const { return find(digest_of(key)); }
  SharedPrincipal find(const KeyDigest& digest) const;
  /// The principal of this id (Principal::id); null: there is none.
  SharedPrincipal find_principal(std::string_view id) const;

  /// There are users' keys: who brings none is refused.
  bool asks_for_keys() const;
  bool has_admins() const;
  /// Tenants are told apart by the names of keys, not by what requests say.
  bool has_names() const;

 private:
  struct Known {
    KeyDigest digest{};
    std::shared_ptr<Principal> principal;
  };
  struct State {
    std::vector<Known> known;
    bool asks_for_keys = false;
    bool has_admins = false;
    bool has_names = false;
  };
  std::shared_ptr<const State> state() const;

  mutable std::mutex mutex_;
  std::shared_ptr<const State> state_ = std::make_shared<const State>();
};

using SharedKeys = std::shared_ptr<KeyRing>;

/// A ring of keys without names, for a program that embeds a server.
Result<SharedKeys> make_key_ring(const std::vector<std::string>& api_keys,
                                 const std::vector<std::string>& admin_keys = {});

}  // namespace pagoda::serving
