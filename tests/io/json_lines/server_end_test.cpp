// How connections end: by the client, by the server, by a client that breaks the rules.

#include <sys/socket.h>

#include "io/json_lines/server.hpp"
#include "tests/io/json_lines/server_fixture.hpp"

namespace pagoda::json_lines {
namespace {

using nlohmann::json;

TEST_F(ServerTest, a_client_that_goes_leaves_nothing_live) {
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

TEST_F(ServerTest, a_client_that_ends_its_input_gets_what_it_asked_for_and_then_the_end) {
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

TEST_F(ServerTest, a_client_that_closes_without_streaming_is_noticed_at_once) {
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

TEST_F(ServerTest, a_client_that_ends_its_input_and_closes_later_is_noticed_soon) {
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

TEST_F(ServerTest, what_a_client_that_ended_its_input_reads_is_json_after_a_long_silence_too) {
  start();
  auto c = client();
  auto request = generate("a", "hold");
  request["stream"] = false;
  c.send(request);
  c.end_input();
  EXPECT_TRUE(eventually([&] { return counts_->live == 1; }));
  EXPECT_FALSE(c.receive_line(std::chrono::milliseconds(2500)));
  EXPECT_TRUE(c.timed_out);
  caf::anon_send_exit(router_, caf::exit_reason::user_shutdown);
  const auto event = c.receive();
  EXPECT_EQ(event["id"], "a");
  EXPECT_EQ(event["event"], "error");
}

TEST_F(ServerTest, an_endless_line_gets_an_error_and_closes_the_connection) {
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

TEST_F(ServerTest, a_line_of_exactly_the_limit_is_taken_and_one_byte_more_is_not) {
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

TEST_F(ServerTest, a_client_that_never_reads_is_cut_off_and_its_requests_are_aborted) {
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

TEST_F(ServerTest, a_client_that_reads_late_gets_every_token_in_fewer_lines) {
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

TEST_F(ServerTest, a_client_that_asks_without_reading_the_answers_is_held_back) {
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

TEST_F(ServerTest, connections_beyond_the_limit_are_told_so_and_closed) {
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

TEST_F(ServerTest, no_connection_is_accepted_after_stop_accepting_and_the_others_go_on) {
  start();
  auto c = client();
  c.send({{"op", "ping"}});
  EXPECT_EQ(c.receive()["event"], "pong");
  server_->stop_accepting();
  EXPECT_TRUE(eventually([&] {
    TestClient late = client();
    return !late.connected();
  }));
  c.send(generate("a", "p"));
  EXPECT_EQ(c.receive_until_end("a").back()["event"], "done");
}

TEST_F(ServerTest, a_drain_delivers_the_last_events_and_then_ends_the_connections) {
  start();
  auto c = client();
  auto idle = client();
  for (const char* id : {"a", "b", "c"}) c.send(generate(id, "hold"));
  EXPECT_TRUE(eventually([&] { return counts_->live == 3; }));
  server_->stop_accepting();
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

TEST_F(ServerTest, a_shutdown_without_grace_ends_everything_at_once) {
  start();
  auto c = client();
  c.send(generate("a", "hold"));
  EXPECT_EQ(c.receive()["event"], "delta");
  server_.reset();
  EXPECT_TRUE(c.at_end());
  EXPECT_TRUE(eventually([&] { return counts_->live == 0; }));
}

TEST_F(ServerTest, an_engine_that_ends_ends_the_live_requests_with_an_error) {
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
