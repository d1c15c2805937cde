#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda::serving {

struct ListenAddress {
  std::string host;
  std::uint16_t port = 0;
};

/// Splits HOST:PORT or [V6]:PORT. Error: bad_config with the param `key`, the config key of the address.
Result<ListenAddress> parse_listen(std::string_view listen, const char* key = "listen");

}  // namespace pagoda::serving
