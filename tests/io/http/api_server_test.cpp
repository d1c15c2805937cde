// The whole server in front of a router that makes its outputs up.

#include "tests/io/http/api_server_fixture.hpp"

namespace pagoda::http {
namespace {

using nlohmann::json;

TEST_F(ApiServerTest, ADrainIsToldOnNewConnections) {
  start();
  server_->begin_drain();
  EXPECT_EQ(get("/health").status, 200);
  const auto ready = get("/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.body, R"({"status":"draining"})");
}

TEST_F(ApiServerTest, ADrainRefusesNewWorkAndFinishesWhatIsLive) {
  start();
  auto live = client();
  live.post("/v1/completions", R"({"prompt": "endless", "stream": true})");
  EXPECT_EQ(live.receive_head().status, 200);
  server_->begin_drain();
  const std::vector<std::pair<std::string, std::string>> work{
      {"/v1/completions", R"({"prompt": "p"})"},
      {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "p"}]})"},
      {"/v1/responses", R"({"input": "p"})"},
      {"/v1/messages", R"({"max_tokens": 1, "messages": [{"role": "user", "content": "p"}]})"},
      {"/api/generate", R"({"model": "fake", "prompt": "p"})"},
      {"/api/chat", R"({"model": "fake", "messages": [{"role": "user", "content": "p"}]})"}};
  for (const auto& [path, body] : work) {
    const auto refused = post(path, body);
    EXPECT_EQ(refused.status, 503) << path;
    EXPECT_EQ(refused.headers.count("retry-after"), 1U) << path;
    EXPECT_EQ(refused.headers.at("connection"), "close") << path;
  }
  EXPECT_EQ(counts_->submitted, 1);
  EXPECT_TRUE(live.receive_chunk().has_value());
  drain_router();
  auto end = live.receive_chunk();
  while (end && !end->empty()) end = live.receive_chunk();
  EXPECT_EQ(end, "");
}

TEST_F(ApiServerTest, ReadyAndOnlyReadySaysThatTheServerIsOverloaded) {
  start();
  EXPECT_EQ(get("/ready").status, 200);
  counts_->overloaded = true;
  const auto ready = get("/ready");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.body, R"({"status":"overloaded"})");
  EXPECT_EQ(get("/health").status, 200);
  EXPECT_EQ(json::parse(get("/stats").body)["overloaded"], true);
  counts_->overloaded = false;
  EXPECT_EQ(get("/ready").status, 200);
}

TEST_F(ApiServerTest, AListOfPromptsThatNeverFitsIsRefusedForGood) {
  auto model = fake_model();
  model.max_queued_requests = 2;
  start(std::move(model));
  const auto refused = post("/v1/completions", R"({"prompt": ["a", "b", "c"]})");
  EXPECT_EQ(refused.status, 400);
  const auto error = json::parse(refused.body)["error"];
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["param"], "prompt");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": ["a", "b"], "max_tokens": 1})").status, 200);
}

TEST_F(ApiServerTest, AModelIsServedUnderEachOfItsNamesAndAnswersUnderTheFirst) {
  auto model = fake_model();
  model.aliases = {"org/other", "third"};
  start(std::move(model));
  const auto ids = [](const TestAnswer& answer, const char* list, const char* field) {
    std::vector<std::string> all;
    const auto body = json::parse(answer.body);
    for (const auto& entry : body.at(list)) all.push_back(entry.at(field));
    return all;
  };
  EXPECT_EQ(ids(get("/v1/models"), "data", "id"), (std::vector<std::string>{"fake", "org/other", "third"}));
  for (const auto* path : {"/api/tags", "/api/ps"}) {
    EXPECT_EQ(ids(get(path), "models", "name"),
              (std::vector<std::string>{"fake:latest", "org/other:latest", "third:latest"}));
  }
  const auto card = json::parse(get("/v1/models/org/other").body);
  EXPECT_EQ(card["id"], "org/other");
  EXPECT_EQ(card["root"], "fake");
  const std::string messages = R"("messages": [{"role": "user", "content": "p"}])";
  const std::vector<std::pair<std::string, std::string>> routes{
      {"/v1/completions", R"("prompt": "p", "max_tokens": 1)"},
      {"/v1/chat/completions", messages + R"(, "max_tokens": 1)"},
      {"/v1/responses", R"("input": "p", "max_output_tokens": 1)"},
      {"/v1/messages", messages + R"(, "max_tokens": 1)"}};
  for (const auto& [path, fields] : routes) {
    for (const auto* name : {"fake", "org/other", "third"}) {
      const auto answer = post(path, R"({"model": ")" + std::string(name) + "\", " + fields + "}");
      ASSERT_EQ(answer.status, 200) << path << answer.body;
      EXPECT_EQ(json::parse(answer.body)["model"], "fake") << path;
    }
    const auto refused = post(path, R"({"model": "fourth", )" + fields + "}");
    EXPECT_EQ(refused.status, 404) << path;
    EXPECT_NE(refused.body.find("`fake`, `org/other`, `third`"), std::string::npos) << refused.body;
  }
  // Ollama's clients look for the name that they asked for.
  const std::string ollama = R"(, "prompt": "p", "stream": false, "options": {"num_predict": 1}})";
  const auto answer = post("/api/generate", R"({"model": "third:latest")" + ollama);
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(json::parse(answer.body)["model"], "third:latest");
  const auto refused = post("/api/generate", R"({"model": "fourth")" + ollama);
  EXPECT_EQ(refused.status, 404);
  EXPECT_NE(refused.body.find("'fake:latest', 'org/other:latest', 'third:latest'"), std::string::npos) << refused.body;
}

