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

/// What a connection needs from its server; outlives every connection.
struct ConnectionContext {
  boost::asio::io_context& io;
  caf::actor_system& system;
  const serving::ServedModels models;
  const ServerConfig& config;
  boost::asio::thread_pool& worker;  ///< one thread, for lines that would hold up the I/O thread
  std::vector<char> read_chunk;      ///< shared by all connections: a read fills it and is used up before the next
  serving::Telemetry& telemetry;
  serving::ResumableStreams& streams;
  std::unordered_map<const void*, std::function<void()>> resumable = {};  ///< requests: told when the engine ends
  std::vector<LineModel> line_models = {};    ///< the models, for clients that may ask for them
  std::vector<LineModel> closed_models = {};  ///< the same for others: their conversations are not rendered
};

/// Life: open; then either input_ended (the client shut its sending side: what it asked for is finished first) or
/// closing (the server ends it: no more input, what is queued is sent); then closed. Everything runs on the I/O thread.
///
/// A client that has gone looks like one that has only ended its input until something is sent to it: its machine then
/// answers with a reset. So while nothing else is sent after input_ended, probes are: single spaces, which JSON allows
/// before the next line's object.
///
/// Lines are taken in their order. While a long one is read and rendered, on the worker thread, those behind it wait.
///
/// Time: a client has so long to give its key, may ask for nothing for so long, and may leave what waits for it unread
/// for so long. An answer takes as long as the engine needs.
///
/// Bounds: a line's length, live requests, answers not given yet and bytes not sent yet. Over the last two it stops
/// reading, so that TCP holds the client back; a client that does not read what it asked for is cut off at
/// max_buffered_bytes.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, ConnectionContext& context,
             std::function<void(Connection&)> on_closed);

  void start();

  /// Sends everything that the engine has for this client up to now, then ends the connection.
  void flush_and_close();

  /// Live requests will get no outputs but those that are on their way: each that does not end with them gets an error.
  void on_engine_gone();

  /// Ends it at once; its live requests are aborted.
  void close_now();

 private:
  static constexpr auto kNever = std::chrono::steady_clock::time_point::max();

  struct Live {
    std::string id;
    bool timing = false;
    bool stream = true;  ///< its client wants deltas
    actors::RequestRouterActor router;
    serving::RequestRecord record;
    std::shared_ptr<const chat::AnswerReading> reading = nullptr;  ///< null: answers are texts
    std::optional<CallEvents> calls = std::nullopt;                ///< of one that streams
    serving::TenantTicket ticket = {};
    std::int64_t prompt_tokens = 0;     ///< that its tenant was charged for
    std::int64_t generated_tokens = 0;  ///< likewise
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
    std::uint64_t next;  ///< the event that is to be sent next
  };
  /// What the client has to do next, within a time.
  enum class Awaited : std::uint8_t {
    nothing,  ///< it is the engine's turn
    key,
    line,     ///< nothing of it is live
    reading,  ///< output waits in front of its socket
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
  void refuse_for_room();
  /// What it sends is of no use any more: its requests are cancelled, and it is closed behind their ends.
  void refuse_input(WireCode code, std::string message);

  // Messages of the client.
  /// Whose key the client has given, as keys are known now. False: it has to give one.
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
  void ask(std::size_t index, ClientId id, serving::Question question);
  LineModels line_models();
  const serving::ServedModel& model(std::size_t index) const { return context_.models.all()[index]; }
  void refuse(const ClientId& id, WireCode code, std::string message, std::string param = {}, int retry_after_ms = -1);
  serving::RequestRecord record_of(const GenerateOp& op) const;
  /// Why the request's tenant may not have it.
  std::optional<WireError> admit(GenerateRequest& request, serving::RequestRecord& record,
                                 serving::TenantTicket& ticket, std::int64_t& prompt_tokens);

  // Streams of resumable requests (connection_streams.cpp).
  void run_resumable(GenerateOp& op);
  void run(AttachOp& op);
  void attach(std::shared_ptr<serving::ResumableStream> stream, std::uint64_t from);
  void on_replaced(const std::string& id);
  /// It is behind the end.
  void refuse_from(const std::string& id, const serving::EventHistory& history);
  void read_streams();

  // Events of the session.
  void on_events(std::vector<serving::Event>& events);
  void on_event(OutputBatch& batch);
  void on_event(serving::Accepted& accepted);
  void on_event(serving::Refused& refused);
  void on_event(serving::Answered& answered);
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
  /// Its time begins anew.
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
  boost::asio::steady_timer deadline_;  ///< goes off at due_ or before, so that what moves it later costs no timer
  bool deadline_is_armed_ = false;
  boost::asio::steady_timer next_probe_;

  std::string input_;        ///< bytes of lines not handled yet
  std::size_t scanned_ = 0;  ///< bytes of input_ that hold no line end
  bool reading_ = false;     ///< a wait for input is under way
  bool preparing_ = false;   ///< the worker thread has a line
  bool input_ended_ = false;
  std::optional<serving::KeyDigest> key_;  ///< that the client has given
  serving::SharedPrincipal principal_;     ///< whose it is

  std::unordered_map<std::uint64_t, Live> live_;               ///< by tag
  std::unordered_map<std::string, std::uint64_t> tags_;        ///< client id -> tag
  std::map<std::string, std::unique_ptr<Attached>> attached_;  ///< by the ids of their requests
  std::uint64_t last_tag_ = 0;
  std::unordered_map<std::uint64_t, ClientId> asked_;  ///< questions that the engine has not answered yet, by tag

  std::string client_;  ///< ADDRESS:PORT
  OutputQueue queue_;
  serving::MeteredConnection metered_;
  std::string writing_text_;
  bool writing_ = false;
  bool engine_gone_ = false;  ///< live requests end with the next FlushMark
  bool closes_when_flushed_ = false;
  bool closing_ = false;
  bool lingering_ = false;
  bool closed_ = false;
};

}  // namespace pagoda::json_lines
