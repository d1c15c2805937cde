/// Time limits of a connection whose client does nothing.

#include <string>

#include <spdlog/spdlog.h>

#include "io/json_lines/connection.hpp"
#include "io/serving/close_on_exception.hpp"

namespace pagoda::json_lines {

void Connection::watch_client() {
  if (closed_ || awaited_ == Awaited::close) return;
  if (closing_ && !has_work()) return await(Awaited::close);
  if (!is_authorized() && !has_work() && !input_ended_) return await(Awaited::key);  // input does not extend the time
  const bool is_idle = !has_work() && !input_ended_;
  await(writing_ ? Awaited::reading : is_idle ? Awaited::line : Awaited::nothing);
}

void Connection::await(Awaited what) {
  if (awaited_ != what) await_anew(what);
}

void Connection::await_anew(Awaited what) {
  awaited_ = what;
  const auto ms = timeout_ms(what);
  due_ = ms == 0 && what != Awaited::close ? kNever : std::chrono::steady_clock::now() + std::chrono::milliseconds(ms);
  arm();
}

std::int64_t Connection::timeout_ms(Awaited what) const {
  const auto& config = context_.config;
  switch (what) {
    case Awaited::nothing:
      return 0;
    case Awaited::key:
      return config.auth_timeout_ms;
    case Awaited::line:
      return config.idle_timeout_ms;
    case Awaited::reading:
      return config.send_timeout_ms;
    case Awaited::close:
      return config.close_grace_ms;
  }
  return 0;
}

void Connection::arm() {
  if (due_ == kNever || (deadline_is_armed_ && deadline_.expiry() <= due_)) return;
  deadline_.expires_at(due_);
  deadline_.async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
    if (cancelled || self->closed_) return;
    self->deadline_is_armed_ = false;
    serving::close_on_exception(*self, [&] {
      if (std::chrono::steady_clock::now() < self->due_) return self->arm();
      self->on_deadline();
    });
  });
  deadline_is_armed_ = true;
}

void Connection::on_deadline() {
  const auto after = " for " + std::to_string(timeout_ms(awaited_)) + " ms: the connection is closed";
  switch (awaited_) {
    case Awaited::nothing:
      return;
    case Awaited::key:
      return close_with(WireCode::unauthorized, "no key was sent" + after);
    case Awaited::line:
      return close_with(WireCode::timeout, "no request was sent" + after);
    case Awaited::reading:
      spdlog::warn("a client has read nothing{}, and its {} live requests are cancelled", after, live_.size());
      return close_now();
    case Awaited::close:
      return close_now();
  }
}

}  // namespace pagoda::json_lines