TEST_F(ApiServerTest, AnyModelNameMeansTheFirstModelWhereThatIsAskedFor) {
  ServerConfig config;
  config.any_model_name = true;
  start(fake_model(), config);
  const auto answer = post("/v1/completions", R"({"model": "tgi", "prompt": "p", "max_tokens": 1})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(json::parse(answer.body)["model"], "fake");
  for (const auto* name : {"fake:latest", "llama3", "llama3:8b"}) {
    const auto ollama =
        post("/api/generate", R"({"prompt": "p", "stream": false, "options": {"num_predict": 1}, "model": ")" +
                                  std::string(name) + "\"}");
    ASSERT_EQ(ollama.status, 200) << ollama.body;
    EXPECT_EQ(json::parse(ollama.body)["model"], name);
  }
}

TEST_F(ApiServerTest, AConversationThatGoesOnFromALongOneDoesNotHoldUpOtherClients) {
  auto model = fake_model();
  constexpr const char* kSlow =
      "{% if messages[0].content | length > 1000 %}{% for i in range(3000) %}{% for j in range(1000) %}{% endfor %}"
      "{% endfor %}{% endif %}{{ messages[0].content }}";
  model.chat = std::make_shared<const chat::ChatPrompts>(chat::ChatPrompts::parse(kSlow, {}).value());
  start(std::move(model));
  const auto first = post("/v1/responses",
                          R"({"input": ")" + std::string(40'000, 'x') + R"(", "max_output_tokens": 1, "store": true})");
  ASSERT_EQ(first.status, 200) << first.body;
  const auto id = json::parse(first.body)["id"].get<std::string>();
  auto slow = client();
  slow.post("/v1/responses", R"({"input": "p", "max_output_tokens": 1, "previous_response_id": ")" + id + R"("})");
  EXPECT_EQ(get("/version").status, 200);
  EXPECT_EQ(counts_->submitted, 1) << "it is still being rendered";
  EXPECT_EQ(slow.receive().status, 200);
}

TEST_F(ApiServerTest, WhatIsStoredIsSeenByTheKeyThatStoredItAlone) {
  ServerConfig config;
  config.keys = *serving::make_key_ring({"one", "two"}, {"first-admin", "second-admin"});
  start(fake_model(), config);
  const auto with = [](const std::string& key) { return "Authorization: Bearer " + key + "\r\n"; };
  const std::vector<std::string> keys{"one", "two", "first-admin", "second-admin"};
  for (const auto& owner : keys) {
    const auto stored = post("/v1/responses", R"({"input": "p", "max_output_tokens": 1, "store": true})", with(owner));
    ASSERT_EQ(stored.status, 200) << stored.body;
    const auto id = json::parse(stored.body)["id"].get<std::string>();
    for (const auto& key : keys) {
      EXPECT_EQ(get("/v1/responses/" + id, with(key)).status, key == owner ? 200 : 404) << owner << " " << key;
    }
  }
}

struct Streaming {
  std::string path;
  std::string body;
  std::string error;  ///< how the event begins that ends the stream
};

