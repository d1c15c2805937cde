#include "io/serving/key_ring.hpp"

#include <algorithm>
#include <utility>

#include <openssl/crypto.h>
#include <openssl/evp.h>

namespace pagoda::serving {
namespace {

std::string id_of(const KeySet::Entry& entry) {
  return entry.tenant.name.empty() ? "key " + to_hex(digest_of("owner " + to_hex(entry.digest)))
                                   : "name " + entry.tenant.name;
}

}  // namespace

KeyDigest digest_of(std::string_view key) {
  KeyDigest digest{};
  unsigned size = 0;
  const int done = EVP_Digest(key.data(), key.size(), digest.data(), &size, EVP_sha256(), nullptr);
  PAGODA_ASSERT(done == 1 && size == digest.size(), "SHA-256 cannot fail");
  return digest;
}

std::string to_hex(const KeyDigest& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : digest) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

Status KeySet::add(std::string_view key, KeyRole role, const char* source) {
  if (key.empty()) return fail(ErrorCode::bad_config, std::string(source) + ": a key must not be empty", source);
  return add(digest_of(key), role, source);
}

Status KeySet::add(const KeyDigest& digest, KeyRole role, const char* source) {
  const auto same = std::ranges::find(entries, digest, &Entry::digest);
  if (same != entries.end() && same->tenant.role == role) return {};
  if (same != entries.end()) {
    return fail(ErrorCode::bad_config, std::string(source) + ": an admin key must not be an API key too", source);
  }
  entries.push_back({digest, {.role = role, .share_prefix_cache = true}});
  return {};
}

Status KeySet::add(const KeyDigest& digest, Tenant tenant) {
  for (const auto& entry : entries) {
    if (entry.digest == digest) return fail(ErrorCode::bad_config, "this key appears twice");
    if (entry.tenant.name == tenant.name && entry.tenant != tenant) {
      return fail(ErrorCode::bad_config, "another key with the name \"" + tenant.name +
                                             "\" has a different role, or different limits or settings");
    }
  }
  entries.push_back({digest, std::move(tenant)});
  return {};
}

void KeyRing::replace(const KeySet& keys) {
  const auto old = state();
  std::map<std::string, std::shared_ptr<Principal>> before;
  for (const auto& known : old->known) before.emplace(known.principal->id, known.principal);
  std::map<std::string, std::shared_ptr<Principal>> principals;
  auto next = std::make_shared<State>();
  const auto now = LimitClock::now();
  for (const auto& entry : keys.entries) {
    const auto id = id_of(entry);
    auto& principal = principals[id];
    if (!principal) {
      principal = std::make_shared<Principal>();
      principal->tenant = entry.tenant;
      principal->id = id;
      if (const auto was = before.find(id); was != before.end()) {
        principal->usage = was->second->usage;
        principal->usage->set_limits(entry.tenant.limits, now);
      } else {
        principal->usage = std::make_shared<TenantUsage>(entry.tenant.limits, now);
      }
    }
    next->known.push_back({entry.digest, principal});
    next->requires_keys |= !principal->is_admin();
    next->has_admins |= principal->is_admin();
    next->has_names |= !principal->tenant.name.empty();
  }
  {
    const std::lock_guard lock(mutex_);
    state_ = std::move(next);
  }
  for (const auto& known : old->known) known.principal->is_outdated = true;
}

SharedPrincipal KeyRing::find(const KeyDigest& digest) const {
  const auto state = this->state();
  const Known* found = nullptr;
  for (const auto& known : state->known) {
    if (CRYPTO_memcmp(known.digest.data(), digest.data(), digest.size()) == 0) found = &known;
  }
  return found == nullptr ? nullptr : found->principal;
}

SharedPrincipal KeyRing::find_principal(std::string_view id) const {
  const auto state = this->state();
  for (const auto& known : state->known) {
    if (known.principal->id == id) return known.principal;
  }
  return nullptr;
}

bool KeyRing::requires_keys() const {
  return state()->requires_keys;
}

bool KeyRing::has_admins() const {
  return state()->has_admins;
}

bool KeyRing::has_names() const {
  return state()->has_names;
}

std::shared_ptr<const KeyRing::State> KeyRing::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

Result<SharedKeys> make_key_ring(const std::vector<std::string>& api_keys, const std::vector<std::string>& admin_keys) {
  KeySet keys;
  for (const auto& key : api_keys) {
    if (auto added = keys.add(key, KeyRole::user, "api_keys"); !added) return fail(std::move(added.error()));
  }
  for (const auto& key : admin_keys) {
    if (auto added = keys.add(key, KeyRole::admin, "admin_keys"); !added) return fail(std::move(added.error()));
  }
  return std::make_shared<KeyRing>(keys);
}

}  // namespace pagoda::serving
