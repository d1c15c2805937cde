#include "io/http/connection.hpp"

#include <chrono>
#include <exception>
#include <new>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "io/http/error_answer.hpp"
#include "io/http/exchange.hpp"
#include "io/memory_reserve.hpp"
#include "io/serving/client_name.hpp"
#include "io/serving/close_on_exception.hpp"
#include "io/serving/small_text.hpp"

namespace pagoda::http {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;
using serving::close_on_exception;

/// Maximum number of bytes that are discarded at full rate while a request is answered. Further bytes are discarded a
/// few reads at a time. Closing instead would reset the connection, and the client might lose its answer.
constexpr std::size_t kMaxPipelinedBytes = 64 << 10;
constexpr auto kFloodPause = std::chrono::milliseconds(100);
constexpr int kReadsOfFlood = 4;
constexpr std::size_t kMaxBytesPerTurn = 1 << 20;  // maximum to send before other connections have their turn
constexpr int kRetryAfterMs = 1000;

/// Returns the form of an answer to an incomplete or invalid head, in the style of the path if one was received.
AnswerForm form_of_broken_head(std::string_view input) {
  const auto method_end = input.find(' ');
  const auto path = method_end == std::string_view::npos ? std::string_view() : input.substr(method_end + 1);
  AnswerForm form;
  form.request_id = new_request_id();
  form.style = error_style(path.substr(0, path.find_first_of("? \r\n")));
  return form;
}

/// Returns the name of a verb that routes may have. All others become "other", because they are the client's text.
std::string_view name_of(Verb verb) {
  switch (verb) {
    case Verb::get:
      return "GET";
    case Verb::head:
      return "HEAD";
    case Verb::post:
      return "POST";
    case Verb::put:
      return "PUT";
    case Verb::patch:
      return "PATCH";
    case Verb::delete_:
      return "DELETE";
    case Verb::options:
      return "OPTIONS";
    default:
      return "other";
  }
}

bool has_spare_place(const Admission& admission) {
  return admission.request.is_admin() ||
         (admission.route != nullptr && admission.route->quota == ConnectionQuota::spare);
}

/// Removes empty lines from the front, because some clients send one after a body.
std::string_view without_empty_lines(std::string_view bytes) {
  const auto first = bytes.find_first_not_of("\r\n");
  return first == std::string_view::npos ? std::string_view() : bytes.substr(first);
}

}  // namespace

Connection::Connection(tcp::socket socket, ConnectionContext& context, bool is_too_many,
                       std::function<void(Connection&)> on_closed)
    : stream_(std::move(socket), context.tls),
      context_(context),
      on_closed_(std::move(on_closed)),
      deadline_(context.io),
      next_read_(context.io),
      is_too_many_(is_too_many),
      client_(serving::client_name(stream_.socket())),
      metered_(context.telemetry.http) {}

void Connection::start() {
  phase_ = stream_.is_tls() ? Phase::handshake : Phase::idle;
  arm(stream_.is_tls() || is_too_many_ ? context_.config.http_header_timeout_ms : context_.config.http_idle_timeout_ms);
  wait_for_input();
}

// -- input

void Connection::wait_for_input() {
  if (waiting_for_input_ || input_ended_ || phase_ == Phase::closed || is_flooded()) return;
  stream_.socket().async_wait(tcp::socket::wait_read, [self = shared_from_this()](const error_code& error) {
    self->waiting_for_input_ = false;
    if (self->phase_ == Phase::closed) return;
    if (error) return self->close_now();
    close_on_exception(*self, [&] { self->on_input(); });
  });
  waiting_for_input_ = true;
}

void Connection::on_input() {
  if (phase_ == Phase::closed) return;
  if (phase_ == Phase::handshake) return go_on_with_handshake();
  for (int reads = is_flooded() ? kReadsOfFlood : 1; reads > 0; --reads) {
    const auto [outcome, size] = stream_.read(context_.read_chunk);
    if (outcome == ByteStream::Outcome::ended) return on_input_end();
    if (outcome == ByteStream::Outcome::failed) return close_now();
    if (outcome == ByteStream::Outcome::would_block) break;
    take({context_.read_chunk.data(), size});
  }
  if (is_flooded()) return read_flood_later();
  if (!stream_.has_buffered_input()) return wait_for_input();
  boost::asio::post(context_.io, [self = shared_from_this()] { close_on_exception(*self, [&] { self->on_input(); }); });
}