TEST_F(ApiServerTest, AStreamWhoseEngineEndsEndsWithAnErrorOfItsApi) {
  start();
  const std::string messages = R"("messages": [{"role": "user", "content": "endless"}])";
  const std::vector<Streaming> all{
      {"/v1/completions", R"({"prompt": "endless", "stream": true})", R"(data: {"error":{)"},
      {"/v1/chat/completions", "{" + messages + R"(, "stream": true})", R"(data: {"error":{)"},
      {"/v1/responses", R"({"input": "endless", "stream": true})", "event: response.failed"},
      {"/v1/messages", "{" + messages + R"(, "max_tokens": 9, "stream": true})", "event: error"},
      {"/api/generate", R"({"model": "fake", "prompt": "endless"})", R"({"error":)"},
      {"/api/chat", R"({"model": "fake", )" + messages + "}", R"({"error":)"}};
  std::vector<TestClient> clients;
  for (const auto& [path, body, error] : all) {
    clients.push_back(client());
    clients.back().post(path, body);
    EXPECT_EQ(clients.back().receive_head().status, 200) << path;
  }
  auto whole = client();
  whole.post("/v1/completions", R"({"prompt": "hold"})");
  EXPECT_TRUE(eventually([&] { return counts_->live == 7; }));
  end_router();
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::string text;
    auto chunk = clients[i].receive_chunk();
    for (; chunk && !chunk->empty(); chunk = clients[i].receive_chunk()) text += *chunk;
    EXPECT_EQ(chunk, "") << all[i].path << ": the stream was cut";
    EXPECT_NE(text.rfind("\n" + all[i].error), std::string::npos) << all[i].path << text;
    EXPECT_NE(text.find("the engine has stopped"), std::string::npos) << all[i].path;
  }
  const auto answer = whole.receive();
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(json::parse(answer.body)["error"]["message"], "the engine has stopped");
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "p"})").status, 500);
}

TEST_F(ApiServerTest, AStreamThatFailsBeforeItsFirstOutputHasAStatus) {
  start();
  const auto answer = post("/v1/completions", R"({"prompt": "fail", "stream": true})");
  EXPECT_EQ(answer.status, 500);
  EXPECT_EQ(json::parse(answer.body)["error"]["message"], "made to fail");
}

TEST_F(ApiServerTest, AStreamThatFailsHasAllThatWasSaidBefore) {
  start();
  auto c = client();
  c.post("/v1/completions", R"({"prompt": "fail late", "stream": true})");
  EXPECT_EQ(c.receive_head().status, 200);
  std::string text;
  for (auto chunk = c.receive_chunk(); chunk && !chunk->empty(); chunk = c.receive_chunk()) text += *chunk;
  const auto rest = text.find("the rest");
  ASSERT_NE(rest, std::string::npos);
  EXPECT_GT(text.find("made to fail"), rest);
  EXPECT_NE(text.find("made to fail"), std::string::npos);
}

TEST_F(ApiServerTest, TheHeadOfAStreamWaitsForItsFirstOutputButNotForLong) {
  start();
  auto c = client();
  const auto asked_at = std::chrono::steady_clock::now();
  c.post("/v1/messages", R"({"messages": [{"role": "user", "content": "silent"}], "max_tokens": 9, "stream": true})");
  EXPECT_EQ(c.receive_head().status, 200);
  EXPECT_GT(std::chrono::steady_clock::now() - asked_at, std::chrono::milliseconds(900));
  const auto first = c.receive_chunk();
  ASSERT_TRUE(first);
  EXPECT_TRUE(first->starts_with("event: message_start")) << *first;
}

TEST_F(ApiServerTest, WhatTheEngineSaidBeforeItsEndIsAnswered) {
  start();
  auto stream = client();
  stream.post("/v1/completions", R"({"prompt": "hold", "stream": true})");
  EXPECT_EQ(stream.receive_head().status, 200);
  auto whole = client();
  whole.post("/v1/completions", R"({"prompt": "hold"})");
  EXPECT_TRUE(eventually([&] { return counts_->live == 2; }));
  const auto last = post("/v1/completions", R"({"prompt": "last words"})");
  EXPECT_EQ(last.status, 200) << last.body;
  const auto answer = whole.receive();
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(json::parse(answer.body)["choices"][0]["text"], "w0 ");
  std::string text;
  for (auto chunk = stream.receive_chunk(); chunk && !chunk->empty(); chunk = stream.receive_chunk()) text += *chunk;
  EXPECT_TRUE(text.ends_with("data: [DONE]\n\n")) << text;
  EXPECT_EQ(text.find("error"), std::string::npos) << text;
}

}  // namespace
}  // namespace pagoda::http
