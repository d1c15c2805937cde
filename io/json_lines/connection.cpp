#include "io/json_lines/connection.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <poll.h>
#include <spdlog/spdlog.h>

#include "engine/routing/queue_full.hpp"
#include "io/json_lines/other_protocol.hpp"
#include "io/memory_reserve.hpp"
#include "io/serving/client_name.hpp"
#include "io/serving/close_on_exception.hpp"
#include "io/serving/post_result.hpp"
#include "io/serving/small_text.hpp"

namespace pagoda::json_lines {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;
using serving::close_on_exception;

constexpr std::size_t kMaxQuestions = 256;
constexpr std::size_t kMaxLineBytesWithoutKey = 4 << 10;
constexpr std::size_t kKeptBufferBytes = 1 << 20;    // a larger buffer is freed when it is empty
constexpr std::size_t kMaxBytesPerWrite = 64 << 10;  // each completed write shows that the client reads
constexpr auto kProbeInterval = std::chrono::seconds(1);

void append_answer(std::string& line, const ClientId& id, const TokenIds& token_ids) {
  append_tokens(line, id, token_ids);
}
void append_answer(std::string& line, const ClientId& id, const std::string& text) {
  append_text(line, id, text);
}
void append_answer(std::string& line, const ClientId& id, const ModelInfo& model) {
  append_model(line, id, model);
}
void append_answer(std::string& line, const ClientId& id, const EngineStats& stats) {
  append_stats(line, id, stats);
}
void append_answer(std::string& line, const ClientId& id, const serving::AdapterChanged&) {
  append_ok(line, id);
}
template <class Other>
void append_answer(std::string&, const ClientId&, const Other&) {
  PAGODA_ASSERT(false, "no op of JSON lines has this answer");
}
void append_answer(std::string&, const ClientId&, const serving::SharedView&) {
  PAGODA_ASSERT(false, "no op of JSON lines queries the engine's status");
}
void append_answer(std::string& line, const ClientId& id, const Error& error) {
  append_error(line, id, adapter_error(error));
}

ClientId id_of(const tl::expected<ClientMessage, RefusedLine>& message) {
  return message ? std::visit([](const auto& op) { return ClientId(op.id); }, *message) : message.error().id;
}

void give_back_if_large(std::string& buffer) {
  if (buffer.empty() && buffer.capacity() > kKeptBufferBytes) std::string().swap(buffer);
}

}  // namespace

Connection::Connection(tcp::socket socket, ConnectionContext& context, std::function<void(Connection&)> on_closed)
    : socket_(std::move(socket)),
      context_(context),
      on_closed_(std::move(on_closed)),
      session_(context.io, context.system, [this](std::vector<serving::Event>& events) { on_events(events); }),
      deadline_(context.io),
      next_probe_(context.io),
      queue_(static_cast<std::size_t>(context.config.coalesce_bytes)),
      metered_(context.telemetry.json_lines) {
  client_ = serving::client_name(socket_);
}

void Connection::start() {
  await(context_.config.keys->requires_keys() ? Awaited::key : Awaited::line);
  read_more();
}

// -- input

bool Connection::wants_input() const {
  return !closed_ && !closing_ && !input_ended_ && !preparing_ && asked_.size() < kMaxQuestions &&
         queue_.bytes() <= static_cast<std::size_t>(context_.config.coalesce_bytes);
}

void Connection::read_more() {
  if (reading_ || !wants_input()) return;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](const error_code& error) {
    self->reading_ = false;
    if (self->closed_ || self->closing_) return;
    if (error) return self->close_now();
    close_on_exception(*self, [&] { self->on_readable(); });
  });
  reading_ = true;
}

void Connection::on_readable() {
  error_code error;
  const auto size = socket_.read_some(boost::asio::buffer(context_.read_chunk), error);
  if (error == boost::asio::error::would_block) return read_more();
  if (error == boost::asio::error::eof) return on_input_end();
  if (error) return close_now();
  if (!take_input({context_.read_chunk.data(), size})) return;
  take_lines();
  pump();
}

/// Refuses a long line if there is no memory for it without the reserve, which is for running requests. Returns whether
/// the bytes were added.
bool Connection::take_input(std::string_view bytes) {
  if (input_.size() + bytes.size() <= serving::kSmallTextBytes) {
    input_ += bytes;
    return true;
  }
  try {
    const io::WithoutReserve large;
    input_ += bytes;
    return true;
  } catch (const std::bad_alloc&) {
    std::string().swap(input_);
    refuse_line(wire_error(io::no_memory()));
    pump();
    return false;
  }
}

