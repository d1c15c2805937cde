#pragma once

/// The receiver of an exchange's answer: a client's connection, or a call from the same process. Private to the
/// transports.

#include <cstddef>
#include <string>

#include <boost/asio/io_context.hpp>

#include "io/serving/telemetry.hpp"

namespace pagoda::http {

/// Peer of one exchange at a time. I/O thread only. The peer must live until the exchange releases it with
/// on_answer_end or abandon, or until the peer calls Exchange::close.
class AnswerPeer {
 public:
  virtual ~AnswerPeer() = default;

  virtual boost::asio::io_context& io() = 0;
  virtual serving::Telemetry& telemetry() = 0;

  /// Returns the buffer to which the exchange appends the answer: the head, then the body.
  virtual std::string& output() = 0;
  /// Returns the number of bytes of the output that the peer has not sent yet.
  virtual std::size_t unsent_bytes() const = 0;
  virtual bool may_keep_alive() const = 0;

  /// Sends the output after the I/O thread has finished the current event.
  virtual void send_soon() = 0;
  /// Closes the peer if `unsent_bytes` is above its limit.
  virtual void check_reader(std::size_t unsent_bytes) = 0;
  /// Called when the whole answer is in the output.
  virtual void on_answer_end(bool keep_alive) = 0;
  /// Called when the exchange is destroyed before it has ended its stream.
  virtual void abandon() = 0;
  virtual void close_soon() = 0;
};

}  // namespace pagoda::http
