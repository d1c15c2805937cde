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

/// What a connection needs from its server; outlives every connection.
struct ConnectionContext {
  boost::asio::io_context& io;
  const ServerConfig& config;
  const Gate& gate;
  serving::Telemetry& telemetry;
  const TlsContext* tls = nullptr;  ///< null: plain TCP
  std::vector<char> read_chunk;     ///< shared by all connections: a read fills it and is used up before the next
  bool draining = false;            ///< every answer is its connection's last
};

/// One request at a time: its head, its body, its answer, and then the next or the end. The socket is waited on for
/// input in every phase, so that the end of a client is seen at once. What comes while a request is being answered, a
/// pipelined request, is thrown away and the connection closed after the answer; where it is much, at a low rate, for
/// the client's end lies behind it.
///
/// An idle connection holds no buffers. Everything runs on the I/O thread.
class Connection final : public AnswerPeer, public std::enable_shared_from_this<Connection> {
 public:
  /// One that `is_too_many` has its first request refused, unless that is of a route with room in spare places or
  /// brings an admin key, and is closed behind it.
  Connection(boost::asio::ip::tcp::socket socket, ConnectionContext& context, bool is_too_many,
             std::function<void(Connection&)> on_closed);

  void start();

  /// The server ends: closes it when it is idle, otherwise after the answer that is under way.
  void finish();

  /// Ends it at once; the exchange is told.
  void close_now();

  // For the exchange that is being answered.
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
    handshake,  ///< of TLS
    idle,       ///< nothing of a request has come
    head,
    body,
    answering,  ///< up to the last byte of the answer
    refusing,   ///< the same, but what still comes of the request is thrown away and the connection is closed then
    lingering,  ///< everything is sent: waits for the client to close
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
  /// So much came while a request is answered that the rest is left in the socket.
  bool is_flooded() const;
  void read_flood_later();
  void linger();
  void arm(std::int64_t timeout_ms);
  void on_deadline();

  ByteStream stream_;
  ConnectionContext& context_;
  std::function<void(Connection&)> on_closed_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer next_read_;  ///< of a flood

  Phase phase_ = Phase::idle;
  bool is_too_many_;
  bool waiting_for_input_ = false;
  bool waiting_for_output_ = false;
  bool send_is_posted_ = false;
  bool close_is_posted_ = false;
  bool input_ended_ = false;
  bool finishing_ = false;
  bool pipelined_ = false;     ///< something came while a request was being answered
  bool answer_ended_ = false;  ///< all of the answer is in the output
  bool keep_alive_ = false;    ///< after the answer
  std::size_t thrown_away_bytes_ = 0;

  std::string client_;  ///< ADDRESS:PORT
  serving::MeteredConnection metered_;

  std::string input_;  ///< not read yet
  std::unique_ptr<RequestReader> reader_;
  std::unique_ptr<Admission> admission_;
  serving::RequestRecord record_;  ///< of the request whose head has come, until its exchange takes it
  Exchange* exchange_ = nullptr;   ///< the one that is being answered; it says when it goes

  std::string output_;
  std::size_t sent_ = 0;  ///< bytes of output_ that the socket has taken
};

}  // namespace pagoda::http