void Connection::go_on_with_handshake() {
  switch (stream_.handshake()) {
    case ByteStream::Outcome::done:
      phase_ = Phase::idle;
      arm(is_too_many_ ? context_.config.http_header_timeout_ms : context_.config.http_idle_timeout_ms);
      return on_input();  // the first request may have arrived together with the end of the handshake
    case ByteStream::Outcome::would_block:
      if (stream_.wants_output()) wait_for_output();
      return wait_for_input();
    case ByteStream::Outcome::ended:
    case ByteStream::Outcome::failed:
      return close_now();
  }
}

void Connection::take(std::string_view bytes) {
  if (phase_ == Phase::idle || phase_ == Phase::head || phase_ == Phase::body) {
    input_ += bytes;
    advance();
    return count_buffered();
  }
  if (phase_ != Phase::answering) return;
  const auto more = without_empty_lines(bytes);
  if (!more.empty()) pipelined_ = true;
  thrown_away_bytes_ += bytes.size();
}

bool Connection::is_flooded() const {
  return phase_ == Phase::answering && thrown_away_bytes_ > kMaxPipelinedBytes;
}

void Connection::read_flood_later() {
  next_read_.expires_after(kFloodPause);
  next_read_.async_wait([self = shared_from_this()](const error_code& cancelled) {
    // After the answer the rest of a flood is read like other input.
    if (!cancelled && self->is_flooded()) close_on_exception(*self, [&] { self->on_input(); });
  });
}

void Connection::on_input_end() {
  input_ended_ = true;
  switch (phase_) {
    case Phase::head:
      return refuse_broken_head({400, "the connection ended before the request was complete"});
    case Phase::body:
      return refuse(admission_->form, {400, "the connection ended before the request was complete"});
    case Phase::answering:
      // A client that closes does not want the rest of its answer. A complete answer is still sent.
      if (exchange_ != nullptr) close_now();
      return;
    case Phase::refusing:
      return;
    case Phase::handshake:
    case Phase::idle:
    case Phase::lingering:
    case Phase::closed:
      return close_now();
  }
}

// -- requests

void Connection::advance() {
  const bool begins = phase_ == Phase::idle;
  if (begins) {
    input_.erase(0, input_.size() - without_empty_lines(input_).size());
    if (input_.empty()) return;
    phase_ = Phase::head;
    reader_ = std::make_unique<RequestReader>(static_cast<std::uint64_t>(context_.config.max_body_bytes));
  }
  if (phase_ == Phase::head) {
    const auto has_head = reader_->read_head(input_);
    if (!has_head) return refuse_broken_head(has_head.error());
    if (!*has_head) {
      if (begins) arm(context_.config.http_header_timeout_ms);  // only now, because most heads arrive in one piece
      return;
    }
    begin_request();
  }
  if (phase_ == Phase::body) {
    const auto has_body = read_body();
    if (!has_body) return refuse(admission_->form, has_body.error());
    if (*has_body) dispatch();
  }
}

/// Refuses a large body if memory is short. The memory reserve is only for running requests.
tl::expected<bool, ErrorAnswer> Connection::read_body() {
  if (reader_->body().size() + input_.size() <= serving::kSmallTextBytes) return reader_->read_body(input_);
  if (!has_room_for(input_.size())) return tl::unexpected(no_room());
  try {
    const io::WithoutReserve large;
    return reader_->read_body(input_);
  } catch (const std::bad_alloc&) {
    return tl::unexpected(error_answer(io::no_memory()));
  }
}

bool Connection::has_room_for(std::uint64_t more) const {
  return admission_->request.is_admin() || context_.telemetry.has_room_for(more);
}

ErrorAnswer Connection::no_room() {
  context_.telemetry.http.refused_for_room.fetch_add(1, std::memory_order_relaxed);
  return error_answer(serving::no_room());
}

/// Called when the head is complete. Makes all checks that do not need the body, and refuses the request if one fails.
void Connection::begin_request() {
  admission_ = std::make_unique<Admission>(context_.gate.admit(reader_->head()));
  record_ = new_record(admission_->form.request_id);
  record_.method = name_of(admission_->request.verb);
  if (admission_->route != nullptr) record_.route = admission_->route->path;
  if (admission_->request.principal) record_.tenant = admission_->request.principal->tenant.name;
  record_.trace = serving::TraceParent::parse(admission_->request.header("traceparent"));
  if (is_too_many_) {
    // The transfer of a body could occupy the spare place for long.
    if (!has_spare_place(*admission_) || (!reader_->is_complete() && !admission_->request.is_admin())) {
      admission_->refusal = {503, "too many connections", {}, "too_many_connections", {}, kRetryAfterMs};
    }
    admission_->form.keep_alive = false;
  }
  const auto& head = reader_->head();
  if (!admission_->refusal && head.has_body && !has_room_for(head.content_length.value_or(0))) {
    admission_->refusal = no_room();
  }
  // A small body has often arrived already. Then the connection can stay open although the request is refused.
  if (admission_->refusal && !reader_->is_complete() && !reader_->read_body(input_).value_or(false)) {
    admission_->form.keep_alive = false;
  }
  if (admission_->refusal) return refuse(admission_->form, *admission_->refusal, admission_->headers);
  phase_ = Phase::body;
  if (reader_->is_complete()) return;
  arm(context_.config.http_body_timeout_ms);
  if (admission_->expects_continue && input_.empty()) {
    output_ += "HTTP/1.1 100 Continue\r\n\r\n";
    send_soon();
  }
}

