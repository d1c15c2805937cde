// A client that goes is seen at once in every state, and one that reads too slowly is cut off.

#include "tests/io/http/server_fixture.hpp"

namespace pagoda::http {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kAtOnce = std::chrono::milliseconds(500);  // on a machine that has other work too

/// How a client may go.
enum class Leaving { close, reset, end_of_input };
constexpr Leaving kAllWays[] = {Leaving::close, Leaving::reset, Leaving::end_of_input};

void leave(TestClient& c, Leaving way) {
  switch (way) {
    case Leaving::close:
      return c.close();
    case Leaving::reset:
      return c.reset();
    case Leaving::end_of_input:
      return c.end_input();
  }
}

TEST_F(HttpServerTest, AClientThatGoesBeforeItsAnswerIsSeenAtOnce) {
  start();
  for (const auto way : kAllWays) {
    for (const bool posts : {false, true}) {
      auto c = client();
      if (posts) {
        c.post("/hold", "{}");
      } else {
        c.get("/hold");
      }
      ASSERT_TRUE(eventually([&] { return live_ == 1; }));
      const auto left = Clock::now();
      leave(c, way);
      ASSERT_TRUE(eventually([&] { return live_ == 0 && server_->num_connections() == 0; }));
      EXPECT_LT(Clock::now() - left, kAtOnce);
    }
  }
}

TEST_F(HttpServerTest, AClientThatGoesBehindAFloodIsSeenSoon) {
  start();
  for (const auto way : kAllWays) {
    for (const bool streams : {false, true}) {
      auto c = client();
      c.get(streams ? "/endless" : "/hold");
      ASSERT_TRUE(eventually([&] { return live_ == 1; }));
      ASSERT_TRUE(c.send(std::string(300 << 10, 'x')));  // pipelined, more than is thrown away at once
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      EXPECT_EQ(live_, 1);
      const auto left = Clock::now();
      leave(c, way);
      ASSERT_TRUE(eventually([&] { return live_ == 0 && server_->num_connections() == 0; }));
      EXPECT_LT(Clock::now() - left, 6 * kAtOnce);
    }
  }
}

TEST_F(HttpServerTest, AClientThatGoesInTheMiddleOfAStreamIsSeenAtOnce) {
  start();
  for (const auto way : kAllWays) {
    auto c = client();
    c.get("/endless");
    EXPECT_EQ(c.receive_head().status, 200);
    EXPECT_TRUE(c.receive_chunk().has_value());
    const auto left = Clock::now();
    leave(c, way);
    ASSERT_TRUE(eventually([&] { return live_ == 0 && server_->num_connections() == 0; }));
    EXPECT_LT(Clock::now() - left, kAtOnce);
  }
}

TEST_F(HttpServerTest, AClientThatGoesWhileItSendsIsSeenAtOnce) {
  start();
  for (const auto way : kAllWays) {
    for (const auto* sent : {"", "GET /he",
                             "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                             "Content-Length: 100\r\n\r\n{\"half"}) {
      auto c = client();
      c.send(sent);
      ASSERT_TRUE(eventually([&] { return server_->num_connections() == 1; }));
      leave(c, way);
      if (way == Leaving::end_of_input && *sent != '\0') {
        EXPECT_EQ(c.receive().status, 400);
      }
      ASSERT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
    }
  }
}

TEST_F(HttpServerTest, AClientThatGoesWithAnAnswerHalfReadLeavesNothing) {
  start();
  for (int i = 0; i < 5; ++i) {
    auto c = client(4096);
    c.get("/big");
    EXPECT_EQ(c.receive_head().status, 200);
  }
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(HttpServerTest, AClientThatHasOnlyEndedItsInputGetsWhatIsAnsweredAtOnce) {
  start();
  auto c = client();
  c.get("/big");
  c.end_input();
  EXPECT_EQ(c.receive().body.size(), std::size_t{8} << 20);
  EXPECT_TRUE(c.at_end());
}

TEST_F(HttpServerTest, AnEmptyLineTooManyIsNoRequest) {
  start();
  auto c = client();
  c.post("/hold", "{}");
  ASSERT_TRUE(eventually([&] { return live_ == 1; }));
  c.send("\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  release();
  EXPECT_EQ(c.receive().body, "at last");
  c.get("/health");
  EXPECT_EQ(c.receive().status, 200);
}

TEST_F(HttpServerTest, AStreamThatIsNotReadIsCutOff) {
  ServerConfig config;
  config.http_max_buffered_bytes = 1 << 20;
  start(config);
  auto c = client(4096);
  c.get("/flood");
  EXPECT_TRUE(eventually([&] { return live_ == 0 && server_->num_connections() == 0 && most_unsent_ > 0; }));
  EXPECT_LT(most_unsent_, std::size_t{3} << 19);  // one write above the limit at the most
  EXPECT_TRUE(c.at_end());
}

TEST_F(HttpServerTest, AnAnswerThatNobodyReadsIsNotKeptForEver) {
  ServerConfig config;
  config.http_send_timeout_ms = 100;
  start(config);
  auto c = client(4096);
  c.get("/big");
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 1; }));
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(HttpServerTest, EveryPieceThatWasHeldBackIsWrittenWhenTheSocketIsFree) {
  // A writer that keeps to on_drained never has more than one piece unsent.
  Routes routes;
  std::size_t most = 0;
  routes.add(Verb::get, "/polite", Access::key, [&](const std::shared_ptr<Exchange>& exchange, Request) {
    exchange->begin_stream(200, "text/plain");
    const auto left = std::make_shared<int>(64);
    const auto piece = std::make_shared<std::function<void()>>();
    *piece = [&most, left, raw = exchange.get(), keep = exchange]() mutable {
      if (!keep) return;
      if (--*left < 0) {
        const auto last = std::move(keep);
        return last->end_stream();
      }
      raw->write(std::string(256 << 10, 'p'));
      most = std::max(most, raw->unsent_bytes());
    };
    exchange->on_drained([piece] { (*piece)(); });
    (*piece)();
  });
  ServerConfig config;
  config.http = "127.0.0.1:0";
  auto server = Server::start(config, std::move(routes));
  ASSERT_TRUE(server.has_value());
  TestClient c((*server)->port(), 4096);
  c.get("/polite");
  EXPECT_EQ(c.receive().body.size(), std::size_t{16} << 20);
  (*server)->shutdown(std::chrono::milliseconds(0));
  EXPECT_LT(most, std::size_t{300} << 10);
}

}  // namespace
}  // namespace pagoda::http
