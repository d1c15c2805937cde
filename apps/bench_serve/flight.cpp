#include "apps/bench_serve/flight.hpp"

#include <algorithm>
#include <utility>

namespace pagoda::bench_serve {
namespace {

constexpr int kOk = 200;
constexpr int kTooManyRequests = 429;
constexpr int kUnavailable = 503;

}  // namespace

Flight::Flight(std::shared_ptr<HttpConnection> connection, Client client, std::int64_t content_limit,
               Clock::time_point start, OnEnd on_end)
    : connection_(std::move(connection)), content_limit_(content_limit), start_(start), on_end_(std::move(on_end)) {
  record_.client = client;
}

void Flight::begin(std::string request, Pace pace, double begin_s) {
  record_.begin_s = begin_s;
  record_.sent_s = now_s();
  connection_->exchange(std::move(request), pace, *this);
}

void Flight::disconnect() {
  connection_->close();
  end(Outcome::left);
}

void Flight::on_sent() {
  if (record_.client == Client::disconnects && content_limit_ == 0) disconnect();
}

void Flight::on_head(const ReplyHead& head) {
  record_.status = head.status;
  record_.has_retry_after = head.has_retry_after;
}

void Flight::on_body(std::string_view bytes) {
  constexpr std::size_t kMaxErrorBytes = 4096;
  if (record_.status != kOk) {
    error_body_ += bytes.substr(0, kMaxErrorBytes - std::min(kMaxErrorBytes, error_body_.size()));
    return;
  }
  const double now = now_s();
  events_.feed(bytes, [&](std::string_view data) { take_event(read_event(data), now); });
  if (record_.client == Client::disconnects && num_contents_ >= content_limit_) disconnect();
}

void Flight::take_event(const CompletionEvent& event, double now) {
  if (!event.error.empty() && record_.error.empty()) record_.error = event.error;
  // An answer without text counts as having its first token when it ends.
  if (event.has_content || (event.has_finished && num_contents_ == 0)) take_content(now);
  has_finished_ = has_finished_ || event.has_finished || event.is_done;
  record_.prompt_tokens = event.prompt_tokens.value_or(record_.prompt_tokens);
  record_.output_tokens = event.completion_tokens.value_or(record_.output_tokens);
}

void Flight::take_content(double now) {
  if (num_contents_++ == 0) {
    record_.first_s = now;
  } else {
    record_.gaps_s.push_back(static_cast<float>(now - record_.last_s));
  }
  record_.last_s = now;
}

void Flight::on_end(const std::string& error) {
  if (!error.empty()) return end(Outcome::failed, error);
  if (record_.status == kTooManyRequests || record_.status == kUnavailable) {
    return end(Outcome::refused, error_message(error_body_));
  }
  if (record_.status != kOk) {
    return end(Outcome::failed, "HTTP " + std::to_string(record_.status) + ": " + error_message(error_body_));
  }
  if (!record_.error.empty()) return end(Outcome::failed, std::move(record_.error));
  if (!has_finished_ || num_contents_ == 0) return end(Outcome::failed, "the stream ended before the answer");
  end(Outcome::completed);
}

void Flight::end(Outcome outcome, std::string error) {
  record_.outcome = outcome;
  record_.error = std::move(error);
  record_.end_s = now_s();
  if (record_.output_tokens == 0) record_.output_tokens = num_contents_;
  on_end_(*this);
}

}  // namespace pagoda::bench_serve
