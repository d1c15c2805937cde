#pragma once

#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "kernels/result.hpp"

namespace pagoda::device_link {

/// PEM files with which the engine and workers on other hosts authenticate each other.
struct LinkFiles {
  std::string cert;  ///< certificate of this end
  std::string key;   ///< key of the certificate, without a passphrase
  std::string ca;    ///< CA that has signed the other end's certificate
};

enum class LinkSide { engine, worker };

using TlsStream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;

/// Config keys or flags with which the user gives the files, for Error::param.
struct LinkFileKeys {
  const char* cert;
  const char* key;
  const char* ca;
};
/// Returns a context for TLS 1.3 with certificates at both ends. Errors name the file: io_failed (it cannot be read),
/// bad_config (it has not the right contents).
Result<boost::asio::ssl::context> load_link_context(LinkSide side, const LinkFiles& files, const LinkFileKeys& keys);

/// Sets socket options: small messages are sent at once, and a vanished host is detected within half a minute.
void set_link_options(boost::asio::ip::tcp::socket& socket);

}  // namespace pagoda::device_link
