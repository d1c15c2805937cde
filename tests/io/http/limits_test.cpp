// Time and room: slow clients, many clients, what an idle connection costs, and the end of the server.

#include <fstream>
#include <future>

#include "tests/io/http/server_fixture.hpp"

namespace pagoda::http {
namespace {

using Clock = std::chrono::steady_clock;

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t size = 0;
  std::size_t resident = 0;
  file >> size >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_F(HttpServerTest, ASlowHeadIs408) {
  ServerConfig config;
  config.http_header_timeout_ms = 150;
  start(config);
  auto c = client();
  const auto begun = Clock::now();
  for (const char byte : std::string_view("GET /health HTTP/1.1\r\nHost: a.long.name")) {
    if (!c.send(std::string(1, byte))) break;  // each byte in time, the head as a whole not
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(c.receive().status, 408);
  EXPECT_TRUE(c.at_end());
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(3));
}

TEST_F(HttpServerTest, ASlowBodyIs408) {
  ServerConfig config;
  config.http_body_timeout_ms = 150;
  start(config);
  auto c = client();
  c.send("POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{");
  const auto answer = c.receive();
  EXPECT_EQ(answer.status, 408);
  EXPECT_EQ(nlohmann::json::parse(answer.body)["type"], "error");
  EXPECT_TRUE(c.at_end());
}

TEST_F(HttpServerTest, AnAnswerMayTakeLongerThanAnyRequest) {
  ServerConfig config;
  config.http_header_timeout_ms = config.http_body_timeout_ms = config.http_idle_timeout_ms = 50;
  config.http_send_timeout_ms = 50;
  start(config);
  auto c = client();
  c.post("/hold", "{}");
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  release();
  EXPECT_EQ(c.receive().body, "at last");
  EXPECT_TRUE(c.at_end());  // idle for too long
}

TEST_F(HttpServerTest, AnIdleConnectionIsClosedWithoutAWord) {
  ServerConfig config;
  config.http_idle_timeout_ms = 100;
  start(config);
  auto fresh = client();
  EXPECT_EQ(fresh.receive().status, 0);
  EXPECT_TRUE(fresh.at_end());
  auto used = client();
  used.get("/health");
  EXPECT_EQ(used.receive().status, 200);
  EXPECT_EQ(used.receive().status, 0);
  EXPECT_TRUE(used.at_end());
}

class TotalOfBuffers : public HttpServerTest {
 protected:
  static constexpr std::int64_t kMost = 1 << 20;
  static constexpr std::string_view kHead = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n";

  TotalOfBuffers() { telemetry_->max_buffered_bytes = kMost; }

