// Keys with names and limits.

#include "tests/io/json_lines/server_fixture.hpp"

namespace pagoda::json_lines {
namespace {

using nlohmann::json;

class LineTenants : public ServerTest {
 protected:
  void start_with(const serving::TenantLimits& limits) {
    serving::KeySet keys;
    EXPECT_TRUE(keys.add(serving::digest_of("alice-key"), {.name = "alice", .limits = limits}));
    EXPECT_TRUE(keys.add(serving::digest_of("bob-key"), {.name = "bob"}));
    config_.keys->replace(keys);
    start(config_);
  }
  TestClient of(const std::string& key) {
    auto c = client();
    c.send({{"op", "auth"}, {"id", "auth"}, {"key", key}});
    EXPECT_EQ(c.receive()["event"], "ok");
    return c;
  }

  ServerConfig config_;
};

TEST_F(LineTenants, ARefusalSaysWhenToTryAgainAndTheConnectionGoesOn) {
  start_with({.requests_per_minute = 1});
  auto alice = of("alice-key");
  alice.send(generate("a", "p"));
  EXPECT_EQ(alice.receive_until_end("a").back()["event"], "done");
  alice.send(generate("b", "p"));
  const auto refused = alice.receive_until_end("b").back();
  EXPECT_EQ(refused["error"]["code"], "rate_limited");
  EXPECT_GT(refused["error"]["retry_after_ms"], 50'000);
  alice.send({{"op", "ping"}, {"id", "p"}});
  EXPECT_EQ(alice.receive()["event"], "pong");
  auto bob = of("bob-key");
  bob.send(generate("a", "p"));
  EXPECT_EQ(bob.receive_until_end("a").back()["event"], "done");
}

TEST_F(LineTenants, TokensCountAndWhoWantsNoDeltasGetsNone) {
  start_with({.tokens_per_minute = 60});
  auto alice = of("alice-key");
  auto request = generate("a", "p", 100);
  request["stream"] = false;
  alice.send(request);
  const auto events = alice.receive_until_end("a");
  EXPECT_EQ(events.size(), 1U);
  EXPECT_EQ(events.back()["event"], "done");
  alice.send(generate("b", "p"));
  EXPECT_EQ(alice.receive_until_end("b").back()["error"]["code"], "rate_limited");
}

TEST_F(LineTenants, APlaceIsFreeAgainHoweverItsRequestEnds) {
  start_with({.max_concurrent_requests = 1});
  auto alice = of("alice-key");
  alice.send(generate("a", "hold"));
  EXPECT_EQ(alice.receive()["event"], "delta");
  alice.send(generate("b", "p"));
  EXPECT_EQ(alice.receive_until_end("b").back()["error"]["code"], "rate_limited");
  alice.send({{"op", "cancel"}, {"id", "a"}});
  EXPECT_EQ(alice.receive_until_end("a").back()["event"], "done");
  for (const auto* prompt : {"fail", "refuse", "p"}) {
    alice.send(generate("c", prompt));
    EXPECT_NE(alice.receive_until_end("c").back()["error"]["code"], "rate_limited") << prompt;
  }
}

TEST_F(LineTenants, AKeyThatIsKnownNoMoreIsAskedForAgain) {
  start_with({});
  auto alice = of("alice-key");
  auto bob = of("bob-key");
  serving::KeySet keys;
  EXPECT_TRUE(keys.add(serving::digest_of("bob-key"), {.name = "bob"}));
  config_.keys->replace(keys);
  alice.send(generate("a", "p"));
  EXPECT_EQ(alice.receive_until_end("a").back()["error"]["code"], "unauthorized");
  bob.send(generate("a", "p"));
  EXPECT_EQ(bob.receive_until_end("a").back()["event"], "done") << "whose key is known still goes on";
}

TEST_F(LineTenants, ATimeoutIsAFieldOfARequest) {
  start();
  auto c = client();
  auto request = generate("a", "p");
  request["timeout_ms"] = 5000;
  c.send(request);
  EXPECT_EQ(c.receive_until_end("a").back()["event"], "done");
  request["timeout_ms"] = "5000";
  c.send(request);
  EXPECT_EQ(c.receive()["error"]["param"], "timeout_ms");
}

}  // namespace
}  // namespace pagoda::json_lines
