#pragma once

#include <string>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>

#include "kernels/result.hpp"

namespace pagoda::device_link {

/// With what engine and workers on other hosts prove to each other who they are: files in PEM.
struct LinkFiles {
  std::string cert;  ///< of this end
  std::string key;   ///< of the certificate, without a passphrase
  std::string ca;    ///< that has signed the other end's certificate
};

enum class LinkSide { engine, worker };

using TlsStream = boost::asio::ssl::stream<boost::asio::ip::tcp::socket>;

/// TLS 1.3 with certificates at both ends. Errors (io_failed: cannot be read; bad_config: is not what it should be)
/// name the file; `keys` are the names that the files have where the user gives them, for Error::param.
struct LinkFileKeys {
  const char* cert;
  const char* key;
  const char* ca;
};
Result<boost::asio::ssl::context> load_link_context(LinkSide side, const LinkFiles& files, const LinkFileKeys& keys);

/// What is small goes out at once, and a host that has vanished is noticed within half a minute.
void set_link_options(boost::asio::ip::tcp::socket& socket);

}  // namespace pagoda::device_link