  bool waits(std::int64_t least, std::int64_t most) {
    return eventually([=, this] {
      const auto now = telemetry_->http.buffered_bytes.load();
      return least <= now && now <= most;
    });
  }
};

TEST_F(TotalOfBuffers, ABodyForWhichOthersLeaveNoRoomIsRefusedAndTheirsComesToItsEnd) {
  start();
  auto first = client();
  first.send(std::string(kHead) + "Content-Length: 900000\r\n\r\n" + std::string(800'000, ' '));
  ASSERT_TRUE(waits(800'000, kMost));
  auto second = client();
  second.send(std::string(kHead) + "Content-Length: 300000\r\n\r\n");
  const auto refused = second.receive();
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_EQ(nlohmann::json::parse(refused.body)["error"]["code"], "queue_full");
  auto chunked = client();
  chunked.send(std::string(kHead) + "Transfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "10000\r\n" + std::string(0x10000, ' ') + "\r\n";
  for (int i = 0; i < 10 && chunked.send(chunk); ++i) continue;
  EXPECT_EQ(chunked.receive().status, 503);
  auto small = client();
  small.post("/echo", "{}");
  EXPECT_EQ(small.receive().status, 200);
  first.send(std::string(100'000, ' '));
  EXPECT_EQ(first.receive().body.size(), 900'000U);
  EXPECT_EQ(telemetry_->http.refused_for_room, 2);
  for (auto* c : {&first, &second, &chunked, &small}) c->close();
  EXPECT_TRUE(waits(0, 0));
  EXPECT_EQ(ask(std::string(kHead) + "Content-Length: 300000\r\n\r\n" + std::string(300'000, ' ')).status, 200);
}

TEST_F(TotalOfBuffers, WhatTheOtherServerHasCountsTooAndAnAdminIsLetIn) {
  ServerConfig config;
  config.keys = *serving::make_key_ring({}, {"root"});
  start(config);
  telemetry_->json_lines.buffered_bytes = kMost;
  EXPECT_EQ(ask(std::string(kHead) + "Content-Length: 2\r\n\r\n{}").status, 503);
  EXPECT_EQ(ask(std::string(kHead) + "Authorization: Bearer root\r\nContent-Length: 2\r\n\r\n{}").status, 200);
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);
  telemetry_->json_lines.buffered_bytes = 0;
  EXPECT_EQ(ask(std::string(kHead) + "Content-Length: 2\r\n\r\n{}").status, 200);
}

TEST_F(HttpServerTest, OneConnectionTooManyIsToldSoInItsOwnShape) {
  ServerConfig config;
  config.http_max_connections = 2;
  start(config);
  auto a = client();
  auto b = client();
  a.get("/health");
  b.get("/health");
  EXPECT_EQ(a.receive().status + b.receive().status, 400);
  auto c = client();
  c.post("/v1/messages", "{}");
  const auto answer = c.receive();
  EXPECT_EQ(answer.status, 503);
  EXPECT_EQ(answer.headers.at("retry-after"), "1");
  EXPECT_EQ(nlohmann::json::parse(answer.body)["error"]["type"], "overloaded_error");
  EXPECT_TRUE(c.at_end());
  c.close();
  a.close();
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 1; }));
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").status, 200);

  std::vector<TestClient> crowd;  // beyond those that are told, the rest is closed
  for (int i = 0; i < 100; ++i) crowd.push_back(client());
  EXPECT_TRUE(crowd.back().at_end());
  EXPECT_LE(server_->num_connections(), 66U);
}

TEST_F(HttpServerTest, AServerThatIsFullCanStillBeWatchedAndAdministered) {
  ServerConfig config;
  config.http_max_connections = 1;
  serving::KeySet keys;
  EXPECT_TRUE(keys.add(serving::digest_of("user-key"), {.name = "user"}));
  EXPECT_TRUE(keys.add(serving::digest_of("admin-key"), {.name = "root", .role = serving::KeyRole::admin}));
  config.keys->replace(keys);
  start(config);
  auto only = client();
  only.get("/hold", "x-api-key: user-key\r\n");
  ASSERT_TRUE(eventually([&] { return live_ == 1; }));
  const auto answered = [&](bool posts, const char* path, const char* key) {
    auto c = client();
    const auto header = *key == '\0' ? std::string() : "x-api-key: " + std::string(key) + "\r\n";
    posts ? c.post(path, "{}", header) : c.get(path, header);
    const auto answer = c.receive();
    EXPECT_EQ(answer.headers.at("connection"), "close") << path;
    EXPECT_TRUE(c.at_end());
    return answer.status;
  };
  EXPECT_EQ(answered(false, "/health", ""), 200);
  EXPECT_EQ(answered(true, "/admin/drain", "admin-key"), 200);
  EXPECT_EQ(answered(false, "/v1/models/a", "admin-key"), 200);
  EXPECT_EQ(answered(false, "/v1/models/a", "user-key"), 503);
  EXPECT_EQ(answered(true, "/admin/drain", "user-key"), 503);
  EXPECT_EQ(answered(true, "/echo", ""), 503);
}

TEST_F(HttpServerTest, WhoeverIsOneTooManyAndAsksForNothingGoesSoon) {
  ServerConfig config;
  config.http_max_connections = 1;
  config.http_header_timeout_ms = 100;
  start(config);
  auto only = client();
  auto silent = client();
  EXPECT_TRUE(silent.at_end());
  only.get("/health");
  EXPECT_EQ(only.receive().status, 200);
}

TEST_F(HttpServerTest, AThousandIdleConnectionsCostLittle) {
  ServerConfig config;
  config.http_max_connections = 2000;
  start(config);
  { auto c = client(); }
  const std::string body = "\"" + std::string(20000, 'b') + "\"";
  const auto before = resident_bytes();
  std::vector<TestClient> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(client());
    idle.back().post("/echo", body);  // a used connection must not keep what it used
    EXPECT_EQ(idle.back().receive().body.size(), body.size());
  }
  EXPECT_EQ(server_->num_connections(), 1000U);
  const auto cost = resident_bytes() - before;
  RecordProperty("bytes_per_idle_connection", static_cast<int>(cost / 1000));
  std::printf("1000 idle connections, their clients included: %zu KiB\n", cost >> 10);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(cost, std::size_t{20} << 20);
#endif
}

TEST_F(HttpServerTest, AShutdownFinishesStreamsAndClosesIdleConnections) {
  start();
  auto idle = client();
  idle.get("/health");
  EXPECT_EQ(idle.receive().status, 200);
  auto streaming = client();
  streaming.get("/stream");
  EXPECT_EQ(streaming.receive_head().status, 200);
  auto sending = client();
  sending.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{");
  auto held = client();
  held.get("/hold");
  ASSERT_TRUE(eventually([&] { return is_held_.load(); }));
  server_->begin_drain();
  std::thread end([&] { server_->shutdown(std::chrono::seconds(20)); });
  EXPECT_TRUE(idle.at_end());
  EXPECT_EQ(sending.receive().status, 503);
  sending.close();
  release();
  const auto answer = held.receive();
  EXPECT_EQ(answer.body, "at last");
  EXPECT_EQ(answer.headers.at("connection"), "close");
  held.close();
  std::string last = "?";
  while (const auto chunk = streaming.receive_chunk()) {
    last = *chunk;
    if (last.empty()) break;
  }
  EXPECT_EQ(last, "");
  streaming.close();
  end.join();
  EXPECT_EQ(live_, 0);
  EXPECT_FALSE(client().connected());
}

TEST_F(HttpServerTest, WhatIsNotFinishedInTimeIsCutOff) {
  start();
  auto streaming = client();
  streaming.get("/endless");
  EXPECT_EQ(streaming.receive_head().status, 200);
  auto held = client();
  held.get("/hold");
  ASSERT_TRUE(eventually([&] { return live_ == 2; }));
  const auto begun = Clock::now();
  server_->shutdown(std::chrono::milliseconds(200));
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(3));
  EXPECT_EQ(live_, 0);
  EXPECT_TRUE(streaming.at_end());
  EXPECT_TRUE(held.at_end());
}

TEST_F(HttpServerTest, ADrainingServerAnswersOldAndNewConnectionsAndSaysThatItCloses) {
  start();
  auto c = client();
  c.get("/health");
  EXPECT_FALSE(c.receive().headers.contains("connection"));
  server_->begin_drain();
  auto late = client();
  for (auto* asking : {&c, &late}) {
    asking->get("/health");
    const auto last = asking->receive();
    EXPECT_EQ(last.body, "ok");
    EXPECT_EQ(last.headers.at("connection"), "close");
    EXPECT_TRUE(asking->at_end());
  }
}

TEST_F(HttpServerTest, AnExchangeMayOutliveItsServer) {
  start();
  auto c = client();
  c.get("/hold");
  ASSERT_TRUE(eventually([&] { return live_ == 1; }));
  std::promise<std::shared_ptr<Exchange>> kept;
  boost::asio::post(server_->io(), [&] { kept.set_value(held_); });
  const auto exchange = kept.get_future().get();
  server_->shutdown(std::chrono::milliseconds(0));
  server_.reset();
  EXPECT_FALSE(exchange->is_open());
  exchange->respond(200, "text/plain", "for nobody");
}

}  // namespace
}  // namespace pagoda::http
