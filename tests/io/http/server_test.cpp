// What a client that keeps the rules gets: answers, streams, connections that are kept.

#include "tests/io/http/server_fixture.hpp"

namespace pagoda::http {
namespace {

TEST_F(HttpServerTest, AConnectionIsKeptForRequestAfterRequest) {
  start();
  auto c = client();
  for (int i = 0; i < 50; ++i) {
    c.get("/health");
    const auto health = c.receive();
    EXPECT_EQ(health.status, 200);
    EXPECT_EQ(health.body, "ok");
    EXPECT_FALSE(health.headers.contains("connection"));
    const auto body = "{\"i\":" + std::to_string(i) + "}";
    c.post("/echo", body);
    EXPECT_EQ(c.receive().body, body);
  }
  EXPECT_EQ(server_->num_connections(), 1U);
}

TEST_F(HttpServerTest, ARequestThatComesByteByByteIsReadAsOne) {
  start();
  auto c = client();
  const std::string request =
      "\r\nPOST /echo HTTP/1.1\r\nHost: x\r\ncontent-type: Application/JSON ; charset=utf-8\r\n"
      "Transfer-Encoding: Chunked\r\n\r\n3;a=b\r\n{\"a\r\n00a;x=\"y z\"\r\n\":[1,2,3]}\r\n0\r\n\r\n";
  for (const char byte : request) {
    c.send(std::string(1, byte));
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  const auto answer = c.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "{\"a\":[1,2,3]}");
  c.get("/health");
  EXPECT_EQ(c.receive().status, 200);
}

TEST_F(HttpServerTest, AChunkedBodyOfManyMebibytesArrivesWhole) {
  start();
  auto c = client();
  c.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  std::string sent;
  for (int i = 0; i < 300; ++i) {
    const std::string piece(static_cast<std::size_t>(1 + i * 97), static_cast<char>('a' + i % 26));
    char size[16];
    std::snprintf(size, sizeof size, "%zX\r\n", piece.size());
    c.send(size + piece + "\r\n");
    sent += piece;
  }
  c.send("0\r\n\r\n");
  EXPECT_EQ(c.receive().body, sent);
}

TEST_F(HttpServerTest, AStreamComesInChunksAndTheConnectionIsKept) {
  start();
  auto c = client();
  for (int i = 0; i < 3; ++i) {
    c.get("/stream");
    const auto answer = c.receive();
    EXPECT_TRUE(answer.is_complete);
    EXPECT_EQ(answer.headers.at("content-type"), "text/event-stream");
    EXPECT_EQ(answer.headers.at("cache-control"), "no-cache");
    EXPECT_EQ(answer.body, "data: one piece\n\ndata: one piece\n\ndata: one piece\n\n");
    EXPECT_EQ(answer.num_chunks, 3U);  // what is written together is one chunk
  }
  EXPECT_EQ(live_, 0);
}

TEST_F(HttpServerTest, HeadIsAsGetWithoutTheBody) {
  start();
  auto c = client();
  c.send("HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto answer = c.receive(true);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("content-length"), "2");
  c.send("HEAD /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(c.receive(true).headers.at("transfer-encoding"), "chunked");
  c.send("HEAD /nowhere HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(c.receive(true).status, 404);
  c.get("/health");
  EXPECT_EQ(c.receive().body, "ok");
}

TEST_F(HttpServerTest, AnOldClientGetsItsStreamUpToTheEndOfTheConnection) {
  start();
  auto c = client();
  c.send("GET /stream HTTP/1.0\r\n\r\n");
  const auto answer = c.receive();
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_FALSE(answer.headers.contains("transfer-encoding"));
  EXPECT_EQ(answer.body, "data: one piece\n\ndata: one piece\n\ndata: one piece\n\n");

  auto kept = client();
  kept.send("GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(kept.receive().headers.at("connection"), "keep-alive");
  kept.send("GET /health HTTP/1.0\r\n\r\n");
  EXPECT_EQ(kept.receive().headers.at("connection"), "close");
  EXPECT_TRUE(kept.at_end());
}

TEST_F(HttpServerTest, AConnectionIsClosedWhereTheClientSaysSo) {
  start();
  auto c = client();
  c.get("/health", "Connection: close\r\n");
  EXPECT_EQ(c.receive().headers.at("connection"), "close");
  EXPECT_TRUE(c.at_end());
  c.close();
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(HttpServerTest, ALongAnswerDoesNotHoldUpOtherClients) {
  start();
  auto slow = client(4096);
  slow.get("/big");
  for (int i = 0; i < 20; ++i) {
    auto c = client();
    c.get("/health");
    EXPECT_EQ(c.receive().status, 200);
  }
  const auto answer = slow.receive();
  EXPECT_TRUE(answer.is_complete);
  EXPECT_EQ(answer.body.size(), std::size_t{8} << 20);
}

TEST_F(HttpServerTest, ABodyIsAskedForWhereTheClientWaitsForThat) {
  start();
  auto c = client();
  c.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
      "Expect: 100-continue\r\n\r\n");
  EXPECT_EQ(c.receive().status, 100);
  c.send("{}");
  const auto answer = c.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "{}");
  EXPECT_EQ(ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
                "Expect: miracles\r\n\r\n")
                .status,
            417);
}

TEST_F(HttpServerTest, TheRequestIdIsTheClientsWhereItIsUsable) {
  start();
  auto c = client();
  c.get("/health", "X-Request-Id: mine-1\r\n");
  EXPECT_EQ(c.receive().headers.at("x-request-id"), "mine-1");
  c.get("/health");
  const auto first = c.receive().headers.at("x-request-id");
  c.get("/health", "X-Request-Id: " + std::string(129, 'a') + "\r\n");
  const auto second = c.receive().headers.at("x-request-id");
  c.get("/nowhere", "X-Request-Id: two words\r\n");
  const auto third = c.receive().headers.at("x-request-id");
  EXPECT_EQ(first.size(), 36U);
  EXPECT_EQ(second.size(), 36U);
  EXPECT_NE(first, second);
  EXPECT_NE(second, third);
}

TEST_F(HttpServerTest, PathsAndQueriesAreDecoded) {
  start();
  auto c = client();
  c.get("/v1/models/org/a%20b%2Fc?x=1&q=%C3%A9+%26&q=2");
  EXPECT_EQ(c.receive().body, "org/a b/c?\xc3\xa9 &#");
  c.get("http://example.org/v1/mod%65ls/m?q");
  EXPECT_EQ(c.receive().body, "m?#");
  for (const auto* bad : {"/v1/models/%", "/v1/models/%4", "/v1/models/%zz", "/v1/models/a%00b", "/v1/models/a%0d%0ab",
                          "/v1/models/..", "/v1/models/%2e%2E/x", "/v1/models/a?q=%f", "*", "health", "/health#x"}) {
    auto broken = client();
    broken.get(bad);
    EXPECT_EQ(broken.receive().status, 400) << bad;
  }
}

TEST_F(HttpServerTest, AHandlerThatFailsOrForgetsIsA500ForItsClientAlone) {
  start();
  auto c = client();
  for (const auto* path : {"/throw", "/throw_late", "/drop"}) {
    c.get(path);
    EXPECT_EQ(c.receive().status, 500) << path;
    c.get("/health");
    EXPECT_EQ(c.receive().status, 200);
  }
  auto streaming = client();
  streaming.get("/throw_in_stream");
  EXPECT_TRUE(streaming.at_end());  // cut in the middle: no good end can be told from it
  EXPECT_TRUE(eventually([&] { return live_ == 0; }));
}

}  // namespace
}  // namespace pagoda::http
