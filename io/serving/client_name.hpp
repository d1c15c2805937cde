#pragma once

#include <string>

#include <boost/asio/ip/tcp.hpp>

namespace pagoda::serving {

/// Returns ADDRESS:PORT of the other end of a connection; empty if the connection is closed already.
inline std::string client_name(const boost::asio::ip::tcp::socket& socket) {
  boost::system::error_code error;
  const auto endpoint = socket.remote_endpoint(error);
  if (error) return {};
  const auto address = endpoint.address().to_string();
  return (endpoint.address().is_v6() ? "[" + address + "]" : address) + ":" + std::to_string(endpoint.port());
}

}  // namespace pagoda::serving