void Connection::dispatch() {
  const auto self = shared_from_this();  // keeps the connection alive during the handler
  const auto admission = std::move(admission_);
  auto request = std::move(admission->request);
  request.body = std::move(reader_->body());
  request.body_bytes = {context_.telemetry.http, request.body.size()};
  pipelined_ = !without_empty_lines(input_).empty();
  if (admission->route == nullptr) {  // CORS preflight
    admission->form.keep_alive = admission->form.keep_alive && may_keep_alive();
    append_head(output_, admission->form, 204, {}, Framing::sized, 0, admission->headers);
    record_.status = 204;
    context_.telemetry.ended(record_);
    return answer_at_once(admission->form.keep_alive);
  }
  reader_.reset();
  std::string().swap(input_);
  disarm();
  phase_ = Phase::answering;
  if (waiting_for_output_) arm(context_.config.http_send_timeout_ms);  // for "100 Continue"
  const auto exchange = std::make_shared<Exchange>(*this, std::move(admission->form), std::move(record_));
  exchange_ = exchange.get();
  try {
    admission->route->handler(exchange, std::move(request));
  } catch (const std::exception& error) {
    spdlog::error("request {}: {}", exchange->request_id(), error.what());
    if (exchange_ != nullptr) exchange->on_handler_failed();
  }
}

serving::RequestRecord Connection::new_record(const std::string& request_id) const {
  return {.api = serving::kHttp, .request_id = request_id, .client = client_};
}

void Connection::refuse_broken_head(const ErrorAnswer& error) {
  const auto form = form_of_broken_head(input_);
  record_ = new_record(form.request_id);
  refuse(form, error);
}

void Connection::refuse(const AnswerForm& form, const ErrorAnswer& error, const Pairs& headers) {
  auto last = form;
  last.keep_alive = form.keep_alive && reader_ && reader_->is_complete() && may_keep_alive() && input_.empty();
  append_error(output_, last, error, headers);
  record_.status = error.status;
  context_.telemetry.ended(record_);
  answer_at_once(last.keep_alive);
}

/// Call when the whole answer is in the output.
void Connection::answer_at_once(bool keep_alive) {
  phase_ = keep_alive ? Phase::answering : Phase::refusing;
  disarm();
  if (!keep_alive) arm(context_.config.http_close_grace_ms);
  reader_.reset();
  admission_.reset();
  std::string().swap(input_);
  on_answer_end(keep_alive);
}

// -- output and the end

void Connection::send_soon() {
  if (send_is_posted_) return;
  boost::asio::post(context_.io, [self = shared_from_this()] {
    self->send_is_posted_ = false;
    close_on_exception(*self, [&] { self->send(); });
  });
  send_is_posted_ = true;
}

/// Reports the size of the buffers to the metrics.
void Connection::count_buffered() {
  metered_.buffers(input_.size() + (reader_ ? reader_->body().size() : 0) +
                   (exchange_ != nullptr ? exchange_->unsent_bytes() : unsent_bytes()));
}

void Connection::check_reader(std::size_t unsent_bytes) {
  metered_.buffers(unsent_bytes);
  if (close_is_posted_ || unsent_bytes <= static_cast<std::size_t>(context_.config.http_max_buffered_bytes)) return;
  spdlog::warn("a client reads too slowly: its connection is closed with {} unsent bytes", unsent_bytes);
  close_soon();
}

void Connection::on_answer_end(bool keep_alive) {
  exchange_ = nullptr;
  answer_ended_ = true;
  keep_alive_ = keep_alive;
  send_soon();
}

void Connection::abandon() {
  exchange_ = nullptr;
  close_soon();
}

