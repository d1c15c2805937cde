// Clients that do nothing: give no key, ask for nothing, read nothing.

#include "tests/io/json_lines/server_fixture.hpp"

namespace pagoda::json_lines {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

class LineDeadlines : public ServerTest {
 protected:
  void ask_for_keys() {
    serving::KeySet keys;
    EXPECT_TRUE(keys.add(serving::digest_of("alice-key"), {.name = "alice"}));
    config_.keys->replace(keys);
  }
  bool is_gone(int others = 0) {
    return eventually([&] { return server_->num_connections() == static_cast<std::size_t>(others); });
  }

  ServerConfig config_;
};

TEST_F(LineDeadlines, WhoGivesNoKeyInTimeIsToldSoAndClosedWhateverElseIsSent) {
  ask_for_keys();
  config_.auth_timeout_ms = 300;
  start(config_);
  auto silent = client();
  auto busy = client();
  const auto begun = Clock::now();
  std::string last;
  while (busy.send({{"op", "ping"}})) {
    const auto event = busy.receive();
    if (event.is_null()) break;
    EXPECT_EQ(event["error"]["code"], "unauthorized");
    last = event["error"]["message"];
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_TRUE(last.starts_with("no key was sent for 300 ms")) << last;
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(5));
  EXPECT_EQ(silent.receive()["error"]["code"], "unauthorized");
  EXPECT_TRUE(silent.at_end());
  silent.close();
  busy.close();
  EXPECT_TRUE(is_gone());
}

TEST_F(LineDeadlines, WhoHasGivenAKeyHasTheTimeOfAnIdleConnection) {
  ask_for_keys();
  config_.auth_timeout_ms = 2000;
  start(config_);
  auto c = client();
  c.send({{"op", "auth"}, {"key", "alice-key"}});
  EXPECT_EQ(c.receive()["event"], "ok");
  std::this_thread::sleep_for(milliseconds(2500));
  c.send({{"op", "ping"}});
  EXPECT_EQ(c.receive()["event"], "pong");
}

TEST_F(LineDeadlines, WhoseKeyIsTakenBackIsClosedAsOneThatHasNone) {
  ask_for_keys();
  config_.auth_timeout_ms = 500;
  config_.idle_timeout_ms = 0;
  start(config_);
  auto c = client();
  c.send({{"op", "auth"}, {"key", "alice-key"}});
  EXPECT_EQ(c.receive()["event"], "ok");
  serving::KeySet others;
  EXPECT_TRUE(others.add(serving::digest_of("bob-key"), {.name = "bob"}));
  config_.keys->replace(others);
  std::string last;
  while (c.send({{"op", "ping"}})) {
    const auto event = c.receive();
    if (event.is_null()) break;
    EXPECT_EQ(event["error"]["code"], "unauthorized");
    last = event["error"]["message"];
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_TRUE(last.starts_with("no key was sent for 500 ms")) << last;
}

TEST_F(LineDeadlines, AConnectionThatAsksForNothingIsToldSoAndClosed) {
  config_.idle_timeout_ms = 1500;
  config_.auth_timeout_ms = 1;  // of no weight where there are no keys
  start(config_);
  auto fresh = client();
  auto used = client();
  used.send(generate("a", "p"));
  EXPECT_EQ(used.receive_until_end("a").back()["event"], "done");
  auto slow = client();
  std::thread trickle([&] {  // a line that never ends is no line
    for (int i = 0; i < 500 && slow.send_raw(" "); ++i) std::this_thread::sleep_for(milliseconds(10));
  });
  for (auto* c : {&fresh, &used, &slow}) {
    const auto answer = c->receive();
    EXPECT_EQ(answer["error"]["code"], "timeout") << answer;
    EXPECT_TRUE(answer["id"].is_null());
    EXPECT_TRUE(c->at_end());
  }
  trickle.join();
  for (auto* c : {&fresh, &used, &slow}) c->close();
  EXPECT_TRUE(is_gone());
}

TEST_F(LineDeadlines, EachLineBringsANewTimeAndAnAnswerHasNone) {
  config_.idle_timeout_ms = 2500;
  config_.send_timeout_ms = 100;
  start(config_);
  auto c = client();
  auto waiting = client();
  waiting.send(generate("a", "hold"));
  EXPECT_EQ(waiting.receive()["event"], "delta");
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(milliseconds(400));
    c.send({{"op", "ping"}});
    EXPECT_EQ(c.receive()["event"], "pong");
  }
  waiting.send({{"op", "cancel"}, {"id", "a"}});
  EXPECT_EQ(waiting.receive()["event"], "done");
  EXPECT_EQ(waiting.receive()["error"]["code"], "timeout");
}

TEST_F(LineDeadlines, AnIdleConnectionIsKeptForEverWhereThatIsAsked) {
  config_.idle_timeout_ms = 0;
  start(config_);
  auto c = client();
  std::this_thread::sleep_for(milliseconds(200));
  c.send({{"op", "ping"}});
  EXPECT_EQ(c.receive()["event"], "pong");
}

TEST_F(LineDeadlines, WhoReadsNothingOfWhatWaitsIsClosed) {
  config_.send_timeout_ms = 300;
  config_.coalesce_bytes = 1 << 29;
  config_.max_buffered_bytes = 1 << 30;
  start(config_);
  auto asks = client(4096);
  asks.send(generate("a", "p", 300'000));
  auto pings = client(4096);
  std::thread sender([&] {
    std::string lines;
    for (int i = 0; i < 1000; ++i) lines += "{\"op\":\"ping\"}\n";
    for (int i = 0; i < 1000 && pings.send_raw(lines); ++i) continue;
  });
  EXPECT_TRUE(eventually([&] { return counts_->submitted == 1; }));
  EXPECT_TRUE(is_gone());
  EXPECT_TRUE(eventually([&] { return counts_->live == 0; }));
  sender.join();
}

TEST_F(LineDeadlines, ClosedConnectionsMakeRoomForOthers) {
  config_.idle_timeout_ms = 200;
  config_.close_grace_ms = 200;
  config_.max_connections = 4;
  start(config_);
  std::vector<TestClient> silent;
  for (int i = 0; i < 4; ++i) silent.push_back(client());
  EXPECT_TRUE(eventually([&] {
    auto c = client();
    c.send({{"op", "ping"}});
    const auto event = c.receive();
    return !event.is_null() && event["event"] == "pong";
  }));
}

}  // namespace
}  // namespace pagoda::json_lines
