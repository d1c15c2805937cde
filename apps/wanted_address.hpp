#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::apps {

/// Address at which a server of `key` (listen or http) would be reached.
struct WantedAddress {
  std::string key = {};
  std::string address = {};  ///< HOST:PORT
  bool has_keys = false;
  bool allow_unauthenticated = false;
  std::string tls_cert = {};  ///< PEM files; empty: no TLS
  std::string tls_key = {};
};

/// Returns for each address whether it could be served here: binds all at once, loads certificates, and closes them
/// again. Errors: as those of the servers.
std::vector<Status> try_addresses(std::span<const WantedAddress> all);

}  // namespace pagoda::apps
