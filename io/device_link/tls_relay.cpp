#include "io/device_link/tls_relay.hpp"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <sys/socket.h>

namespace pagoda::device_link {
namespace {

using boost::asio::buffer;
using boost::system::error_code;

/// Time for the other host to read the last bytes.
constexpr auto kDrainTime = std::chrono::seconds(2);

}  // namespace

Result<TlsRelay::Ends> TlsRelay::create(TlsStream remote) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) {
    return fail(ErrorCode::io_failed, std::string("the link to a worker: ") + std::strerror(errno));
  }
  Descriptor relayed(ends[0]);
  Descriptor local(ends[1]);
  Local socket(remote.get_executor());
  error_code error;
  socket.assign(boost::asio::local::stream_protocol(), relayed.get(), error);
  if (error) return fail(ErrorCode::io_failed, "the link to a worker: " + error.message());
  relayed.release();
  return Ends{std::shared_ptr<TlsRelay>(new TlsRelay(std::move(remote), std::move(socket))), std::move(local)};
}

TlsRelay::TlsRelay(TlsStream remote, Local local)
    : remote_(std::move(remote)), local_(std::move(local)), drained_(local_.get_executor()) {}

void TlsRelay::start(OnEnd on_end, LastBytes last_bytes) {
  on_end_ = std::move(on_end);
  make_last_bytes_ = std::move(last_bytes);
  pump_in();
  pump_out();
}

void TlsRelay::stop() {
  boost::asio::post(local_.get_executor(), [self = shared_from_this()] { self->end({}); });
}

void TlsRelay::pump_in() {
  remote_.async_read_some(buffer(in_), [self = shared_from_this()](error_code failed, std::size_t count) {
    if (failed) return self->end(failed);
    if (self->local_write_failed_) return self->pump_in();
    boost::asio::async_write(self->local_, buffer(self->in_, count), [self](error_code unwritten, std::size_t) {
      if (unwritten) self->local_write_failed_ = true;  // pump_out comes to its end too
      self->pump_in();
    });
  });
}

void TlsRelay::pump_out() {
  local_.async_read_some(buffer(out_), [self = shared_from_this()](error_code failed, std::size_t count) {
    if (failed) return self->drain();
    boost::asio::async_write(self->remote_, buffer(self->out_, count), [self](error_code unwritten, std::size_t) {
      if (unwritten) return self->end(unwritten);
      self->pump_out();
    });
  });
}

void TlsRelay::drain() {
  if (!on_end_) return;  // it has ended
  local_closed_ = local_write_failed_ = true;
  if (make_last_bytes_) last_bytes_ = std::exchange(make_last_bytes_, nullptr)();
  drained_.expires_after(kDrainTime);
  drained_.async_wait([self = shared_from_this()](error_code cancelled) {
    if (!cancelled) self->end({});
  });
  if (last_bytes_.empty()) return end_sending();
  boost::asio::async_write(remote_, buffer(last_bytes_),
                           [self = shared_from_this()](error_code, std::size_t) { self->end_sending(); });
}

void TlsRelay::end_sending() {
  error_code ignored;
  remote_.lowest_layer().shutdown(boost::asio::socket_base::shutdown_send, ignored);
}

void TlsRelay::end(error_code why) {
  if (!on_end_) return;
  const OnEnd on_end = std::exchange(on_end_, nullptr);
  drained_.cancel();
  error_code ignored;
  remote_.lowest_layer().close(ignored);
  local_.close(ignored);
  on_end(local_closed_ ? error_code() : why);
}

}  // namespace pagoda::device_link
