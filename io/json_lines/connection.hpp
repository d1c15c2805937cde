#pragma once

/// One client's connection. Private to the server.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>

#include "io/json_lines/call_events.hpp"
#include "io/json_lines/output_queue.hpp"
#include "io/json_lines/protocol.hpp"
#include "io/json_lines/server_config.hpp"
#include "io/serving/resumable_streams.hpp"
#include "io/serving/served_models.hpp"
#include "io/serving/session.hpp"
#include "io/serving/telemetry.hpp"

namespace pagoda::json_lines {

/// State of the server that its connections share; outlives every connection.
struct ConnectionContext {
  boost::asio::io_context& io;
  caf::actor_system& system;
  const serving::ServedModels models;
  const ServerConfig& config;
  boost::asio::thread_pool& worker;  ///< one thread, for lines that would block the I/O thread too long
  std::vector<char> read_chunk;      ///< buffer of one read, shared by all connections: emptied before the next read
  serving::Telemetry& telemetry;
  serving::ResumableStreams& streams;
  std::unordered_map<const void*, std::function<void()>> resumable = {};  ///< by request: called when the engine ends
  std::vector<LineModel> line_models = {};                                ///< models for authorized clients
  std::vector<LineModel> closed_models = {};  ///< models for other clients: without chat templates
};

/// States: open; then either input_ended (the client shut its sending side: its requests are finished first) or closing
/// (the server ends the connection: it reads no more input and sends the queued output); then closed. Everything runs
/// on the I/O thread.
///
/// When a client has ended its input, it may be gone or may still read. The server learns this only by sending bytes:
/// the machine of a client that is gone answers with a reset. So while there is no other output after input_ended, the
/// connection sends probes: single spaces, which JSON allows before the object of the next line.
///
/// Lines are handled in order. While the worker thread parses and renders a long line, the lines after it wait.
///
/// Time limits: the time until a client gives its key, the time without a request, and the time in which a client reads
/// nothing of its waiting output. Answers have no time limit here.
///
/// Size limits: the length of a line, live requests, open questions and unsent bytes. Above the last two limits the
/// connection stops reading, so that TCP slows the client down. A client that does not read its output is cut off at
/// max_buffered_bytes.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ConnectionContext& context,
             std::function<void(Connection&)> on_closed);

  void start();

  /// Sends all output that the engine has for this client up to now, then ends the connection.
  void flush_and_close();

  /// Call when the engine has ended. The outputs that the engine has sent before are delivered. Each live request that
  /// they do not end gets an error.
  void on_engine_gone();

  /// Closes the connection at once and aborts its live requests.
  void close_now();

 private:
  static constexpr auto kNever = std::chrono::steady_clock::time_point::max();

  struct Live {
    std::string id;
    bool timing = false;
    bool stream = true;  ///< whether the client wants deltas
    actors::RequestRouterActor router;
    serving::RequestRecord record;
    std::shared_ptr<const chat::AnswerReading> reading = nullptr;  ///< null: answers are texts
    std::optional<CallEvents> calls = std::nullopt;                ///< for streaming requests with a `reading`
    serving::TenantTicket ticket = {};
    std::int64_t prompt_tokens = 0;     ///< prompt tokens that the tenant was charged for
    std::int64_t generated_tokens = 0;  ///< output tokens that the tenant was charged for
  };
  /// A stream that this connection reads.
  struct Attached final : serving::StreamReader {
    Attached(Connection& owner, std::shared_ptr<serving::ResumableStream> followed, std::uint64_t from)
        : connection(owner), stream(std::move(followed)), next(from) {}
    ~Attached() { stream->detach(*this); }
    void on_events() override { connection.pump(); }
    void on_replaced() override { connection.on_replaced(stream->name().id); }
    std::uint64_t next_event() const override { return next; }

    Connection& connection;
    std::shared_ptr<serving::ResumableStream> stream;
    std::uint64_t next;  ///< number of the event to send next
  };
  /// Action of the client that the connection waits for, with a time limit.
  enum class Awaited : std::uint8_t {
    nothing,  ///< the engine must answer
    key,
    line,     ///< the client has no live requests
    reading,  ///< output waits to be written to the socket
    close,
  };
  using ParsedLine = tl::expected<ClientMessage, RefusedLine>;

  // Input.
  bool wants_input() const;
  void read_more();
  void on_readable();
  bool take_input(std::string_view bytes);
  void on_input_end();
  void watch_for_reset();
  void probe();
  void take_lines();
  std::size_t max_line_bytes();
  bool has_room();
  WireError no_room();
  void handle_line(std::string_view line);
  void prepare(std::string line);
  void on_prepared(std::optional<ParsedLine> parsed);
  void handle(ParsedLine message);
  void refuse_line(const WireError& refusal);
  /// Refuses all further input: cancels the live requests, and closes the connection once they have ended.
  void refuse_input(WireCode code, std::string message);

  // Messages of the client.
  /// Looks the client's key up again if the keys were replaced. Returns whether the client may send requests: its key
  /// is known, or no key is needed.
  bool is_authorized();
  void run(GenerateOp& op);
  void run(CancelOp& op);
  void run(PingOp& op);
  void run(AuthOp& op);
  void run(TokenizeOp& op);
  void run(DetokenizeOp& op);
  void run(ApplyTemplateOp& op);
  void run(ModelOp& op);
  void run(StatsOp& op);
  void run(ChangeAdapterOp& op);
  void run(AdaptersOp& op);
  void ask(std::size_t index, ClientId id, serving::Query question);
  LineModels line_models();
  const serving::ServedModel& model(std::size_t index) const { return context_.models.all()[index]; }
  void refuse(const ClientId& id, WireCode code, std::string message, std::string param = {}, int retry_after_ms = -1);
  serving::RequestRecord record_of(const GenerateOp& op) const;
  /// Admits a request for its tenant. Returns the error if it is refused.
  std::optional<WireError> admit(GenerateRequest& request, serving::RequestRecord& record,
                                 serving::TenantTicket& ticket, std::int64_t& prompt_tokens);

  // Streams of resumable requests (connection_streams.cpp).
  void run_resumable(GenerateOp& op);
  void run(AttachOp& op);
  void attach(std::shared_ptr<serving::ResumableStream> stream, std::uint64_t from);
  void on_replaced(const std::string& id);
  /// Refuses an attach whose `from` is after the end of the stream.
  void refuse_from(const std::string& id, const serving::EventHistory& history);
  void read_streams();

  // Events of the session.
  void on_events(std::vector<serving::Event>& events);
  void on_event(OutputBatch& batch);
  void on_event(serving::Accepted& accepted);
  void on_event(serving::Refused& refused);
  void on_event(serving::QueryAnswered& answered);
  void on_event(serving::FlushMark&);
  void on_event(serving::SessionFailed&);
  void forget(std::uint64_t tag);
  void forget_all();
  void report(Live& live);

  // Output and the end.
  void pump();
  void count_buffered();
  void write();
  void on_written(const boost::system::error_code& error);
  void begin_close();
  void close_with(WireCode code, std::string message);
  void cut_off_slow_reader();
  void finish_when_done();
  void linger();
  bool has_work() const { return preparing_ || !live_.empty() || !attached_.empty() || !asked_.empty(); }

  // Time.
  void watch_client();
  void await(Awaited what);
  /// Like await(), but restarts the time limit if `what` is awaited already.
  void await_anew(Awaited what);
  std::int64_t timeout_ms(Awaited what) const;
  void arm();
  void on_deadline();

  boost::asio::ip::tcp::socket socket_;
  ConnectionContext& context_;
  std::function<void(Connection&)> on_closed_;
  serving::Session session_;
  Awaited awaited_ = Awaited::nothing;
  std::chrono::steady_clock::time_point due_ = kNever;
  boost::asio::steady_timer deadline_;  ///< expires at or before due_, so that a later due_ needs no new timer
  bool deadline_is_armed_ = false;
  boost::asio::steady_timer next_probe_;

  std::string input_;        ///< bytes of lines that are not handled yet
  std::size_t scanned_ = 0;  ///< number of first bytes of input_ that have no line end
  bool reading_ = false;     ///< whether a wait for input is under way
  bool preparing_ = false;   ///< whether the worker thread has a line
  bool input_ended_ = false;
  std::optional<serving::KeyDigest> key_;  ///< digest of the client's key
  serving::SharedPrincipal principal_;     ///< principal of the key

  std::unordered_map<std::uint64_t, Live> live_;               ///< by tag
  std::unordered_map<std::string, std::uint64_t> tags_;        ///< client id -> tag
  std::map<std::string, std::unique_ptr<Attached>> attached_;  ///< by request id
  std::uint64_t last_tag_ = 0;
  std::unordered_map<std::uint64_t, ClientId> asked_;  ///< open questions to the engine, by tag

  std::string client_;  ///< ADDRESS:PORT
  OutputQueue queue_;
  serving::MeteredConnection metered_;
  std::string writing_text_;
  bool writing_ = false;
  bool engine_gone_ = false;  ///< whether the engine has ended: live requests end with the next FlushMark
  bool closes_when_flushed_ = false;
  bool closing_ = false;
  bool lingering_ = false;
  bool closed_ = false;
};

}  // namespace pagoda::json_lines