void Connection::on_input_end() {
  input_ended_ = true;
  // The last line may have no line end.
  if (!input_.empty()) handle_line(input_);
  input_.clear();
  pump();
  if (closed_) return;
  watch_for_reset();
  probe();
}

void Connection::watch_for_reset() {
  socket_.async_wait(tcp::socket::wait_error, [self = shared_from_this()](const error_code& error) {
    if (error || self->closed_) return;
    pollfd state{self->socket_.native_handle(), 0, 0};
    const bool is_reset = ::poll(&state, 1, 0) > 0 && (state.revents & (POLLERR | POLLHUP)) != 0;
    if (is_reset) self->close_now();
  });
}

/// Sends a probe if there is no other output (see the class), and again after kProbeInterval.
void Connection::probe() {
  if (!writing_ && queue_.empty()) {
    writing_text_ = " ";
    write();
  }
  next_probe_.expires_after(kProbeInterval);
  next_probe_.async_wait([self = shared_from_this()](const error_code& error) {
    if (!error && !self->closed_) close_on_exception(*self, [&] { self->probe(); });
  });
}

std::size_t Connection::max_line_bytes() {
  const auto configured = static_cast<std::size_t>(context_.config.max_line_bytes);
  return key_ || is_authorized() ? configured : std::min(configured, kMaxLineBytesWithoutKey);
}

/// Returns whether the server may buffer more bytes; counts this connection's present bytes first.
bool Connection::has_room() {
  count_buffered();
  return context_.telemetry.has_room_for(0);
}

WireError Connection::no_room() {
  context_.telemetry.json_lines.refused_for_room.fetch_add(1, std::memory_order_relaxed);
  return wire_error(serving::no_room());
}

void Connection::take_lines() {
  std::size_t start = 0;
  while (!closing_ && !preparing_) {
    const auto end = input_.find('\n', scanned_);
    const auto length = (end == std::string::npos ? input_.size() : end) - start;
    if (const auto most = max_line_bytes(); length > most) {
      refuse_input(WireCode::line_too_long,
                   "a line is longer than " + std::to_string(most) + " bytes" +
                       (key_ || is_authorized() ? "" : ", which is the limit before authentication"));
      break;
    }
    if (length > serving::kSmallTextBytes && !has_room()) {
      refuse_line(no_room());
      break;
    }
    if (end == std::string::npos) {
      scanned_ = input_.size();
      break;
    }
    handle_line(std::string_view(input_).substr(start, length));
    start = scanned_ = end + 1;
  }
  if (closing_) start = scanned_ = input_.size();  // the rest is not read
  input_.erase(0, start);
  scanned_ -= start;
  give_back_if_large(input_);
}

void Connection::handle_line(std::string_view line) {
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.empty()) return;
  if (const auto other = other_protocol(line); !other.empty()) {
    return refuse_input(WireCode::invalid_json,
                        "this port speaks JSON lines, not " + std::string(other) + ": the connection is closed");
  }
  if (awaited_ == Awaited::line) await(Awaited::nothing);  // so that the idle time begins again after this line
  if (line.size() > serving::kSmallTextBytes) return prepare(std::string(line));
  handle(parse_line(line, line_models()));
}

void Connection::prepare(std::string line) {
  struct Job {
    std::shared_ptr<Connection> connection;  // destroyed on the I/O thread
    std::string line;
    LineModels models;
    serving::MeteredBytes metered;
    std::optional<ParsedLine> parsed;
  };
  serving::MeteredBytes metered(context_.telemetry.json_lines, line.size());
  auto job =
      std::make_shared<Job>(Job{shared_from_this(), std::move(line), line_models(), std::move(metered), std::nullopt});
  boost::asio::post(context_.worker, [&io = context_.io, job = std::move(job)] {
    try {
      const io::WithoutReserve large;
      job->parsed.emplace(parse_line(job->line, job->models));
    } catch (const std::exception& error) {
      spdlog::error("a line of {} bytes failed: {}", job->line.size(), error.what());
    }
    serving::post_result(io, job, [](Job& done) {
      close_on_exception(*done.connection, [&] { done.connection->on_prepared(std::move(done.parsed)); });
    });
  });
  preparing_ = true;
}

