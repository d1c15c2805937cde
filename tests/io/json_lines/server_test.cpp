#include "io/json_lines/server.hpp"

#include <map>
#include <set>

#include "tests/io/json_lines/server_fixture.hpp"

namespace pagoda::json_lines {
namespace {

using nlohmann::json;

std::string joined_text(const std::vector<json>& events) {
  std::string text;
  for (const auto& event : events) {
    if (event["event"] == "delta") text += event["text"].get<std::string>();
  }
  return text;
}

TEST_F(ServerTest, StreamsDeltasWhoseTextsAddUpToThatOfDone) {
  start();
  auto c = client();
  c.send(generate("a", "hello", 5));
  const auto events = c.receive_until_end("a");
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(events.back()["event"], "done");
  EXPECT_EQ(joined_text(events), "w0 w1 w2 w3 w4 ");
  EXPECT_EQ(events.back()["outputs"][0]["text"], "w0 w1 w2 w3 w4 ");
}

TEST_F(ServerTest, SendsOnlyDoneWithoutStreaming) {
  start();
  auto c = client();
  auto message = generate("a", "hello", 5);
  message["stream"] = false;
  c.send(message);
  EXPECT_EQ(c.receive()["event"], "done");
}

TEST_F(ServerTest, ManyRequestsAreInFlightOnOneConnectionAndEachEndsOnce) {
  start();
  auto c = client();
  constexpr int kRequests = 200;
  std::string lines;
  for (int i = 0; i < kRequests; ++i) lines += generate("r" + std::to_string(i), "p", i % 7 + 1).dump() + "\n";
  c.send_raw(lines);
  std::map<std::string, std::string> text;
  std::set<std::string> ended;
  while (ended.size() < kRequests) {
    const auto event = c.receive();
    ASSERT_FALSE(event.is_null());
    const auto id = event["id"].get<std::string>();
    ASSERT_FALSE(ended.contains(id));
    if (event["event"] == "delta") {
      text[id] += event["text"].get<std::string>();
    } else {
      EXPECT_EQ(event["outputs"][0]["text"], text[id]);
      ended.insert(id);
    }
  }
}

TEST_F(ServerTest, AnIdCanBeUsedAgainOnceItsRequestHasEnded) {
  start();
  auto c = client();
  for (int i = 0; i < 3; ++i) {
    c.send(generate("same", "p"));
    EXPECT_EQ(c.receive_until_end("same").back()["event"], "done");
  }
}

TEST_F(ServerTest, ALiveIdIsRefusedAndTheFirstRequestLives) {
  start();
  auto c = client();
  c.send(generate("dup", "hold"));
  EXPECT_EQ(c.receive()["event"], "delta");
  c.send(generate("dup", "p"));
  const auto refused = c.receive();
  EXPECT_EQ(refused["error"]["code"], "duplicate_id");
  EXPECT_EQ(refused["id"], "dup");
  c.send({{"op", "cancel"}, {"id", "dup"}});
  EXPECT_EQ(c.receive()["outputs"][0]["finish_reason"], "abort");
  EXPECT_EQ(counts_->submitted, 1);
}

TEST_F(ServerTest, TheSameIdOnTwoConnectionsIsTwoRequests) {
  start();
  auto a = client();
  auto b = client();
  a.send(generate("same", "hold"));
  b.send(generate("same", "p"));
  EXPECT_EQ(b.receive_until_end("same").back()["event"], "done");
  EXPECT_EQ(a.receive()["event"], "delta");
  EXPECT_EQ(counts_->live, 1);
}

TEST_F(ServerTest, ACancelSentRightBehindItsGenerateEndsItWithAbort) {
  start();
  auto c = client();
  for (int i = 0; i < 50; ++i) {
    c.send_raw(generate("a", "hold").dump() + "\n{\"op\":\"cancel\",\"id\":\"a\"}\n");
    const auto events = c.receive_until_end("a");
    ASSERT_FALSE(events.empty());
    EXPECT_EQ(events.back()["outputs"][0]["finish_reason"], "abort");
  }
  EXPECT_EQ(counts_->cancelled, 50);
}

TEST_F(ServerTest, ACancelOfNothingIsAnUnknownId) {
  start();
  auto c = client();
  c.send({{"op", "cancel"}, {"id", "ghost"}});
  const auto event = c.receive();
  EXPECT_EQ(event["error"]["code"], "unknown_id");
  EXPECT_EQ(event["id"], "ghost");
}

TEST_F(ServerTest, RefusalsAndFailuresOfTheEngineReachTheClientOnce) {
  start();
  auto c = client();
  c.send(generate("a", "refuse"));
  const auto refused = c.receive();
  EXPECT_EQ(refused["error"]["code"], "invalid_request");
  EXPECT_EQ(refused["error"]["param"], "prompt");
  c.send(generate("a", "fail"));
  EXPECT_EQ(c.receive()["error"]["code"], "internal");
  c.send({{"op", "ping"}, {"id", "p"}});
  EXPECT_EQ(c.receive()["event"], "pong");
}

TEST_F(ServerTest, AnswersTheOpsThatAreNoRequests) {
  start();
  auto c = client();
  c.send({{"op", "tokenize"}, {"id", "t"}, {"text", "AB"}});
  EXPECT_EQ(c.receive(), json::parse(R"({"event":"tokens","id":"t","token_ids":[65,66]})"));
  c.send({{"op", "tokenize"}, {"text", ""}});
  EXPECT_EQ(c.receive()["error"]["param"], "text");
  c.send({{"op", "detokenize"}, {"id", "d"}, {"token_ids", {72, 105}}});
  EXPECT_EQ(c.receive(), json::parse(R"({"event":"text","id":"d","text":"Hi"})"));
  c.send({{"op", "model"}, {"id", "m"}});
  EXPECT_EQ(c.receive()["name"], "fake");
  c.send({{"op", "stats"}, {"id", "s"}});
  EXPECT_EQ(c.receive()["requests_running"], 0);
}

TEST_F(ServerTest, LinesMayComeInPiecesEndWithCrLfOrBeBlank) {
  start();
  auto c = client();
  c.send_raw("{\"op\":");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  c.send_raw("\"ping\",\"id\":\"1\"}\r\n\r\n\n{\"op\":\"ping\",\"id\":\"2\"}\n");
  EXPECT_EQ(c.receive()["id"], "1");
  EXPECT_EQ(c.receive()["id"], "2");
}

TEST_F(ServerTest, GoesOnAfterPipelinedGarbage) {
  start();
  auto c = client();
  std::string lines;
  constexpr int kLines = 5000;
  for (int i = 0; i < kLines; ++i) lines += i % 2 == 0 ? "\x01\xff garbage {{{\n" : "[]\n";
  lines += "{\"op\":\"ping\",\"id\":\"end\"}\n";
  std::thread sender([&] { c.send_raw(lines); });
  for (int i = 0; i < kLines; ++i) {
    ASSERT_EQ(c.receive()["error"]["code"], i % 2 == 0 ? "invalid_json" : "invalid_request");
  }
  EXPECT_EQ(c.receive()["id"], "end");
  sender.join();
}

TEST_F(ServerTest, ARequestOfHttpIsNotReadOnAndItsBodyDoesNotRun) {
  start();
  for (const auto* head : {"POST / HTTP/1.1\r\nHost: 127.0.0.1:7070\r\n\r\n", "\r\nget /?a={\"id\":\"a\"} HTTP/1.0\n",
                           "PRI * HTTP/2.0\r\n\r\n"}) {
    auto c = client();
    c.send_raw(head + generate("a", "p").dump() + "\n");
    const auto answer = c.receive();
    EXPECT_EQ(answer["error"]["code"], "invalid_json");
    EXPECT_EQ(answer["error"]["message"], "this port speaks JSON lines, not HTTP: the connection is closed");
    EXPECT_TRUE(c.at_end());
  }
  EXPECT_EQ(counts_->submitted, 0);
}

TEST_F(ServerTest, AHandshakeOfTlsIsNotReadOn) {
  start();
  auto c = client();
  c.send_raw("\x16\x03\x01\x02\x01\n" + generate("a", "p").dump() + "\n");
  EXPECT_EQ(c.receive()["error"]["message"], "this port speaks JSON lines, not TLS: the connection is closed");
  EXPECT_TRUE(c.at_end());
  EXPECT_EQ(counts_->submitted, 0);
}

TEST_F(ServerTest, ARequestThatNamesHttpIsOfJsonLines) {
  start();
  auto c = client();
  c.send_raw("POST HTTP/1.1\n");
  EXPECT_EQ(c.receive()["error"]["code"], "invalid_json");
  c.send(generate("a", "GET / HTTP/1.1"));
  EXPECT_EQ(c.receive_until_end("a").back()["event"], "done");
}

TEST_F(ServerTest, ALineBeforeTheKeyIsShort) {
  ServerConfig config;
  config.keys = *serving::make_key_ring({"first"});
  start(config);
  const auto long_line = generate("a", std::string(10'000, 'p'));
  auto stranger = client();
  stranger.send(long_line);
  EXPECT_EQ(stranger.receive()["error"]["code"], "line_too_long");
  EXPECT_TRUE(stranger.at_end());
  auto endless = client();
  endless.send_raw(std::string(10'000, ' '));
  EXPECT_EQ(endless.receive()["error"]["code"], "line_too_long");
  EXPECT_TRUE(endless.at_end());
  auto known = client();
  known.send_raw("{\"op\":\"auth\",\"key\":\"first\"}\n" + long_line.dump() + "\n");
  EXPECT_EQ(known.receive()["event"], "ok");
  EXPECT_EQ(known.receive_until_end("a").back()["event"], "done");
}

TEST_F(ServerTest, WhereTooManyBytesWaitNewRequestsAreRefusedAndWhatRunsGoesOn) {
  telemetry_->max_buffered_bytes = 1 << 20;
  start();
  auto c = client();
  c.send(generate("live", "hold"));
  EXPECT_EQ(c.receive()["event"], "delta");
  telemetry_->http.buffered_bytes = 2 << 20;  // the other server's connections
  c.send(generate("short", "p"));
  const auto refused = c.receive();
  EXPECT_EQ(refused["id"], "short");
  EXPECT_EQ(refused["error"]["code"], "queue_full");
  EXPECT_GT(refused["error"]["retry_after_ms"], 0);
  const auto long_line = generate("long", std::string(200'000, 'p')).dump() + "\n";
  auto d = client();
  d.send_raw(long_line.substr(0, 100'000));
  const auto not_taken = d.receive();
  EXPECT_TRUE(not_taken["id"].is_null());
  EXPECT_EQ(not_taken["error"]["code"], "queue_full");
  EXPECT_GT(not_taken["error"]["retry_after_ms"], 0);
  EXPECT_TRUE(d.receive().is_null()) << "nobody would hear what became of its request";
  c.send_raw("{\"op\":\"cancel\",\"id\":\"live\"}\n");
  EXPECT_EQ(c.receive()["event"], "done");
  EXPECT_EQ(counts_->submitted, 1);
  EXPECT_EQ(telemetry_->json_lines.refused_for_room, 2);
  telemetry_->http.buffered_bytes = 0;
  c.send_raw(long_line);
  EXPECT_EQ(c.receive_until_end("long").back()["event"], "done");
  EXPECT_TRUE(eventually([&] { return telemetry_->json_lines.buffered_bytes == 0; }));
}

TEST_F(ServerTest, ALineThatIsRefusedForRoomLeavesTheConnectionsRequestsTheirTime) {
  telemetry_->max_buffered_bytes = 1 << 20;
  ServerConfig config;
  config.close_grace_ms = 100;
  start(config);
  auto c = client();
  c.send(generate("live", "hold"));
  EXPECT_EQ(c.receive()["event"], "delta");
  telemetry_->http.buffered_bytes = 2 << 20;  // the other server's connections
  c.send_raw(std::string(100'000, ' '));
  EXPECT_EQ(c.receive()["error"]["code"], "queue_full");
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  telemetry_->http.buffered_bytes = 0;
  auto other = client();
  other.send(generate("last", "last words"));
  EXPECT_EQ(c.receive()["event"], "done") << "not cut off";
  EXPECT_TRUE(c.at_end());
}

TEST_F(ServerTest, LiveRequestsOfOneConnectionHaveALimit) {
  ServerConfig config;
  config.max_live_requests_per_connection = 2;
  start(config);
  auto c = client();
  for (const char* id : {"a", "b", "c"}) c.send(generate(id, "hold"));
  for (;;) {
    const auto event = c.receive();
    ASSERT_FALSE(event.is_null());
    if (event["event"] != "error") continue;
    EXPECT_EQ(event["id"], "c");
    EXPECT_EQ(event["error"]["code"], "queue_full");
    EXPECT_GT(event["error"]["retry_after_ms"], 0);
    break;
  }
}

TEST_F(ServerTest, NothingIsAnsweredBeforeTheKeyWhenThereAreKeys) {
  ServerConfig config;
  config.keys = *serving::make_key_ring({"first", "second"});
  start(config);
  auto c = client();
  c.send({{"op", "ping"}, {"id", "p"}});
  const auto refused = c.receive();
  EXPECT_EQ(refused["error"]["code"], "unauthorized");
  EXPECT_EQ(refused["id"], "p");
  c.send(generate("a", "p"));
  EXPECT_EQ(c.receive()["error"]["code"], "unauthorized");
  c.send_raw("{nope\n");
  EXPECT_EQ(c.receive()["error"]["code"], "unauthorized");
  for (const char* key : {"", "firs", "first2", "FIRST"}) {
    c.send({{"op", "auth"}, {"id", "k"}, {"key", key}});
    EXPECT_EQ(c.receive()["error"]["code"], "unauthorized") << key;
  }
  c.send({{"op", "auth"}, {"id", "k"}, {"key", "second"}});
  EXPECT_EQ(c.receive(), json::parse(R"({"event":"ok","id":"k"})"));
  c.send(generate("a", "p"));
  EXPECT_EQ(c.receive_until_end("a").back()["event"], "done");
  EXPECT_EQ(counts_->submitted, 1);
}

TEST_F(ServerTest, AnyKeyWillDoWhenThereAreNone) {
  start();
  auto c = client();
  c.send({{"op", "auth"}, {"key", "whatever"}});
  EXPECT_EQ(c.receive()["event"], "ok");
}

TEST_F(ServerTest, AnAddressInUseIsAnErrorThatNamesIt) {
  start();
  ServerConfig config;
  config.listen = server_->address();
  const auto second = Server::start(system_, fake_model(), config);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::io_failed);
  EXPECT_NE(second.error().message.find(server_->address()), std::string::npos);
}

TEST_F(ServerTest, AWrongConfigurationIsRefusedBeforeAnythingListens) {
  for (const char* listen : {"", "7070", "host:", ":7070", "127.0.0.1:70000", "127.0.0.1:x", "::1:7070"}) {
    ServerConfig config;
    config.listen = listen;
    const auto server = Server::start(system_, fake_model(), config);
    ASSERT_FALSE(server.has_value()) << listen;
    EXPECT_EQ(server.error().code, ErrorCode::bad_config);
    EXPECT_EQ(server.error().param, "listen");
  }
}

/// A template that takes its time, a good part of a second, where the content is long.
std::shared_ptr<const chat::ChatPrompts> slow_template() {
  constexpr const char* kSource =
      "{% if messages[0].content | length > 1000 %}{% for i in range(3000) %}{% for j in range(1000) %}{% endfor %}"
      "{% endfor %}{% endif %}{{ messages[0].content }}";
  return std::make_shared<const chat::ChatPrompts>(chat::ChatPrompts::parse(kSource, {}).value());
}

json conversation(const std::string& id, std::size_t size) {
  return {{"id", id},
          {"max_tokens", 1},
          {"messages", json::array({{{"role", "user"}, {"content", std::string(size, 'x')}}})}};
}

TEST_F(ServerTest, ALongConversationDoesNotHoldUpOtherClients) {
  start({}, slow_template());
  auto slow = client();
  auto other = client();
  slow.send(conversation("a", 40'000));
  other.send({{"op", "ping"}});
  EXPECT_EQ(other.receive()["event"], "pong");
  EXPECT_EQ(counts_->submitted, 0) << "it is still being rendered";
  EXPECT_EQ(slow.receive_until_end("a").back()["event"], "done");
}

TEST_F(ServerTest, LinesBehindALongOneWaitForIt) {
  start({}, slow_template());
  auto c = client();
  auto rendered = conversation("first", 40'000);
  rendered.erase("max_tokens");
  rendered["op"] = "apply_template";
  c.send_raw(rendered.dump() + "\n" + conversation("a", 40'000).dump() + "\n" +
             json{{"op", "cancel"}, {"id", "b"}}.dump() + "\n" +
             json{{"op", "ping"}, {"id", "last"}}.dump());  // without a line end
  c.end_input();
  std::vector<std::string> order;
  for (auto event = c.receive(); !event.is_null(); event = c.receive()) {
    if (event["event"] == "text") {
      EXPECT_EQ(event["text"].get<std::string>().size(), 40'000U);
    }
    if (event["id"] != "a") order.push_back(event["event"].get<std::string>() + " " + event["id"].get<std::string>());
  }
  EXPECT_FALSE(c.timed_out);
  EXPECT_EQ(order, (std::vector<std::string>{"text first", "error b", "pong last"}));
  EXPECT_EQ(counts_->submitted, 1);
}

TEST_F(ServerTest, ALongLastLineWithoutALineEndIsAnswered) {
  start({}, slow_template());
  auto c = client();
  c.send_raw(conversation("a", 40'000).dump());
  c.end_input();
  EXPECT_EQ(c.receive_until_end("a").back()["event"], "done");
}

TEST_F(ServerTest, AClientMayGoWhileItsLongLineIsRead) {
  start({}, slow_template());
  for (int i = 0; i < 3; ++i) client().send(conversation("a", 40'000));
  server_.reset();
  EXPECT_EQ(counts_->live, 0);
}

TEST_F(ServerTest, AnAddressBeyondThisMachineNeedsKeysOrConsent) {
  ServerConfig config;
  config.listen = "0.0.0.0:0";
  const auto refused = Server::start(system_, fake_model(), config);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::bad_config);
  EXPECT_EQ(refused.error().param, "allow_unauthenticated");
  EXPECT_NE(refused.error().message.find("--allow-unauthenticated"), std::string::npos);
  config.allow_unauthenticated = true;
  EXPECT_TRUE(Server::start(system_, fake_model(), config).has_value());
  config.allow_unauthenticated = false;
  config.keys = *serving::make_key_ring({"key"});
  EXPECT_TRUE(Server::start(system_, fake_model(), config).has_value());
}

}  // namespace
}  // namespace pagoda::json_lines
