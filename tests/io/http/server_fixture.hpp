#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/http/server.hpp"
#include "tests/io/http/test_client.hpp"

namespace pagoda::http {

/// A server on a free port with a few routes that stand for what real ones do.
class HttpServerTest : public testing::Test {
 protected:
  void start(ServerConfig config = {}) {
    if (config.http.empty()) config.http = "127.0.0.1:0";
    auto server = Server::start(std::move(config), routes(), telemetry_);
    ASSERT_TRUE(server.has_value()) << server.error().message;
    server_ = std::move(*server);
  }

  TestClient client(int receive_buffer_bytes = 0) { return TestClient(server_->port(), receive_buffer_bytes); }

  /// What one request on its own connection is answered.
  TestAnswer ask(std::string_view request) {
    auto c = client();
    c.send(request);
    return c.receive();
  }

  /// True as soon as `condition()` holds, false when it does not for a long time.
  template <class Condition>
  static bool eventually(Condition condition) {
    for (int i = 0; i < 4000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  Routes routes() {
    Routes routes;
    const auto get = [&](const char* pattern, Access access, Handler handler) {
      routes.add(Verb::get, pattern, access, std::move(handler));
    };
    routes.add(
        Verb::get, "/health", Access::open, [](auto exchange, Request) { exchange->respond(200, "text/plain", "ok"); },
        ConnectionQuota::spare);
    get("/v1/models/{id*}", Access::key, [](auto exchange, Request request) {
      exchange->respond(200, "text/plain",
                        std::string(find_value(request.params, "id")) + "?" +
                            std::string(find_value(request.query, "q")) + "#" +
                            (request.principal ? request.principal->id : std::string()));
    });
    get("/throw", Access::key, [](auto, Request) { throw std::runtime_error("a bug"); });
    get("/throw_late", Access::key, [this](auto exchange, Request) {
      hold(exchange);
      throw std::runtime_error("a bug after the exchange was given away");
    });
    get("/throw_in_stream", Access::key, [this](auto exchange, Request) {
      stream(exchange, -1);
      throw std::runtime_error("a bug in a stream");
    });
    get("/drop", Access::key, [](auto, Request) {});
    get("/stream", Access::key, [this](auto exchange, Request) { stream(exchange, 3); });
    get("/endless", Access::key, [this](auto exchange, Request) { stream(exchange, -1); });
    get("/flood", Access::key, [this](auto exchange, Request) { flood(exchange); });
    get("/big", Access::key,
        [](auto exchange, Request) { exchange->respond(200, "text/plain", std::string(8 << 20, 'b')); });
    get("/hold", Access::key, [this](auto exchange, Request) { hold(exchange); });
    routes.add(Verb::post, "/hold", Access::key, [this](auto exchange, Request) { hold(exchange); });
    for (const auto* path : {"/echo", "/v1/messages", "/api/chat"}) {
      routes.add(Verb::post, path, Access::key, [](auto exchange, Request request) {
        exchange->respond(200, "application/json", std::move(request.body));
      });
    }
    routes.add(Verb::post, "/admin/drain", Access::admin,
               [](auto exchange, Request) { exchange->respond(200, "text/plain", "drained"); });
    return routes;
  }

  /// Pieces at intervals, `num_pieces` of them or without an end.
  void stream(const std::shared_ptr<Exchange>& exchange, int num_pieces) {
    ++live_;
    exchange->begin_stream(200, "text/event-stream", {{"cache-control", "no-cache"}});
    const auto timer = std::make_shared<boost::asio::steady_timer>(exchange->io());
    exchange->on_closed([this, timer] {
      --live_;
      timer->cancel();
    });
    next_piece(exchange, timer, num_pieces);
  }
  void next_piece(const std::shared_ptr<Exchange>& exchange, const std::shared_ptr<boost::asio::steady_timer>& timer,
                  int num_pieces) {
    if (num_pieces == 0) {
      --live_;
      return exchange->end_stream();
    }
    exchange->write("data: one ");
    exchange->write("piece\n\n");
    timer->expires_after(std::chrono::milliseconds(2));
    timer->async_wait([=, this](const boost::system::error_code& error) {
      if (!error && exchange->is_open()) next_piece(exchange, timer, num_pieces - 1);
    });
  }

  /// As much as the connection will have.
  void flood(const std::shared_ptr<Exchange>& exchange) {
    ++live_;
    exchange->begin_stream(200, "text/plain");
    exchange->on_closed([this] { --live_; });
    pour(exchange);
  }
  void pour(const std::shared_ptr<Exchange>& exchange) {
    if (!exchange->is_open()) return;
    exchange->write(std::string(64 << 10, 'x'));
    most_unsent_ = std::max<std::size_t>(most_unsent_, exchange->unsent_bytes());
    boost::asio::post(exchange->io(), [=, this] { pour(exchange); });
  }

  /// No answer until release().
  void hold(const std::shared_ptr<Exchange>& exchange) {
    ++live_;
    held_ = exchange;
    is_held_ = true;
    exchange->on_closed([this] {
      --live_;
      held_.reset();
    });
  }
  void release() {
    boost::asio::post(server_->io(), [this] {
      if (!held_) return;
      --live_;
      held_->respond(200, "text/plain", "at last");
      held_.reset();
    });
  }

  std::atomic<int> live_ = 0;  ///< answers under way that have not ended
  std::atomic<std::size_t> most_unsent_ = 0;
  std::atomic<bool> is_held_ = false;  ///< hold() has been called
  std::shared_ptr<Exchange> held_;     ///< I/O thread
  std::shared_ptr<serving::Telemetry> telemetry_ = std::make_shared<serving::Telemetry>();
  std::unique_ptr<Server> server_;
};

inline std::string message_of(const TestAnswer& answer) {
  const auto body = nlohmann::json::parse(answer.body, nullptr, false);
  return body.is_object() && body.contains("error") && body["error"].is_object()
             ? body["error"].value("message", std::string())
             : answer.body;
}

}  // namespace pagoda::http
