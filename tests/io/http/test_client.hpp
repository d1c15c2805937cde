#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace pagoda::http {

/// What a server answered, taken apart by code that shares nothing with the server's.
struct TestAnswer {
  int status = 0;  ///< 0: no whole answer came
  std::map<std::string, std::string> headers;
  std::string body;
  std::size_t num_chunks = 0;
  bool is_complete = false;
};

/// A blocking client over a real socket.
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
  TestClient(const TestClient&) = delete;
  TestClient(TestClient&& other) noexcept
      : socket_(std::exchange(other.socket_, -1)),
        connected_(other.connected_),
        ssl_(std::move(other.ssl_)),
        received_(std::move(other.received_)) {}
  ~TestClient() { close(); }

  bool connected() const { return connected_; }

  /// True when the handshake succeeds, with whatever certificate.
  bool start_tls(SSL_CTX* context) {
    ssl_.reset(::SSL_new(context));
    ::SSL_set_fd(ssl_.get(), socket_);
    return ::SSL_connect(ssl_.get()) == 1;
  }
  SSL* ssl() { return ssl_.get(); }

  /// False when the server has closed.
  bool send(std::string_view text) {
    while (!text.empty()) {
      const auto sent = ssl_ ? ::SSL_write(ssl_.get(), text.data(), static_cast<int>(text.size()))
                             : ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  bool get(std::string_view path, std::string_view headers = {}) {
    return send("GET " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n" + std::string(headers) + "\r\n");
  }
  bool post(std::string_view path, std::string_view body, std::string_view headers = {}) {
    return send("POST " + std::string(path) + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" +
                std::string(headers) + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
                std::string(body));
  }

  /// The next answer. `to_head`: it has no body whatever its head says.
  TestAnswer receive(bool to_head = false) {
    TestAnswer answer;
    const auto end = find("\r\n\r\n");
    if (!end || received_.compare(0, 9, "HTTP/1.1 ") != 0) return answer;
    answer.status = std::stoi(received_.substr(9, 3));
    read_headers(answer, received_.substr(0, *end + 2));
    received_.erase(0, *end + 4);
    if (to_head || answer.status == 204 || answer.status / 100 == 1) {
      answer.is_complete = true;
    } else if (answer.headers.contains("content-length")) {
      const auto size = std::stoul(answer.headers["content-length"]);
      while (received_.size() < size && receive_more()) continue;
      answer.is_complete = received_.size() >= size;
      answer.body = received_.substr(0, size);
      received_.erase(0, size);
      received_.shrink_to_fit();  // tests measure memory
    } else if (answer.headers.contains("transfer-encoding")) {
      while (const auto chunk = receive_chunk()) {
        if (chunk->empty()) {
          answer.is_complete = true;
          break;
        }
        answer.body += *chunk;
        ++answer.num_chunks;
      }
    } else {
      while (receive_more()) continue;
      answer.is_complete = !timed_out;
      answer.body = std::exchange(received_, {});
    }
    return answer;
  }

  /// The head of an answer whose body comes bit by bit.
  TestAnswer receive_head() {
    TestAnswer answer;
    const auto end = find("\r\n\r\n");
    if (!end) return answer;
    answer.status = std::stoi(received_.substr(9, 3));
    read_headers(answer, received_.substr(0, *end + 2));
    received_.erase(0, *end + 4);
    return answer;
  }
  /// Empty at the end; nothing when the server closed before it.
  std::optional<std::string> receive_chunk() {
    const auto line_end = find("\r\n");
    if (!line_end) return {};
    const auto size = std::stoul(received_.substr(0, *line_end), nullptr, 16);
    const auto start = *line_end + 2;
    while (received_.size() < start + size + 2 && receive_more()) continue;
    if (received_.size() < start + size + 2 || received_.compare(start + size, 2, "\r\n") != 0) return {};
    auto chunk = received_.substr(start, size);
    received_.erase(0, start + size + 2);
    return chunk;
  }

  /// True when the server has closed the connection, whatever it sent before.
  bool at_end(std::chrono::milliseconds patience = kPatience) {
    while (receive_more(patience)) received_.clear();
    return !timed_out;
  }

  void end_input() { ::shutdown(socket_, SHUT_WR); }
  /// The server's machine gets a reset.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

  bool timed_out = false;

 private:
  struct FreeSsl {
    void operator()(SSL* ssl) const { ::SSL_free(ssl); }
  };

  static void read_headers(TestAnswer& answer, const std::string& head) {
    for (auto at = head.find("\r\n") + 2; at < head.size();) {
      const auto end = head.find("\r\n", at);
      const auto colon = head.find(": ", at);
      answer.headers[head.substr(at, colon - at)] = head.substr(colon + 2, end - colon - 2);
      at = end + 2;
    }
  }

  std::optional<std::size_t> find(std::string_view text) {
    for (;;) {
      if (const auto at = received_.find(text); at != std::string::npos) return at;
      if (!receive_more()) return {};
    }
  }

  bool receive_more(std::chrono::milliseconds patience = kPatience) {
    pollfd wait{socket_, POLLIN, 0};
    if (!(ssl_ && ::SSL_pending(ssl_.get()) > 0) && ::poll(&wait, 1, static_cast<int>(patience.count())) <= 0) {
      timed_out = true;
      return false;
    }
    char chunk[65536];
    const auto size = ssl_ ? ::SSL_read(ssl_.get(), chunk, sizeof chunk) : ::recv(socket_, chunk, sizeof chunk, 0);
    if (size <= 0) return false;
    received_.append(chunk, static_cast<std::size_t>(size));
    return true;
  }

  int socket_;
  bool connected_ = false;
  std::unique_ptr<SSL, FreeSsl> ssl_;
  std::string received_;
};

}  // namespace pagoda::http