void Connection::send() {
  if (waiting_for_output_ || phase_ == Phase::closed) return;
  if (exchange_ != nullptr) {
    // Removes sent bytes. Otherwise they would stay in the buffer as long as the client is a little behind.
    if (sent_ > output_.size() / 2) output_.erase(0, std::exchange(sent_, 0));
    exchange_->take_unframed(output_);
  }
  for (std::size_t turn = 0; turn < kMaxBytesPerTurn;) {
    if (sent_ == output_.size()) {
      output_.clear();
      sent_ = 0;
      return on_all_sent();
    }
    const auto [outcome, size] = stream_.write(std::string_view(output_).substr(sent_));
    if (outcome == ByteStream::Outcome::would_block) {
      count_buffered();
      return wait_for_output();
    }
    if (outcome != ByteStream::Outcome::done) return close_now();
    sent_ += size;
    turn += size;
  }
  send_soon();
}

void Connection::wait_for_output() {
  if (waiting_for_output_) return;
  if (phase_ == Phase::answering) arm(context_.config.http_send_timeout_ms);
  stream_.socket().async_wait(tcp::socket::wait_write, [self = shared_from_this()](const error_code& error) {
    self->waiting_for_output_ = false;
    if (self->phase_ == Phase::closed) return;
    if (error) return self->close_now();
    close_on_exception(*self, [&] { self->phase_ == Phase::handshake ? self->go_on_with_handshake() : self->send(); });
  });
  waiting_for_output_ = true;
}

void Connection::on_all_sent() {
  std::string().swap(output_);
  count_buffered();
  if (phase_ == Phase::answering) disarm();
  if (answer_ended_) {
    answer_ended_ = false;
    if (keep_alive_ && !pipelined_ && !finishing_ && !input_ended_) return await_next_request();
    return linger();
  }
  if (exchange_ == nullptr || !exchange_->on_drained_) return;
  const auto on_drained = exchange_->on_drained_;  // the callback may replace itself
  on_drained();
}

void Connection::await_next_request() {
  phase_ = Phase::idle;
  arm(context_.config.http_idle_timeout_ms);
  if (std::exchange(thrown_away_bytes_, 0) > kMaxPipelinedBytes) on_input();
}

/// Shuts the sending side, then discards input until the client closes or the deadline passes. If input were unread at
/// the close, TCP would reset the connection, and the client might lose the end of its answer.
void Connection::linger() {
  if (input_ended_) return close_now();
  phase_ = Phase::lingering;
  stream_.end_output();
  arm(context_.config.http_close_grace_ms);
  if (thrown_away_bytes_ > kMaxPipelinedBytes) on_input();
}

void Connection::finish() {
  finishing_ = true;
  if (phase_ == Phase::body) {
    return refuse(admission_->form, {503, "the server is shutting down", {}, "shutting_down", {}, kRetryAfterMs});
  }
  if (phase_ == Phase::handshake || phase_ == Phase::idle || phase_ == Phase::head) close_now();
}

void Connection::close_soon() {
  if (close_is_posted_) return;
  try {
    boost::asio::post(context_.io, [self = shared_from_this()] { self->close_now(); });
    close_is_posted_ = true;
  } catch (const std::bad_alloc&) {
    // The connection already waits for input. The shutdown ends the input, so the connection is closed.
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
  }
}

void Connection::close_now() {
  if (phase_ == Phase::closed) return;
  phase_ = Phase::closed;
  const auto self = shared_from_this();
  stream_.close();
  deadline_.cancel();
  next_read_.cancel();
  metered_.buffers(0);
  auto* const exchange = std::exchange(exchange_, nullptr);
  on_closed_(*this);
  if (exchange != nullptr) exchange->close();
}

// -- time

void Connection::arm(std::int64_t timeout_ms) {
  deadline_.expires_after(std::chrono::milliseconds(timeout_ms));
  deadline_.async_wait([self = shared_from_this()](const error_code& cancelled) {
    // The deadline may have been set again just before the timer expired.
    const bool is_stale = self->deadline_.expiry() > std::chrono::steady_clock::now();
    if (cancelled || is_stale || self->phase_ == Phase::closed) return;
    close_on_exception(*self, [&] { self->on_deadline(); });
  });
}

/// The handler of a timer that has expired may wait for its turn: with this expiry it is stale.
void Connection::disarm() {
  deadline_.expires_at(std::chrono::steady_clock::time_point::max());
}

void Connection::on_deadline() {
  switch (phase_) {
    case Phase::head:
      return refuse_broken_head({408, "the head of the request did not arrive in time"});
    case Phase::body:
      return refuse(admission_->form, {408, "the body of the request did not arrive in time"});
    case Phase::handshake:
    case Phase::idle:
    case Phase::answering:
    case Phase::refusing:
    case Phase::lingering:
    case Phase::closed:
      return close_now();
  }
}

}  // namespace pagoda::http