void Connection::on_prepared(std::optional<ParsedLine> parsed) {
  preparing_ = false;
  if (closed_) return;
  if (!parsed) {
    refuse({}, WireCode::internal, "the server failed on this line");
  } else if (closing_) {
    refuse(id_of(*parsed), WireCode::shutting_down, "the connection is being closed");
  } else {
    handle(std::move(*parsed));
  }
  take_lines();
  pump();
}

void Connection::handle(ParsedLine message) {
  if (!is_authorized() && !(message && std::holds_alternative<AuthOp>(*message))) {
    return refuse(id_of(message), WireCode::unauthorized, "authenticate first: {\"op\": \"auth\", \"key\": ...}");
  }
  if (!message) return append_error(queue_.line(), message.error().id, message.error().error);
  std::visit([this](auto& op) { run(op); }, *message);
}

/// Refuses a line whose id is not known yet, with an error without an id, and reads no more input. Running requests
/// continue.
void Connection::refuse_line(const WireError& refusal) {
  refuse({}, refusal.code, refusal.message, {}, refusal.retry_after_ms);
  closing_ = true;  // without a deadline for the running requests
}

void Connection::refuse_input(WireCode code, std::string message) {
  refuse({}, code, std::move(message));
  for (const auto& [tag, live] : live_) session_.cancel(live.router, tag);
  begin_close();
}

// -- events of the session

void Connection::on_events(std::vector<serving::Event>& events) {
  const auto self = shared_from_this();
  close_on_exception(*this, [&] {
    for (auto& event : events) {
      if (closed_) return;
      const auto limit = static_cast<std::size_t>(context_.config.max_buffered_bytes);
      if (queue_.bytes() > limit) pump();
      if (queue_.bytes() > limit) return cut_off_slow_reader();
      std::visit([this](auto& e) { on_event(e); }, event);
    }
    pump();
  });
}

void Connection::on_event(OutputBatch& batch) {
  for (auto& output : batch.outputs) {
    const auto it = live_.find(output.tag);
    if (it == live_.end()) continue;
    const auto& id = it->second.id;
    auto& generation = *it->second.record.generation;
    auto& live = it->second;
    for (const auto& delta : output.deltas) {
      live.generated_tokens += std::ssize(delta.token_ids);
      live.ticket.add_tokens(std::ssize(delta.token_ids));
      if (!live.stream) continue;
      queue_.add_delta(output.tag, id, delta);
      if (live.calls) live.calls->add(queue_.line(), id, delta);
      generation.completion_tokens += std::ssize(delta.token_ids);
    }
    if (output.done) {
      const auto& usage = output.done->usage;
      live.ticket.add_tokens(usage.prompt_tokens - live.prompt_tokens + usage.completion_tokens -
                             live.generated_tokens);
      if (live.calls) live.calls->finish(queue_.line(), id);
      append_done(queue_.line(), id, *output.done, live.timing, live.reading.get());
      generation.prompt_tokens = output.done->usage.prompt_tokens;
      generation.done(*output.done, generation.completion_tokens);
    } else if (output.error) {
      append_error(queue_.line(), id, wire_error(*output.error));
      it->second.record.error = to_string(wire_error(*output.error).code);
    } else {
      continue;
    }
    forget(output.tag);
  }
}

void Connection::on_event(serving::Accepted& accepted) {
  if (const auto it = live_.find(accepted.tag); it != live_.end()) {
    auto& live = it->second;
    live.record.generation->prompt_tokens = accepted.prompt_tokens;
    if (accepted.prompt_tokens == 0) return;  // the request has ended already
    live.ticket.add_tokens(accepted.prompt_tokens - std::exchange(live.prompt_tokens, accepted.prompt_tokens));
  }
}

void Connection::on_event(serving::Refused& refused) {
  const auto it = live_.find(refused.tag);
  if (it == live_.end()) return;
  it->second.ticket.refused();
  append_error(queue_.line(), it->second.id, request_error(refused.error, it->second.reading.get()));
  it->second.record.error = to_string(wire_error(refused.error).code);
  forget(refused.tag);
}

void Connection::on_event(serving::QueryAnswered& answered) {
  const auto it = asked_.find(answered.tag);
  if (it == asked_.end()) return;  // the session has failed meanwhile
  const auto id = std::move(it->second);
  asked_.erase(it);
  std::visit([&](const auto& answer) { append_answer(queue_.line(), id, answer); }, answered.answer);
}

