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
/// The answer is either one call of respond or respond_error, or begin_stream, any number of writes and end_stream.
/// Any other order of calls is a bug of the caller, and an assertion fails. Until the answer is complete the peer is
/// watched: on_closed is called at once if the client closes its connection or only its sending side. After that all
/// calls are allowed and do nothing.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  /// Called by the peer.
  Exchange(AnswerPeer& peer, AnswerForm form, serving::RequestRecord record);
  /// Sends 500 if there is no answer yet. In the middle of a stream it cuts the connection, so that the client notices
  /// the error.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  /// Sends the whole answer. Header names and values must not contain line ends. The transport sets content-length,
  /// connection, date and x-request-id.
  void respond(unsigned status, std::string_view content_type, std::string body, const Pairs& headers = {});

  /// Sends an error of type application/json, in the style of the path's API.
  void respond_error(const ErrorAnswer& error);
  /// Logs `why` and closes the connection. Call if the answer cannot be made or written, for example if memory is out.
  /// The exchange is then closed as if the client had disconnected.
  void cut_off(const char* why);
  /// Closes the connection like cut_off, without a log entry.
  void drop();

  /// Begins an answer in pieces: in chunks or, for a client of HTTP/1.0, until the connection ends. For HEAD the answer
  /// is then complete, and on_closed is called so that the caller stops the generation. The header X-Accel-Buffering:
  /// no makes proxies such as nginx pass each piece on at once.
  void begin_stream(unsigned status, std::string_view content_type, const Pairs& headers = {});

  /// Appends bytes to the stream. Never blocks. All bytes that are written before the I/O thread sends are sent as one
  /// chunk. If more than ServerConfig::http_max_buffered_bytes are unsent, the client is cut off: on_closed is called,
  /// but not from within write.
  void write(std::string_view bytes);

  void end_stream();

  /// Returns the number of bytes of the answer that the socket has not taken yet. The number grows if the client reads
  /// slowly.
  std::size_t unsent_bytes() const;

  /// Sets a callback that runs each time the socket has taken all bytes that were written. Use it to write data that
  /// was held back while unsent_bytes was high. The callback is dropped at the end of the answer.
  void on_drained(std::function<void()> callback);

  /// Sets a callback that runs once if the client closes or is cut off, or the server ends, before end_stream or
  /// respond. If that has already happened, it runs soon. It never runs from within another call of the exchange. The
  /// callback and all that it holds are dropped at the end of the answer.
  void on_closed(std::function<void()> callback);

  /// Returns whether the client is connected and the answer is not complete.
  bool is_open() const { return peer_ != nullptr; }
  bool has_begun() const { return state_ != State::waiting; }

  /// Sets the answer's headers with the remaining limits of the key. Replaces the headers that were set before.
  void set_limit_headers(Pairs headers) { form_.limits = std::move(headers); }

  /// Sets the answer's header that names the ignored fields of the request.
  void set_ignored_fields(std::string names) { form_.ignored = std::move(names); }

  /// Returns the record that is reported when the answer has ended. The handler may complete it.
  serving::RequestRecord& record() { return record_; }
  bool is_reported() const { return is_reported_; }

  const std::string& request_id() const { return form_.request_id; }
  ErrorStyle style() const { return form_.style; }

  /// Returns the server's io_context, which lives as long as the server.
  boost::asio::io_context& io() { return io_; }

 private:
  friend class Connection;
  friend class LocalCall;
  enum class State { waiting, streaming, ended };

  void close_soon();
  void on_handler_failed();             ///< called by the peer when the handler has thrown
  void close();                         ///< called by the peer when the client has gone
  void take_unframed(std::string& to);  ///< called by the peer to get the bytes to send now
  void end();
  void report();

  boost::asio::io_context& io_;
  AnswerPeer* peer_;  ///< null after the exchange was closed or the answer is complete
  serving::Telemetry& telemetry_;
  AnswerForm form_;
  serving::RequestRecord record_;
  bool is_reported_ = false;
  State state_ = State::waiting;
  bool was_closed_ = false;
  std::string unframed_;  ///< bytes that were written and are not yet in a chunk
  std::function<void()> on_closed_;
  std::function<void()> on_drained_;
};

}  // namespace pagoda::http
