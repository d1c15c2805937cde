// What is refused, with which status, in whose shape, and whether the connection lives on.

#include "tests/io/http/server_fixture.hpp"

namespace pagoda::http {
namespace {

using nlohmann::json;

struct Bad {
  int status;
  std::string request;
};

std::string with_headers(const std::string& headers, const std::string& body = {}) {
  return "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n" + headers + "\r\n" + body;
}

/// Behind each stands a request that must never be answered: it would have been smuggled.
TEST_F(HttpServerTest, WhatCouldBeReadInTwoWaysIsRefusedAndTheConnectionClosed) {
  start();
  const std::string chunked = "Transfer-Encoding: chunked\r\n";
  const std::vector<Bad> bad{
      {400, with_headers("Content-Length: 2\r\n" + chunked, "0\r\n\r\n")},
      {400, with_headers(chunked + "Content-Length: 2\r\n", "0\r\n\r\n")},
      {400, with_headers("Content-Length: 2\r\nContent-Length: 2\r\n", "{}")},
      {400, with_headers("Content-Length: 2\r\ncontent-length: 3\r\n", "{}")},
      {400, with_headers("Content-Length: 2, 2\r\n", "{}")},
      {400, with_headers("Content-Length: +2\r\n", "{}")},
      {400, with_headers("Content-Length: -2\r\n", "{}")},
      {400, with_headers("Content-Length: 0x2\r\n", "{}")},
      {400, with_headers("Content-Length: 2 2\r\n", "{}")},
      {400, with_headers("Content-Length:\r\n", "{}")},
      {400, with_headers("Content-Length: 99999999999999999999\r\n", "{}")},
      {400, with_headers("Content-Length: 18446744073709551618\r\n", "{}")},
      {400, with_headers("Content-Length : 2\r\n", "{}")},
      {400, with_headers("Content-Length\t: 2\r\n", "{}")},
      {400, with_headers(" Content-Length: 2\r\n", "{}")},
      {400, with_headers("Content-Length: \r\n 2\r\n", "{}")},
      {400, with_headers("X: a\r\n\tb\r\n")},
      {400, with_headers("X: a\nContent-Length: 2\r\n", "{}")},
      {400, with_headers("X: a\rContent-Length: 2\r\n", "{}")},
      {400, with_headers("X: a\r\r\n")},
      {400, with_headers(std::string("X: a") + '\0' + "b\r\n")},
      {400, with_headers("X: a\x01"
                         "b\r\n")},
      {400, with_headers("X: a\x7f\r\n")},
      {400, with_headers("X\r\n")},
      {400, with_headers(": a\r\n")},
      {400, with_headers("X(: a\r\n")},
      {400, with_headers("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n")},
      {400, with_headers("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n")},
      {400, with_headers("Transfer-Encoding: identity\r\n", "0\r\n\r\n")},
      {400, with_headers("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n")},
      {400, with_headers("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n")},
      {400, with_headers("Transfer-Encoding: \x0b"
                         "chunked\r\n",
                         "0\r\n\r\n")},
      {400, with_headers("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n")},
      {400, with_headers(chunked + chunked, "0\r\n\r\n")},
      {400, with_headers(chunked + "Transfer-Encoding: identity\r\n", "0\r\n\r\n")},
      {400, with_headers("Transfer-Encoding : chunked\r\n", "0\r\n\r\n")},
      {400, with_headers(chunked, "-1\r\n\r\n")},
      {400, with_headers(chunked, "0x2\r\n{}\r\n0\r\n\r\n")},
      {400, with_headers(chunked, "+2\r\n{}\r\n0\r\n\r\n")},
      {400, with_headers(chunked, "2 2\r\n{}\r\n0\r\n\r\n")},
      {400, with_headers(chunked, "10000000000000002\r\n{}\r\n0\r\n\r\n")},
      {413, with_headers(chunked, "ffffffffffffffff\r\n{}\r\n0\r\n\r\n")},
      {413, with_headers(chunked, "2\r\n{}\r\nfffffffffffffffe\r\n{}\r\n0\r\n\r\n")},
      {400, with_headers(chunked, "2\n{}\r\n0\r\n\r\n")},
      {400, with_headers(chunked, "2\r\n{}0\r\n\r\n")},
      {400, with_headers(chunked, "2\r\n{}\n0\r\n\r\n")},
      {400, with_headers(chunked, "2\r\n{}]\r\n0\r\n\r\n")},
      {400, with_headers(chunked, "\r\n2\r\n{}\r\n0\r\n\r\n")},
      {400, with_headers(chunked, ";a\r\n{}\r\n0\r\n\r\n")},
      {400, with_headers(chunked, "2;\r\n{}\r\n0\r\n\r\n")},
      {400, with_headers(chunked, "2;a=\"\r\n{}\r\n0\r\n\r\n" + std::string(4096, 'x'))},
      {400, with_headers(chunked, "2\r\n{}\r\n0\r\nX: y\r\n\r\n")},
      {400, with_headers(chunked, "2\r\n{}\r\n0\r\nContent-Length: 5\r\n\r\n")},
      {400, with_headers(chunked, "2;" + std::string(2000, 'x') + "\r\n{}\r\n0\r\n\r\n")},
      {400, with_headers("Host: y\r\n")},
      {400, "GET /health HTTP/1.1\r\n\r\n"},
      {400, "GET /health HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {400, with_headers("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n")},
      {400, with_headers("Content-Type: text/plain\r\n")},
      {400, "GET  /health HTTP/1.1\r\nHost: x\r\n\r\n"},
      {400, "GET /health  HTTP/1.1\r\nHost: x\r\n\r\n"},
      {400, "GET\t/health HTTP/1.1\r\nHost: x\r\n\r\n"},
      {400, "GET /hea lth HTTP/1.1\r\nHost: x\r\n\r\n"},
      {400, "GET /health\r\n\r\n"},
      {400, "GET /health HTTP/1.1 \r\nHost: x\r\n\r\n"},
      {400, "GET /health http/1.1\r\nHost: x\r\n\r\n"},
      {400, std::string("GET /hea\0lth HTTP/1.1\r\nHost: x\r\n\r\n", 34)},
      {400, "GET /health\x01 HTTP/1.1\r\nHost: x\r\n\r\n"},
      {400, "GET /health HTTP/1.1\nHost: x\n\n"},
      {400, " GET /health HTTP/1.1\r\nHost: x\r\n\r\n"},
      {400, "\x16\x03\x01\x02"},  // TLS to a server without it
      {400, "GET * HTTP/1.1\r\nHost: x\r\n\r\n"},
      {400, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n"},
      {400,
       "GET /health HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
       "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nContent-Length: 1\r\n\r\n"},
      {501, "CONNECT example.org:443 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"},
      {501, "TRACE /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"},
      {501, "BREW /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"},
      {505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
      {505, "GET /health HTTP/1.2\r\nHost: x\r\n\r\n"},
      {505, "GET /health HTTP/3.0\r\nHost: x\r\n\r\n"},
  };
  for (const auto& [status, request] : bad) {
    auto c = client();
    c.send(request + "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");  // at once: else it may be a request in its turn
    const auto answer = c.receive();
    EXPECT_EQ(answer.status, status) << request << "\n" << answer.body;
    if (answer.status == 0) continue;
    EXPECT_EQ(answer.headers.count("connection"), 1U) << request;
    EXPECT_FALSE(message_of(answer).empty());
    EXPECT_EQ(c.receive().status, 0) << "smuggled behind " << request;
    EXPECT_TRUE(c.at_end()) << request;
  }
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
}

TEST_F(HttpServerTest, LongHeadsAreRefusedAsTheyCome) {
  start();
  EXPECT_EQ(ask("GET /" + std::string(8 << 10, 'a')).status, 414);
  EXPECT_EQ(ask(with_headers("X: " + std::string(16 << 10, 'a'))).status, 431);
  std::string many;
  for (int i = 0; i < 101; ++i) many += "X: a\r\n";
  EXPECT_EQ(ask(with_headers(many)).status, 431);

  auto endless = client();
  endless.send("GET /health HTTP/1.1\r\nHost: x\r\n");
  for (int i = 0; i < 10000 && endless.send("X: " + std::string(1000, 'a') + "\r\n"); ++i) continue;
  EXPECT_TRUE(endless.at_end());
}

TEST_F(HttpServerTest, ALargeBodyIsRefusedBeforeItComes) {
  ServerConfig config;
  config.max_body_bytes = 1000;
  start(config);
  const auto answer = ask(with_headers("Content-Length: 1001\r\nExpect: 100-continue\r\n"));
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_EQ(ask(with_headers("Content-Length: 1000\r\n", std::string(1000, ' '))).status, 200);
  EXPECT_EQ(
      ask(with_headers("Transfer-Encoding: chunked\r\n", "3e8\r\n" + std::string(1000, ' ') + "\r\n0\r\n\r\n")).status,
      200);
  EXPECT_EQ(ask(with_headers("Transfer-Encoding: chunked\r\n",
                             "3e8\r\n" + std::string(1000, ' ') + "\r\n1\r\n \r\n0\r\n\r\n"))
                .status,
            413);
  auto c = client();
  c.send(with_headers("Content-Length: 50000000\r\n"));
  const std::string piece(1 << 20, ' ');
  for (int i = 0; i < 48 && c.send(piece); ++i) continue;  // a client that sends it all the same gets its answer
  EXPECT_EQ(c.receive().status, 413);
}

TEST_F(HttpServerTest, OneByteChunksAreReadButChunksOfNothingElseAreNot) {
  start();
  std::string chunks;
  for (int i = 0; i < 50000; ++i) chunks += "1\r\n \r\n";
  EXPECT_EQ(ask(with_headers("Transfer-Encoding: chunked\r\n", chunks + "0\r\n\r\n")).body.size(), 50000U);
  chunks.clear();
  for (int i = 0; i < 5000; ++i) chunks += "1;a=b\r\n \r\n";
  EXPECT_EQ(ask(with_headers("Transfer-Encoding: chunked\r\n", chunks + "0\r\n\r\n")).status, 400);
  chunks.clear();
  for (int i = 0; i < 5000; ++i) chunks += std::string(100, '0') + "1\r\n \r\n";
  EXPECT_EQ(ask(with_headers("Transfer-Encoding: chunked\r\n", chunks + "0\r\n\r\n")).status, 400);
}

TEST_F(HttpServerTest, OnlyJsonIsTaken) {
  start();
  const auto post = [&](const std::string& headers) {
    return ask("POST /echo HTTP/1.1\r\nHost: x\r\n" + headers + "Content-Length: 2\r\n\r\n{}").status;
  };
  EXPECT_EQ(post("Content-Type: application/json\r\n"), 200);
  EXPECT_EQ(post("Content-Type: Application/JSON;charset=utf-8\r\n"), 200);
  EXPECT_EQ(post(""), 415);
  EXPECT_EQ(post("Content-Type: application/x-www-form-urlencoded\r\n"), 415);
  EXPECT_EQ(post("Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(post("Content-Type: application/json-patch\r\n"), 415);
  EXPECT_EQ(post("Content-Type: application/json\r\nContent-Encoding: gzip\r\n"), 415);
  EXPECT_EQ(ask("POST /echo HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);  // no body needs no type
}

TEST_F(HttpServerTest, AnUnknownPathIs404AndAnotherMethod405AndTheConnectionIsKept) {
  start();
  auto c = client();
  c.get("/nowhere");
  EXPECT_EQ(c.receive().status, 404);
  c.post("/nowhere", "{}");
  EXPECT_EQ(c.receive().status, 404);
  c.post("/health", "{}");
  const auto answer = c.receive();
  EXPECT_EQ(answer.status, 405);
  EXPECT_EQ(answer.headers.at("allow"), "GET, HEAD");
  c.get("/hold/");
  EXPECT_EQ(c.receive().status, 404);
  c.send("DELETE /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(c.receive().headers.at("allow"), "GET, HEAD, POST");
  c.send("OPTIONS /hold HTTP/1.1\r\nHost: x\r\nOrigin: https://a.b\r\nAccess-Control-Request-Method: POST\r\n\r\n");
  EXPECT_EQ(c.receive().status, 405);  // no CORS
  c.get("/health");
  EXPECT_EQ(c.receive().status, 200);
}

TEST_F(HttpServerTest, ErrorsHaveTheShapeOfTheApiThatWasCalled) {
  start();
  const auto error = [&](const std::string& path, const std::string& type = "text/plain") {
    return json::parse(
        ask("POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: " + type + "\r\nContent-Length: 2\r\n\r\n{}").body);
  };
  const auto openai = error("/echo");
  EXPECT_EQ(openai["error"]["type"], "invalid_request_error");
  EXPECT_TRUE(openai["error"]["param"].is_null());
  const auto anthropic = error("/v1/messages?beta=true");
  EXPECT_EQ(anthropic["type"], "error");
  EXPECT_EQ(anthropic["error"]["type"], "invalid_request_error");
  EXPECT_EQ(error("/v1/messages/nowhere", "application/json")["error"]["type"], "not_found_error");
  EXPECT_EQ(error("/v1/messagesandmore", "application/json")["error"]["type"], "invalid_request_error");
  EXPECT_TRUE(error("/api/chat", "text/plain\r\nOrigin: https://elsewhere")["error"].is_string());
  // Also of a head that is not whole or not good.
  EXPECT_EQ(json::parse(ask("POST /v1/messages HTTP/1.1\r\nHost: x\r\n bad").body)["type"], "error");
  EXPECT_TRUE(json::parse(ask("POST /api/chat?x HTTP/1.1\r\nContent-Length: +1\r\n\r\n").body)["error"].is_string());
}

TEST_F(HttpServerTest, APipelinedRequestIsNotAnswered) {
  start();
  auto c = client();
  c.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto first = c.receive();
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.at("connection"), "close");
  EXPECT_EQ(c.receive().status, 0);
  EXPECT_TRUE(c.at_end());

  auto later = client();
  later.get("/stream");
  EXPECT_EQ(later.receive_head().status, 200);
  later.get("/health");
  while (const auto chunk = later.receive_chunk()) {
    if (chunk->empty()) break;
  }
  EXPECT_EQ(later.receive().status, 0);
  EXPECT_TRUE(later.at_end());

  // However many of them: whatever the connection's end does to what is unread, the answer comes whole.
  auto flood = client();
  std::string many = "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n";
  for (int i = 0; i < 10'000; ++i) many += "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  ASSERT_TRUE(flood.send(many));
  EXPECT_EQ(flood.receive_head().status, 200);
  std::string last = "none";
  while (const auto chunk = flood.receive_chunk()) {
    last = *chunk;
    if (last.empty()) break;
  }
  EXPECT_EQ(last, "");
  EXPECT_EQ(flood.receive().status, 0);
  EXPECT_TRUE(flood.at_end());
}

}  // namespace
}  // namespace pagoda::http
