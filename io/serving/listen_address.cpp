#include "io/serving/listen_address.hpp"

#include <charconv>

namespace pagoda::serving {

Result<ListenAddress> parse_listen(std::string_view listen, const char* key) {
  const auto refuse = [&] {
    return fail(ErrorCode::bad_config, std::string(key) + " must be HOST:PORT, not \"" + std::string(listen) + "\"",
                key);
  };
  const auto colon = listen.rfind(':');
  if (colon == std::string_view::npos) return refuse();
  auto host = listen.substr(0, colon);
  const auto port_text = listen.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return refuse();
  }
  if (host.empty()) return refuse();
  ListenAddress address{std::string(host), 0};
  const auto [end, code] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), address.port);
  if (code != std::errc{} || end != port_text.data() + port_text.size()) return refuse();
  return address;
}

}  // namespace pagoda::serving
