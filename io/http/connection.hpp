#pragma once

/// One client's connection. Private to the server.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <tl/expected.hpp>

#include "io/http/answer_peer.hpp"
#include "io/http/byte_stream.hpp"
#include "io/http/gate.hpp"
#include "io/http/request_reader.hpp"
#include "io/http/server_config.hpp"
#include "io/serving/telemetry.hpp"

namespace pagoda::http {

class Exchange;

/// State of the server that its connections use. Outlives every connection.
struct ConnectionContext {
  boost::asio::io_context& io;
  const ServerConfig& config;
  const Gate& gate;
  serving::Telemetry& telemetry;
  const TlsContext* tls = nullptr;  ///< null: plain TCP
  std::vector<char> read_chunk;     ///< shared by all connections: the bytes of a read are used up before the next read
  bool draining = false;            ///< whether every answer is the last on its connection
};

/// Serves one request at a time: head, body, answer, and then the next request or the end. Waits for input in every
/// phase, so that it notices at once when the client closes. Bytes that come while a request is being answered (a
/// pipelined request) are discarded, and the connection is closed after the answer. If there are many such bytes, they
/// are read at a low rate. The connection must read them to notice that the client has closed.
///
/// An idle connection holds no buffers. Everything runs on the I/O thread.
class Connection final : public AnswerPeer, public std::enable_shared_from_this<Connection> {
 public:
  /// If `is_too_many`, the first request is refused unless its route has ConnectionQuota::spare or the request has an
  /// admin key, and the connection is closed after the answer.
  Connection(boost::asio::ip::tcp::socket socket, ConnectionContext& context, bool is_too_many,
             std::function<void(Connection&)> on_closed);

  void start();

  /// Called when the server ends: closes an idle connection at once, and any other after its current answer.
  void finish();

  /// Closes the connection at once and notifies the exchange.
  void close_now();

  // Called by the exchange that is being answered.
  boost::asio::io_context& io() override { return context_.io; }
  serving::Telemetry& telemetry() override { return context_.telemetry; }
  std::string& output() override { return output_; }
  std::size_t unsent_bytes() const override { return output_.size() - sent_; }
  bool may_keep_alive() const override { return !context_.draining && !finishing_ && !pipelined_; }
  void send_soon() override;
  void check_reader(std::size_t unsent_bytes) override;
  void on_answer_end(bool keep_alive) override;
  void abandon() override;
  void close_soon() override;

 private:
  enum class Phase : std::uint8_t {
    handshake,  ///< TLS handshake
    idle,       ///< no byte of a request has arrived
    head,
    body,
    answering,  ///< until the last byte of the answer is sent
    refusing,   ///< like `answering`, but the rest of the request is discarded, and then the connection is closed
    lingering,  ///< everything is sent; the connection waits until the client closes
    closed,
  };

  // Input.
  void wait_for_input();
  void on_input();
  void go_on_with_handshake();
  void take(std::string_view bytes);
  void on_input_end();

  // Requests.
  void advance();
  tl::expected<bool, ErrorAnswer> read_body();
  void begin_request();
  bool has_room_for(std::uint64_t more) const;
  ErrorAnswer no_room();
  void dispatch();
  void refuse(const AnswerForm& form, const ErrorAnswer& error, const Pairs& headers = {});
  void refuse_broken_head(const ErrorAnswer& error);
  void answer_at_once(bool keep_alive);
  serving::RequestRecord new_record(const std::string& request_id) const;
  void count_buffered();

  // Output and the end.
  void send();
  void wait_for_output();
  void on_all_sent();
  void await_next_request();
  /// Returns whether so many bytes have come during the answer that the rest is left in the socket for a while.
  bool is_flooded() const;
  void read_flood_later();
  void linger();
  void arm(std::int64_t timeout_ms);
  void disarm();
  void on_deadline();

  ByteStream stream_;
  ConnectionContext& context_;
  std::function<void(Connection&)> on_closed_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer next_read_;  ///< timer of the next read while is_flooded()

  Phase phase_ = Phase::idle;
  bool is_too_many_;
  bool waiting_for_input_ = false;
  bool waiting_for_output_ = false;
  bool send_is_posted_ = false;
  bool close_is_posted_ = false;
  bool input_ended_ = false;
  bool finishing_ = false;
  bool pipelined_ = false;     ///< whether bytes came while a request was being answered
  bool answer_ended_ = false;  ///< whether the whole answer is in the output
  bool keep_alive_ = false;    ///< whether the connection stays open after the answer
  std::size_t thrown_away_bytes_ = 0;

  std::string client_;  ///< ADDRESS:PORT
  serving::MeteredConnection metered_;

  std::string input_;  ///< bytes that are not parsed yet
  std::unique_ptr<RequestReader> reader_;
  std::unique_ptr<Admission> admission_;
  /// Record of the request whose head has arrived, until its exchange takes the record.
  serving::RequestRecord record_;
  Exchange* exchange_ = nullptr;  ///< the exchange that is being answered; it reports its own end

  std::string output_;
  std::size_t sent_ = 0;  ///< number of bytes of output_ that the socket has taken
};

}  // namespace pagoda::http
