#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pagoda::json_lines {

/// A blocking client over a real socket, for tests.
class TestClient {
 public:
  static constexpr auto kPatience = std::chrono::seconds(20);

  explicit TestClient(std::uint16_t port, int receive_buffer_bytes = 0) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer_bytes > 0) {
      ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const void* plain = &address;
    connected_ = ::connect(socket_, static_cast<const sockaddr*>(plain), sizeof address) == 0;
  }
  TestClient(TestClient&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  ~TestClient() { close(); }

  bool connected() const { return connected_; }

  /// False when the server has closed.
  bool send_raw(std::string_view text) {
    while (!text.empty()) {
      const auto sent = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  bool send(const nlohmann::json& message) { return send_raw(message.dump() + "\n"); }

  /// The next line, or nothing when the server has closed or stays silent for too long (then timed_out is set).
  std::optional<std::string> receive_line(std::chrono::milliseconds patience = kPatience) {
    for (;;) {
      if (const auto end = received_.find('\n'); end != std::string::npos) {
        auto line = received_.substr(0, end);
        received_.erase(0, end + 1);
        return line;
      }
      pollfd wait{socket_, POLLIN, 0};
      if (::poll(&wait, 1, static_cast<int>(patience.count())) <= 0) {
        timed_out = true;
        return {};
      }
      char chunk[65536];
      const auto size = ::recv(socket_, chunk, sizeof chunk, 0);
      if (size <= 0) return {};
      received_.append(chunk, static_cast<std::size_t>(size));
    }
  }
  /// The next event; null at the end.
  nlohmann::json receive(std::chrono::milliseconds patience = kPatience) {
    const auto line = receive_line(patience);
    return line ? nlohmann::json::parse(*line) : nlohmann::json();
  }

  /// Events of the request `id` up to its terminal one; other requests' events are dropped.
  std::vector<nlohmann::json> receive_until_end(const std::string& id) {
    std::vector<nlohmann::json> events;
    for (auto event = receive(); !event.is_null(); event = receive()) {
      if (event.value("id", nlohmann::json()) != id) continue;
      events.push_back(event);
      if (event["event"] != "delta") break;
    }
    return events;
  }

  /// True when the server has closed the connection and everything it sent has been received.
  bool at_end() { return !receive_line() && !timed_out; }

  void end_input() { ::shutdown(socket_, SHUT_WR); }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

  bool timed_out = false;

 private:
  int socket_;
  bool connected_ = false;
  std::string received_;
};

}  // namespace pagoda::json_lines
