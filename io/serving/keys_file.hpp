#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/serving/key_ring.hpp"

namespace pagoda::serving {

/// The keys file: keys with names, one JSON object per line:
///
///   {"name": "alice", "sha256": "...", "role": "user", "requests_per_minute": 60, "tokens_per_minute": 100000,
///    "max_concurrent_requests": 8, "priority": 0, "share_prefix_cache": false}
///
/// `name` and `sha256` (the key's digest in hexadecimal digits) are required. Empty lines and lines that start with #
/// are skipped. The file does not hold the keys themselves.

inline constexpr std::size_t kMaxKeys = 10'000;
inline constexpr std::size_t kMaxTenantNameBytes = 64;
inline constexpr std::int64_t kMaxPerMinute = 1'000'000'000;  ///< largest value of each limit
inline constexpr std::int64_t kMaxPriority = 1'000'000;       ///< largest absolute value of a priority

/// Adds the keys of a keys file to `keys` and returns their number. Errors: bad_config, whose message begins with the
/// path and the line; io_failed. After an error the contents of `keys` are unspecified.
Result<std::size_t> read_keys_file(const std::string& path, KeySet& keys);

/// Returns whether `name` may be a tenant's name: 1 to kMaxTenantNameBytes letters, digits, '.', '_' and '-'.
bool is_tenant_name(std::string_view name);

/// Returns the line of a keys file for `entry`, without a line end. Fields with default values are left out.
std::string keys_file_line(const KeySet::Entry& entry);

/// Returns a new key: "sk-pagoda-" and 256 random bits. Error: io_failed if the system provides no random bits.
Result<std::string> new_key();

/// Adds the keys of a file that has one key per line; all have the role `role`. Blank lines and lines that start with #
/// are skipped. `source` is the config key that names the file. Errors: io_failed; bad_config, also if the file has no
/// key.
Status read_plain_keys(const std::string& path, KeyRole role, const char* source, KeySet& keys);

}  // namespace pagoda::serving
