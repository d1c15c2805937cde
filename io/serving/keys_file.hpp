#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/serving/key_ring.hpp"

namespace pagoda::serving {

/// Keys with names, a JSON object a line:
///
///   {"name": "alice", "sha256": "...", "role": "user", "requests_per_minute": 60, "tokens_per_minute": 100000,
///    "max_concurrent_requests": 8, "priority": 0, "share_prefix_cache": false}
///
/// `name` and `sha256`, the key's digest in hexadecimal digits, must be there. Blank lines and lines that start with #
/// are skipped. The keys themselves are in no file.

inline constexpr std::size_t kMaxKeys = 10'000;
inline constexpr std::size_t kMaxTenantNameBytes = 64;
inline constexpr std::int64_t kMaxPerMinute = 1'000'000'000;  ///< of any limit
inline constexpr std::int64_t kMaxPriority = 1'000'000;       ///< forward or back

/// Adds the keys of a file, and says how many they are. Errors: bad_config, whose message begins with the path and the
/// line; io_failed. `keys` is of no use then.
Result<std::size_t> read_keys_file(const std::string& path, KeySet& keys);

/// Letters, digits, '.', '_' and '-'.
bool is_tenant_name(std::string_view name);

/// A line of such a file, without its end. What is as by default is left out.
std::string keys_file_line(const KeySet::Entry& entry);

/// A new key: "sk-pagoda-" and 256 random bits. Error: io_failed, where the system has none.
Result<std::string> new_key();

/// Adds the keys of a file with one key a line, all of `role`. Blank lines and lines that start with # are skipped.
/// `source` is the config key that names the file. Errors: io_failed; bad_config, when there is no key in it too.
Status read_plain_keys(const std::string& path, KeyRole role, const char* source, KeySet& keys);

}  // namespace pagoda::serving
