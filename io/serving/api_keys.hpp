#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::serving {

/// The keys of a file with one key a line; blank lines and lines that start with # are skipped. Errors: io_failed,
/// bad_config when there is no key in it.
Result<std::vector<std::string>> read_api_keys(const std::string& path);

/// Where `key` stands among `keys`. The time it takes says nothing about how much of a key is right.
std::optional<std::size_t> find_key(const std::vector<std::string>& keys, std::string_view key);

/// True when `key` is one of `keys`. The time it takes says nothing about how much of a key is right.
bool is_known_key(const std::vector<std::string>& keys, std::string_view key);

}  // namespace pagoda::serving
