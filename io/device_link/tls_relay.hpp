#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>

#include "io/device_link/frame_channel.hpp"
#include "io/device_link/link_tls.hpp"
#include "kernels/result.hpp"

namespace pagoda::device_link {

/// Carries the bytes of a worker's link between a TLS connection and a local socket, in both directions. So the user of
/// the local socket needs only a plain descriptor, as for a link on one host. Reads no more than it can write. Call all
/// functions but stop() on the thread of the I/O context.
class TlsRelay : public std::enable_shared_from_this<TlsRelay> {
 public:
  using Local = boost::asio::local::stream_protocol::socket;
  /// `why`: the error of the connection that ended the relay; no error if the local end was closed or stop() was
  /// called.
  using OnEnd = std::function<void(boost::system::error_code why)>;
  /// Called when the local end has closed. Returns bytes to send behind those of the local end. If that ended within a
  /// frame, the other host takes them for the rest of it, and the link for damaged.
  using LastBytes = std::function<std::vector<std::byte>()>;

  struct Ends {
    std::shared_ptr<TlsRelay> relay;
    Descriptor local;  ///< other end of the relay's local socket
  };
  /// Makes a relay for a connection whose handshake is done. Errors: io_failed.
  static Result<Ends> create(TlsStream remote);

  /// `on_end` is called once, when both ends are closed. `last_bytes` may be null.
  void start(OnEnd on_end, LastBytes last_bytes = nullptr);
  /// Closes both ends soon. Any thread.
  void stop();

 private:
  using Piece = std::array<std::byte, std::size_t{1} << 16>;

  TlsRelay(TlsStream remote, Local local);
  void pump_in();
  void pump_out();
  /// Call when the local end is closed and its bytes are sent: sends the last ones before the connection is closed.
  void drain();
  void end_sending();
  void end(boost::system::error_code why);

  TlsStream remote_;
  Local local_;
  boost::asio::steady_timer drained_;
  OnEnd on_end_;
  LastBytes make_last_bytes_;
  std::vector<std::byte> last_bytes_;
  bool local_write_failed_ = false;
  bool local_closed_ = false;
  Piece in_;
  Piece out_;
};

}  // namespace pagoda::device_link
