#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include "io/device_link/frame_channel.hpp"
#include "io/device_link/link_tls.hpp"
#include "kernels/result.hpp"

namespace pagoda::device_link {

/// Carries the bytes of a worker's link between a TLS connection and a socket of this host, both ways, so that who
/// works there speaks through a plain descriptor, as if both were on one host. Reads no more than it can write. All but
/// stop() on the thread of the I/O context.
class TlsRelay : public std::enable_shared_from_this<TlsRelay> {
 public:
  using Local = boost::asio::local::stream_protocol::socket;
  /// Why it has ended: an error of the connection, or none when the local end was closed or stop() was called.
  using OnEnd = std::function<void(boost::system::error_code why)>;

  struct Ends {
    std::shared_ptr<TlsRelay> relay;
    Descriptor local;  ///< the other end of its socket
  };
  /// After the handshake. Errors: io_failed.
  static Result<Ends> create(TlsStream remote);

  /// `on_end` is called once, when both ends are closed.
  void start(OnEnd on_end);
  /// Closes both ends soon. Any thread.
  void stop();

 private:
  using Piece = std::array<std::byte, std::size_t{1} << 16>;

  TlsRelay(TlsStream remote, Local local);
  void pump_in();
  void pump_out();
  /// The local end was closed: what it has written last goes out before the connection is closed.
  void drain();
  void end(boost::system::error_code why);

  TlsStream remote_;
  Local local_;
  boost::asio::steady_timer drained_;
  OnEnd on_end_;
  bool local_has_gone_ = false;
  Piece in_;
  Piece out_;
};

}  // namespace pagoda::device_link