void Connection::on_event(serving::FlushMark&) {
  if (std::exchange(engine_gone_, false)) {
    for (auto& [tag, live] : live_) {
      refuse(live.id, WireCode::internal, "the engine has stopped");
      live.record.error = to_string(WireCode::internal);
    }
    forget_all();
  }
  if (closes_when_flushed_) begin_close();
}

void Connection::on_event(serving::SessionFailed&) {
  refuse({}, WireCode::internal, "the server failed on this connection's requests");
  forget_all();
  asked_.clear();
  begin_close();
}

void Connection::on_engine_gone() {
  engine_gone_ = true;
  session_.flush();
}

void Connection::forget(std::uint64_t tag) {
  const auto it = live_.find(tag);
  report(it->second);
  tags_.erase(it->second.id);
  live_.erase(it);
}

/// Forgets all live requests. Those that got no error are recorded as cut.
void Connection::forget_all() {
  for (auto& [tag, live] : live_) {
    live.record.is_cut = live.record.error.empty();
    report(live);
  }
  live_.clear();
  tags_.clear();
}

void Connection::report(Live& live) {
  auto& record = live.record;
  if (record.generation->finish_reason.empty()) {
    record.generation->finish_reason = record.error.empty() ? "abort" : "error";
  }
  context_.telemetry.ended(record);
}

// -- output and the end

void Connection::pump() {
  if (closed_) return;
  read_streams();
  count_buffered();
  if (!writing_ && !queue_.empty()) {
    queue_.take(writing_text_);
    write();
  }
  read_more();
  watch_client();
  finish_when_done();
}

void Connection::count_buffered() {
  metered_.buffers(input_.size() + queue_.bytes() + writing_text_.size());
}

void Connection::write() {
  const auto go_on = [this](const error_code& error, std::size_t sent) -> std::size_t {
    if (sent > 0 && awaited_ == Awaited::reading) await_anew(Awaited::reading);
    return error ? 0 : kMaxBytesPerWrite;
  };
  boost::asio::async_write(socket_, boost::asio::buffer(writing_text_), go_on,
                           [self = shared_from_this()](const error_code& error, std::size_t) {
                             close_on_exception(*self, [&] { self->on_written(error); });
                           });
  writing_ = true;
}

void Connection::on_written(const error_code& error) {
  writing_ = false;
  if (closed_) return;
  if (error) return close_now();
  writing_text_.clear();
  give_back_if_large(writing_text_);
  pump();
}

void Connection::flush_and_close() {
  closes_when_flushed_ = true;
  session_.flush();
}

void Connection::begin_close() {
  if (closing_ || closed_) return;
  closing_ = true;
  await(Awaited::close);
}

void Connection::close_with(WireCode code, std::string message) {
  refuse({}, code, std::move(message));
  begin_close();
  pump();
}

void Connection::cut_off_slow_reader() {
  spdlog::warn("a client reads too slowly: cancelling its {} live requests", live_.size());
  const auto waiting = queue_.bytes();
  queue_.clear();
  refuse({}, WireCode::queue_full,
         "output is read too slowly: " + std::to_string(waiting) +
             " bytes waited; this connection's requests are cancelled and it is closed",
         {}, routing::kRetryAfterMs);
  forget_all();
  attached_.clear();
  asked_.clear();
  session_.close();
  begin_close();
  pump();
}

void Connection::finish_when_done() {
  if (closed_ || lingering_ || writing_ || !queue_.empty()) return;
  if (has_work()) return;
  if (input_ended_) {
    close_now();
  } else if (closing_) {
    linger();
  }
}

/// Shuts the sending side, then discards input until the client closes or the deadline passes. If the connection were
/// closed with unread input, TCP would reset it, and the client might lose its last lines.
void Connection::linger() {
  if (!lingering_) {
    lingering_ = true;
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
  }
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
    if (self->closed_) return;
    if (!error) self->socket_.read_some(boost::asio::buffer(self->context_.read_chunk), error);
    if (error && error != boost::asio::error::would_block) return self->close_now();
    close_on_exception(*self, [&] { self->linger(); });
  });
}

void Connection::close_now() {
  if (closed_) return;
  closed_ = true;
  const auto self = shared_from_this();
  session_.close();
  forget_all();
  attached_.clear();
  metered_.buffers(0);
  error_code ignored;
  socket_.close(ignored);
  deadline_.cancel();
  next_probe_.cancel();
  on_closed_(*this);
}

}  // namespace pagoda::json_lines
