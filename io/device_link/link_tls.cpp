#include "io/device_link/link_tls.hpp"

#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pagoda::device_link {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

Result<ssl::context> load_link_context(LinkSide side, const LinkFiles& files, const LinkFileKeys& keys) {
  ssl::context context(side == LinkSide::engine ? ssl::context::tls_server : ssl::context::tls_client);
  ::SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_3_VERSION);
  ::SSL_CTX_set_session_cache_mode(context.native_handle(), SSL_SESS_CACHE_OFF);
  ::SSL_CTX_set_num_tickets(context.native_handle(), 0);
  const auto take = [](const std::string& file, const char* key, const char* what, auto load) -> Status {
    if (::access(file.c_str(), R_OK) != 0) return fail(ErrorCode::io_failed, "cannot read " + file, key);
    error_code error;
    load(file, error);
    if (!error) return {};
    return fail(ErrorCode::bad_config, file + " is not " + what + ": " + error.message(), key);
  };
  error_code ignored;
  context.set_password_callback([](std::size_t, ssl::context::password_purpose) { return std::string(); }, ignored);
  Status status = take(files.cert, keys.cert, "a certificate in PEM", [&](const std::string& file, error_code& error) {
    context.use_certificate_chain_file(file, error);
  });
  if (status) {
    const std::string what = "the private key, in PEM and without a passphrase, of " + files.cert;
    status = take(files.key, keys.key, what.c_str(), [&](const std::string& file, error_code& error) {
      context.use_private_key_file(file, ssl::context::pem, error);
    });
  }
  if (status) {
    status = take(files.ca, keys.ca, "a certificate in PEM",
                  [&](const std::string& file, error_code& error) { context.load_verify_file(file, error); });
  }
  if (!status) return fail(std::move(status.error()));
  error_code error;
  context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert, error);
  if (error) return fail(ErrorCode::io_failed, "cannot set up TLS: " + error.message(), keys.ca);
  return context;
}

void set_link_options(boost::asio::ip::tcp::socket& socket) {
  error_code ignored;
  socket.set_option(boost::asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(boost::asio::socket_base::keep_alive(true), ignored);
  const auto set = [&](int option, int value) {
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, option, &value, sizeof value);
  };
  set(TCP_KEEPIDLE, 10);
  set(TCP_KEEPINTVL, 5);
  set(TCP_KEEPCNT, 3);
  set(TCP_USER_TIMEOUT, 25'000);
}

}  // namespace pagoda::device_link
