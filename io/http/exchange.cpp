#include "io/http/exchange.hpp"

#include <charconv>
#include <exception>
#include <utility>

#include <boost/asio/post.hpp>
#include <spdlog/spdlog.h>

#include "kernels/result.hpp"

namespace pagoda::http {

Exchange::Exchange(AnswerPeer& peer, AnswerForm form, serving::RequestRecord record)
    : io_(peer.io()), peer_(&peer), telemetry_(peer.telemetry()), form_(std::move(form)), record_(std::move(record)) {}

Exchange::~Exchange() {
  if (peer_ == nullptr) return;
  spdlog::error("request {}: dropped without a complete answer", form_.request_id);
  try {
    if (state_ == State::waiting) {
      respond_error({500, "this request was not answered"});
    } else {
      record_.is_cut = true;
      report();
    }
  } catch (const std::exception& error) {
    spdlog::error("request {}: {}", form_.request_id, error.what());
  }
  if (peer_ != nullptr) peer_->abandon();
}

void Exchange::cut_off(const char* why) {
  spdlog::error("request {}: its connection is closed: {}", form_.request_id, why);
  drop();
}

void Exchange::drop() {
  if (peer_ != nullptr) peer_->close_soon();
}

void Exchange::respond(unsigned status, std::string_view content_type, std::string body, const Pairs& headers) {
  PAGODA_ASSERT(state_ == State::waiting || was_closed_, "a request is answered once");
  state_ = State::ended;
  if (peer_ == nullptr) return;
  record_.status = status;
  form_.keep_alive = form_.keep_alive && peer_->may_keep_alive();
  auto& out = peer_->output();
  append_head(out, form_, status, content_type, Framing::sized, body.size(), headers);
  if (!form_.without_body) out += body;
  end();
}

void Exchange::respond_error(const ErrorAnswer& error) {
  Pairs headers;
  add_error_headers(error, headers);
  respond(error.status, "application/json", error_body(form_.style, error), headers);
}

void Exchange::begin_stream(unsigned status, std::string_view content_type, const Pairs& headers) {
  PAGODA_ASSERT(state_ == State::waiting || was_closed_, "a request is answered once");
  state_ = State::streaming;
  if (peer_ == nullptr) return;
  record_.status = status;
  form_.keep_alive = form_.keep_alive && !form_.is_http10 && peer_->may_keep_alive();
  Pairs all = headers;
  all.emplace_back("x-accel-buffering", "no");
  append_head(peer_->output(), form_, status, content_type, form_.is_http10 ? Framing::until_close : Framing::chunked,
              0, all);
  if (!form_.without_body) return peer_->send_soon();
  // The client has its whole answer and may send its next request, so the rest of the stream is not needed.
  report();
  std::exchange(peer_, nullptr)->on_answer_end(form_.keep_alive);
  close_soon();
}

void Exchange::write(std::string_view bytes) {
  PAGODA_ASSERT(state_ == State::streaming || was_closed_, "bytes are written between begin_stream and end_stream");
  if (peer_ == nullptr || bytes.empty()) return;
  unframed_ += bytes;
  peer_->send_soon();
  peer_->check_reader(unsent_bytes());
}

void Exchange::end_stream() {
  PAGODA_ASSERT(state_ == State::streaming || was_closed_, "a stream ends once, after it began");
  if (peer_ == nullptr) {
    state_ = State::ended;
    return;
  }
  take_unframed(peer_->output());
  state_ = State::ended;
  if (!form_.is_http10) peer_->output() += "0\r\n\r\n";
  end();
}

void Exchange::take_unframed(std::string& to) {
  if (unframed_.empty()) return;
  if (form_.is_http10) {
    to += unframed_;
  } else {
    char size[16];
    const auto end = std::to_chars(size, size + sizeof size, unframed_.size(), 16).ptr;
    to.append(size, end);
    to += "\r\n";
    to += unframed_;
    to += "\r\n";
  }
  unframed_.clear();
}

void Exchange::end() {
  // The callbacks may hold the last references to this exchange.
  const auto closed = std::exchange(on_closed_, nullptr);
  const auto drained = std::exchange(on_drained_, nullptr);
  report();
  std::exchange(peer_, nullptr)->on_answer_end(form_.keep_alive);
}

/// Reports the record once. Events after the end of the answer are not reported.
void Exchange::report() {
  if (!std::exchange(is_reported_, true)) telemetry_.ended(record_);
}

std::size_t Exchange::unsent_bytes() const {
  return peer_ == nullptr ? 0 : peer_->unsent_bytes() + unframed_.size();
}

void Exchange::on_drained(std::function<void()> callback) {
  if (peer_ != nullptr) on_drained_ = std::move(callback);
}

void Exchange::on_closed(std::function<void()> callback) {
  if (was_closed_) {
    boost::asio::post(io_, std::move(callback));
  } else if (peer_ != nullptr) {
    on_closed_ = std::move(callback);
  }
}

/// Sends 500, or cuts the stream off if the answer has begun. Other owners may still hold the exchange and continue the
/// answer: on_closed notifies them.
void Exchange::on_handler_failed() {
  if (state_ == State::streaming) return peer_->close_soon();
  auto closed = std::exchange(on_closed_, nullptr);
  respond_error({500, "the server failed on this request"});
  on_closed_ = std::move(closed);
  close_soon();
}

void Exchange::close_soon() {
  was_closed_ = true;
  boost::asio::post(io_, [self = shared_from_this()] { self->close(); });
}

void Exchange::close() {
  const auto self = shared_from_this();
  peer_ = nullptr;
  was_closed_ = true;
  record_.is_cut = record_.status != 0;
  if (record_.status == 0) record_.status = serving::RequestRecord::kClientClosed;
  if (record_.generation && record_.generation->finish_reason.empty()) record_.generation->finish_reason = "abort";
  report();
  unframed_.clear();
  const auto drained = std::exchange(on_drained_, nullptr);
  if (const auto closed = std::exchange(on_closed_, nullptr)) closed();
}

}  // namespace pagoda::http
