#include "apps/wanted_address.hpp"

#include <deque>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "io/http/tls.hpp"
#include "io/serving/listener.hpp"

namespace pagoda::apps {
namespace {

Status try_address(const WantedAddress& wanted, serving::Listener& listener) {
  if (auto status = listener.open(wanted.address, wanted.key.c_str()); !status) return status;
  if (!wanted.allow_unauthenticated) {  // if true, the server logs it itself
    if (auto status = listener.check_exposure(wanted.key.c_str(), wanted.has_keys, false); !status) return status;
  }
  if (wanted.tls_cert.empty()) return {};
  const auto tls = http::TlsContext::load(wanted.tls_cert, wanted.tls_key);
  return tls ? Status() : fail(tls.error());
}

}  // namespace

std::vector<Status> try_addresses(std::span<const WantedAddress> all) {
  boost::asio::io_context io(1);
  std::deque<serving::Listener> listeners;
  std::vector<Status> tried;
  for (const auto& wanted : all) tried.push_back(try_address(wanted, listeners.emplace_back(io)));
  return tried;
}

}  // namespace pagoda::apps
