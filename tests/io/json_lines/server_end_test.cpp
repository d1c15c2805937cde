// How connections end: by the client, by the server, by a client that breaks the rules.

#include <sys/socket.h>

#include "io/json_lines/server.hpp"
#include "tests/io/json_lines/server_fixture.hpp"

namespace pagoda::json_lines {
namespace {

using nlohmann::json;

TEST_F(ServerTest, WhatTheEngineSaidBeforeItsEndIsTold) {
  start();
  auto c = client();
  c.send(generate("a", "hold"));
  EXPECT_EQ(c.receive()["event"], "delta");
  c.send(generate("b", "last words"));
  for (int i = 0; i < 2; ++i) {
    const auto event = c.receive();
    EXPECT_EQ(event["event"], "done") << event;
  }
  c.send(generate("c", "p"));
  EXPECT_EQ(c.receive()["event"], "error");
}

TEST_F(ServerTest, AClientThatGoesLeavesNothingLive) {
  start();
  for (int i = 0; i < 10; ++i) {
    auto c = client();
    c.send(generate("a", "hold"));
    c.send(generate("b", "endless"));
    EXPECT_EQ(c.receive()["event"], "delta");
  }
  EXPECT_TRUE(eventually([&] { return counts_->lost_sinks == 10 && counts_->live == 0; }));
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(ServerTest, AClientThatEndsItsInputGetsWhatItAskedForAndThenTheEnd) {
  start();
  auto c = client();
  c.send(generate("a", "p", 20));
  c.send({{"op", "tokenize"}, {"id", "t"}, {"text", "A"}});
  c.send_raw(R"({"op":"ping","id":"last line without a line end"})");
  c.end_input();
  bool done = false;
  bool tokens = false;
  bool pong = false;
  for (auto event = c.receive(); !event.is_null(); event = c.receive()) {
    done |= event["event"] == "done";
    tokens |= event["event"] == "tokens";
    pong |= event["event"] == "pong";
  }
  EXPECT_FALSE(c.timed_out);
  EXPECT_TRUE(done);
  EXPECT_TRUE(tokens);
  EXPECT_TRUE(pong);
}

TEST_F(ServerTest, AClientThatClosesWithoutStreamingIsNoticedAtOnce) {
  start();
  for (int i = 0; i < 3; ++i) {
    auto c = client();
    auto request = generate("a", "hold");
    request["stream"] = false;
    c.send(request);
    c.send({{"op", "ping"}, {"id", "p"}});
    EXPECT_EQ(c.receive()["event"], "pong");  // everything was read: closing sends a FIN, no reset
    EXPECT_TRUE(eventually([&] { return counts_->live == 1; }));
    const auto closed_at = std::chrono::steady_clock::now();
    c.close();
    EXPECT_TRUE(eventually([&] { return counts_->live == 0; }));
    EXPECT_LT(std::chrono::steady_clock::now() - closed_at, std::chrono::seconds(3));
  }
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
}

TEST_F(ServerTest, AClientThatEndsItsInputAndClosesLaterIsNoticedSoon) {
  start();
  auto c = client();
  auto request = generate("a", "hold");
  request["stream"] = false;
  c.send(request);
  c.end_input();
  EXPECT_TRUE(eventually([&] { return counts_->live == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  EXPECT_EQ(counts_->live, 1);  // it may still read
  const auto closed_at = std::chrono::steady_clock::now();
  c.close();
  EXPECT_TRUE(eventually([&] { return counts_->live == 0; }));
  EXPECT_LT(std::chrono::steady_clock::now() - closed_at, std::chrono::seconds(5));
}

TEST_F(ServerTest, WhatAClientThatEndedItsInputReadsIsJsonAfterALongSilenceToo) {
  start();
  auto c = client();
  auto request = generate("a", "hold");
  request["stream"] = false;
  c.send(request);
  c.end_input();
  EXPECT_TRUE(eventually([&] { return counts_->live == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  caf::anon_send_exit(router_, caf::exit_reason::user_shutdown);
  const auto line = c.receive_line();
  ASSERT_TRUE(line);
  EXPECT_TRUE(line->starts_with("  "));
  const auto event = json::parse(*line);
  EXPECT_EQ(event["id"], "a");
  EXPECT_EQ(event["event"], "error");
}

TEST_F(ServerTest, AnEndlessLineGetsAnErrorAndClosesTheConnection) {
  ServerConfig config;
  config.max_line_bytes = 1000;
  start(config);
  auto c = client();
  c.send(generate("a", "hold"));
  EXPECT_EQ(c.receive()["event"], "delta");
  c.send_raw(R"({"id":")" + std::string(100'000, 'a'));
  bool too_long = false;
  bool ended = false;
  for (auto event = c.receive(); !event.is_null(); event = c.receive()) {
    too_long |= event["event"] == "error" && event["error"]["code"] == "line_too_long";
    ended |= event["event"] == "done" && event["outputs"][0]["finish_reason"] == "abort";
  }
  EXPECT_FALSE(c.timed_out);
  EXPECT_TRUE(too_long);
  EXPECT_TRUE(ended);
  EXPECT_TRUE(eventually([&] { return counts_->live == 0; }));
}

TEST_F(ServerTest, ALineOfExactlyTheLimitIsTakenAndOneByteMoreIsNot) {
  ServerConfig config;
  config.max_line_bytes = 300;
  start(config);
  auto c = client();
  const std::string head = R"({"op":"ping","id":"x")";
  c.send_raw(head + std::string(300 - head.size() - 1, ' ') + "}\n");
  EXPECT_EQ(c.receive()["event"], "pong");
  c.send_raw(head + std::string(300 - head.size(), ' ') + "}\n");
  EXPECT_EQ(c.receive()["error"]["code"], "line_too_long");
  EXPECT_TRUE(c.at_end());
}

TEST_F(ServerTest, AClientThatNeverReadsIsCutOffAndItsRequestsAreAborted) {
  ServerConfig config;
  config.coalesce_bytes = 100'000;
  config.max_buffered_bytes = 2'000'000;
  start(config);
  auto c = client(4096);
  auto other = client();
  c.send(generate("a", "flood"));
  EXPECT_TRUE(eventually([&] { return counts_->submitted == 1; }));
  EXPECT_TRUE(eventually([&] { return counts_->lost_sinks == 1 && counts_->live == 0; }));
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 1; }));
  other.send(generate("b", "p"));
  EXPECT_EQ(other.receive_until_end("b").back()["event"], "done");
}

TEST_F(ServerTest, AClientThatReadsLateGetsEveryTokenInFewerLines) {
  ServerConfig config;
  config.coalesce_bytes = 20'000;
  config.max_buffered_bytes = 1 << 30;
  start(config);
  auto c = client(4096);
  constexpr int kTokens = 100'000;
  c.send(generate("a", "p", kTokens));
  EXPECT_TRUE(eventually([&] { return counts_->submitted == 1 && counts_->live == 0; }));
  const auto events = c.receive_until_end("a");
  ASSERT_FALSE(events.empty());
  std::string text;
  std::size_t tokens = 0;
  for (const auto& event : events) {
    if (event["event"] != "delta") continue;
    text += event["text"].get<std::string>();
    tokens += event["token_ids"].size();
  }
  EXPECT_EQ(events.back()["event"], "done");
  EXPECT_EQ(tokens, static_cast<std::size_t>(kTokens));
  EXPECT_EQ(events.back()["outputs"][0]["text"], text);
  EXPECT_LT(events.size(), static_cast<std::size_t>(kTokens));
}

TEST_F(ServerTest, AClientThatAsksWithoutReadingTheAnswersIsHeldBack) {
  ServerConfig config;
  config.coalesce_bytes = 50'000;
  config.max_buffered_bytes = 200'000;
  start(config);
  auto c = client(4096);
  constexpr int kPings = 100'000;
  std::thread sender([&] {
    for (int i = 0; i < kPings / 100; ++i) {
      std::string lines;
      for (int k = 0; k < 100; ++k) lines += "{\"op\":\"ping\",\"id\":\"" + std::to_string(i * 100 + k) + "\"}\n";
      c.send_raw(lines);
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  for (int i = 0; i < kPings; ++i) {
    const auto event = c.receive();
    ASSERT_FALSE(event.is_null()) << i;
    ASSERT_EQ(event["id"], std::to_string(i));
  }
  sender.join();
}

TEST_F(ServerTest, ConnectionsBeyondTheLimitAreToldSoAndClosed) {
  ServerConfig config;
  config.max_connections = 2;
  start(config);
  {
    auto a = client();
    auto b = client();
    EXPECT_TRUE(eventually([&] { return server_->num_connections() == 2; }));
    auto c = client();
    EXPECT_EQ(c.receive()["error"]["code"], "queue_full");
    EXPECT_TRUE(c.at_end());
    a.send({{"op", "ping"}});
    EXPECT_EQ(a.receive()["event"], "pong");
  }
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
  auto d = client();
  d.send({{"op", "ping"}});
  EXPECT_EQ(d.receive()["event"], "pong");
}

TEST_F(ServerTest, WhoeverComesDuringADrainHearsOfIt) {
  start();
  server_->begin_drain();
  {
    caf::scoped_actor self{system_};
    actors::ask(self, router_, actors::Drain{0}, [](actors::Drained&) {});
  }
  auto late = client();
  late.send(generate("a", "p"));
  const auto refused = late.receive();
  EXPECT_EQ(refused["id"], "a");
  EXPECT_EQ(refused["error"]["code"], "shutting_down");
  late.send({{"op", "ping"}});
  EXPECT_EQ(late.receive()["event"], "pong");
}

TEST_F(ServerTest, ADrainDeliversTheLastEventsAndThenEndsTheConnections) {
  start();
  auto c = client();
  auto idle = client();
  for (const char* id : {"a", "b", "c"}) c.send(generate(id, "hold"));
  EXPECT_TRUE(eventually([&] { return counts_->live == 3; }));
  server_->begin_drain();
  {
    caf::scoped_actor self{system_};
    std::int64_t aborted = 0;
    actors::ask(self, router_, actors::Drain{0}, [&](actors::Drained& drained) { aborted = drained.aborted; });
    EXPECT_EQ(aborted, 3);
  }
  c.send(generate("late", "p"));
  std::thread stopper([&] { server_->shutdown(std::chrono::seconds(5)); });
  int ended = 0;
  for (auto event = c.receive(); !event.is_null(); event = c.receive()) {
    if (event["event"] == "done") ++ended;
    if (event["event"] == "error") {
      EXPECT_EQ(event["error"]["code"], "shutting_down");
    }
  }
  EXPECT_EQ(ended, 3);
  EXPECT_TRUE(idle.at_end());
  c.close();
  idle.close();
  stopper.join();
}

TEST_F(ServerTest, AShutdownWithoutGraceEndsEverythingAtOnce) {
  start();
  auto c = client();
  c.send(generate("a", "hold"));
  EXPECT_EQ(c.receive()["event"], "delta");
  server_.reset();
  EXPECT_TRUE(c.at_end());
  EXPECT_TRUE(eventually([&] { return counts_->live == 0; }));
}

TEST_F(ServerTest, AnEngineThatEndsEndsTheLiveRequestsWithAnError) {
  start();
  auto c = client();
  c.send(generate("a", "hold"));
  EXPECT_EQ(c.receive()["event"], "delta");
  caf::anon_send_exit(router_, caf::exit_reason::user_shutdown);
  const auto error = c.receive();
  EXPECT_EQ(error["id"], "a");
  EXPECT_EQ(error["error"]["code"], "internal");
  c.send(generate("b", "p"));
  EXPECT_EQ(c.receive()["error"]["code"], "internal");
  c.send({{"op", "stats"}, {"id", "s"}});
  EXPECT_EQ(c.receive()["error"]["code"], "internal");
}

}  // namespace
}  // namespace pagoda::json_lines
