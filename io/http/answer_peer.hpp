#pragma once

/// Where an exchange writes its answer: a client's connection, or a call of this process. Private to the transports.

#include <cstddef>
#include <string>

#include <boost/asio/io_context.hpp>

#include "io/serving/telemetry.hpp"

namespace pagoda::http {

/// The peer of one exchange at a time. I/O thread only. It outlives the exchange's use of it: the exchange lets it go
/// with on_answer_end or abandon, or the peer calls Exchange::close.
class AnswerPeer {
 public:
  virtual ~AnswerPeer() = default;

  virtual boost::asio::io_context& io() = 0;
  virtual serving::Telemetry& telemetry() = 0;

  /// Takes the bytes of the answer: its head, then its body.
  virtual std::string& output() = 0;
  /// Number of bytes of the output that the peer has not taken yet.
  virtual std::size_t unsent_bytes() const = 0;
  virtual bool may_keep_alive() const = 0;

  /// Sends what is in the output once the I/O thread has finished the current event.
  virtual void send_soon() = 0;
  /// Closes the peer if `unsent_bytes` is above its limit.
  virtual void check_reader(std::size_t unsent_bytes) = 0;
  /// The whole answer is in the output.
  virtual void on_answer_end(bool keep_alive) = 0;
  /// The exchange goes without having ended its stream.
  virtual void abandon() = 0;
  virtual void close_soon() = 0;
};

}  // namespace pagoda::http
