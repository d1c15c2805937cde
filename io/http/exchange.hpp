#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "io/http/answer_form.hpp"
#include "io/http/answer_peer.hpp"
#include "io/http/error_body.hpp"
#include "io/http/request.hpp"
#include "io/serving/telemetry.hpp"

namespace pagoda::http {

/// One request that is being answered. I/O thread only.
///
/// The answer is one call of respond or respond_error, or begin_stream, any number of writes and end_stream; anything
/// else is a bug of the caller and asserted. While there is no whole answer yet the peer is watched: a client that
/// closes its connection, or only shuts its sending side, has gone, and on_closed is called at once. After that every
/// call is allowed and does nothing.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  /// Made by its peer.
  Exchange(AnswerPeer& peer, AnswerForm form, serving::RequestRecord record);
  /// Without an answer: 500. In the middle of a stream: the connection is cut, so that the client can tell.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// The whole answer. Header names and values must hold no line ends; content-length, connection, date and
  /// x-request-id are set by the transport.
  void respond(unsigned status, std::string_view content_type, std::string body, const Pairs& headers = {});

  /// The same, of type application/json, in the style of the API that the path belongs to.
  void respond_error(const ErrorAnswer& error);
  /// For an answer that could not be made or written, as where memory is out: logs `why` and closes the connection. Its
  /// client has gone then.
  void cut_off(const char* why);
  /// The same where that is nobody's fault.
  void drop();

  /// The answer comes in pieces: as chunks, or, to a client of HTTP/1.0, up to the connection's end. To HEAD it is
  /// complete with this, and on_closed is called, so that nothing more is made for nobody. The header
  /// X-Accel-Buffering asks proxies to pass each piece on, which nginx keeps back otherwise.
  void begin_stream(unsigned status, std::string_view content_type, const Pairs& headers = {});

  /// Never blocks. What is written before the I/O thread comes to sending is sent together, as one chunk. At
  /// ServerConfig::http_max_buffered_bytes unsent the client is cut off: on_closed is called, but not from within.
  void write(std::string_view bytes);

  void end_stream();

  /// Bytes of the answer that the socket has not taken yet: what grows when the client reads slowly.
  std::size_t unsent_bytes() const;

  /// Called each time that all that was written of a stream has been taken by the socket; the place to write what was
  /// held back while unsent_bytes was high. Dropped at the end of the answer.
  void on_drained(std::function<void()> callback);

  /// Called once if the client goes, is cut off, or the server ends, before end_stream or respond; never from within
  /// another call, and at once, but not from within, when it has happened already. Dropped, with all that it holds, at
  /// the end of the answer.
  void on_closed(std::function<void()> callback);

  /// False once the client has gone.
  bool is_open() const { return peer_ != nullptr; }
  bool has_begun() const { return state_ != State::waiting; }

  /// Headers of the answer that tell what is left of a key's limits; they take the place of those that were there.
  void set_limit_headers(Pairs headers) { form_.limits = std::move(headers); }

  /// Sets the answer's header that names the fields of the request which were ignored.
  void set_ignored_fields(std::string names) { form_.ignored = std::move(names); }

  /// What is told of the request once its answer has ended, for whoever answers to add to.
  serving::RequestRecord& record() { return record_; }
  bool is_reported() const { return is_reported_; }

  const std::string& request_id() const { return form_.request_id; }
  ErrorStyle style() const { return form_.style; }

  /// Lives as long as the server.
  boost::asio::io_context& io() { return io_; }

 private:
  friend class Connection;
  friend class LocalCall;
  enum class State { waiting, streaming, ended };

  void close_soon();
  void give_up();                       ///< by the peer: the handler has thrown
  void close();                         ///< by the peer: the client has gone
  void take_unframed(std::string& to);  ///< by the peer: what is to be sent now
  void end();
  void report();

  boost::asio::io_context& io_;
  AnswerPeer* peer_;  ///< null once it is closed or the answer is complete
  serving::Telemetry& telemetry_;
  AnswerForm form_;
  serving::RequestRecord record_;
  bool is_reported_ = false;
  State state_ = State::waiting;
  bool was_closed_ = false;
  std::string unframed_;  ///< written, and not yet in a chunk
  std::function<void()> on_closed_;
  std::function<void()> on_drained_;
};

}  // namespace pagoda::http
