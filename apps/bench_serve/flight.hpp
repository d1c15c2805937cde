#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "apps/bench_serve/load_generator.hpp"
#include "apps/bench_serve/sse_reader.hpp"

namespace pagoda::bench_serve {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// One request from sending to its end: reads the stream and writes the record. Runs on the I/O thread.
class Flight final : public ReplySink {
 public:
  /// Called once, after all other calls. May destroy the flight.
  using OnEnd = std::function<void(Flight&)>;

  /// `content_limit`: number of events with content after which a client of kind `disconnects` leaves.
  Flight(std::shared_ptr<HttpConnection> connection, Client client, std::int64_t content_limit, Clock::time_point start,
         OnEnd on_end);

  void begin(std::string request, Pace pace, double begin_s);
  /// Ends the request because its client leaves.
  void disconnect();

  RequestRecord& record() { return record_; }
  const std::shared_ptr<HttpConnection>& connection() const { return connection_; }

  void on_sent() override;
  void on_head(const ReplyHead& head) override;
  void on_body(std::string_view bytes) override;
  void on_end(const std::string& error) override;

 private:
  double now_s() const { return seconds_between(start_, Clock::now()); }
  void take_event(const CompletionEvent& event, double now);
  void take_content(double now);
  void end(Outcome outcome, std::string error = {});

  std::shared_ptr<HttpConnection> connection_;
  std::int64_t content_limit_;
  Clock::time_point start_;
  OnEnd on_end_;
  SseReader events_;
  std::string error_body_;
  std::int64_t num_contents_ = 0;
  bool has_finished_ = false;
  RequestRecord record_;
};

}  // namespace pagoda::bench_serve
